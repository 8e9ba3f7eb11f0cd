from __future__ import annotations

import numpy as np

from foretell.graph.absorb import Floats, absorbing_node, channel_axis, channel_vector, try_absorb
from foretell.graph.match import EPSILON
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.dtypes import DType


def fuse_bias(graph: Graph) -> Graph:
    """Make a constant that is added to each channel the bias of the operator before it.

    before: Conv(x, w) + c      MatMul(a, b) - c
    after:  Conv(x, w, c)       MatMul(a, b, -c)

    A bias that is there already is added to.
    declines when: c is not constant or differs within a channel, the operator has another reader, or its own bias is
    not constant; or c is so large that adding it rounds fractions off, which x + c - c does on purpose.
    """
    return rewrite(graph, _fuse)


def _is_rounding(shift: Floats, dtype: DType) -> bool:
    return float(np.abs(shift).max(initial=0.0)) * EPSILON.get(dtype, 1.0) >= 0.25


def _fuse(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ("Add", "Sub"):
        return None
    pairs = (node.present_inputs, node.present_inputs[::-1]) if node.op == "Add" else (node.present_inputs,)
    for value, constant in pairs:
        source, array = absorbing_node(value, rewriter), rewriter.array(constant)
        if source is None or array is None or value.type != node.output.type:
            continue
        shift = channel_vector(array, channel_axis(source), value)
        if shift is not None and not _is_rounding(shift, value.dtype):
            fused = try_absorb(source, rewriter, None, shift if node.op == "Add" else np.negative(shift))
            return None if fused is None else [fused]
    return None
