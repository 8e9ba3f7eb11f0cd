from __future__ import annotations

import numpy as np

from foretell.graph.absorb import Floats, absorbing_node, channel_axis, channel_vector, try_absorb
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.rewrite import Rewriter, rewrite


def fold_scale(graph: Graph) -> Graph:
    """Multiply a constant factor of each channel into the weights of the operator before it.

    before: Conv(x, w, b) * c         MatMul(a, w) / c
    after:  Conv(x, w * c, b * c)     MatMul(a, w / c)

    declines when: c, the weights or the bias is not constant, c differs within a channel, the operator or its weights
    have another reader, or a product overflows the type of the weights.
    """
    return rewrite(graph, _fold)


def _fold(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ("Mul", "Div"):
        return None
    pairs = (node.present_inputs, node.present_inputs[::-1]) if node.op == "Mul" else (node.present_inputs,)
    for value, constant in pairs:
        source, array = absorbing_node(value, rewriter), rewriter.array(constant)
        if source is None or array is None or value.type != node.output.type:
            continue
        factor = channel_vector(_factor(array, node.op), channel_axis(source), value)
        if factor is not None:
            folded = try_absorb(source, rewriter, factor, None)
            return None if folded is None else [folded]
    return None


def _factor(array: Array, op: str) -> Floats:
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        return wide if op == "Mul" else np.reciprocal(wide)
