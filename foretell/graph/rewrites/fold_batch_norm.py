from __future__ import annotations

import numpy as np

from foretell.graph.absorb import Floats, absorbing_node, channel_axis, try_absorb
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.ops.attrs import float_attr
from foretell.graph.rewrite import Rewriter, rewrite


def fold_batch_norm(graph: Graph) -> Graph:
    """Fold an inference batch norm into the convolution or matrix product that feeds it, or into two constants.

    before: y = BatchNorm(Conv(x, w, b), scale, bias, mean, variance){epsilon}
    after:  y = Conv(x, w * k, b * k + c)      where k = scale / sqrt(variance + epsilon), c = bias - mean * k

    before: y = BatchNorm(x, ...)              where x is anything else, or has other readers
    after:  y = x * k + c

    declines when: a parameter is not constant.
    """
    return rewrite(graph, _fold)


def _fold(node: Node, rewriter: Rewriter) -> list[Value] | None:
    affine = _constants(node, rewriter) if node.op == "BatchNorm" else None
    if affine is None:
        return None
    factor, shift = affine
    x = node.present_inputs[0]
    source = absorbing_node(x, rewriter)
    absorbed = None
    if source is not None and channel_axis(source) == 1:
        absorbed = try_absorb(source, rewriter, factor, shift)
    return [absorbed or _scaled_and_shifted(x, factor, shift, rewriter)]


def _constants(node: Node, rewriter: Rewriter) -> tuple[Floats, Floats] | None:
    """(k, c) per channel."""
    arrays = [array for value in node.inputs[1:] if (array := rewriter.array(value)) is not None]
    if len(arrays) != 4:
        return None
    scale, bias, mean, variance = np.broadcast_arrays(*(array.astype(np.float64) for array in arrays))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float_attr(node.attrs, "epsilon"))
        return factor, bias - mean * factor


def _scaled_and_shifted(x: Value, factor: Floats, shift: Floats, rewriter: Rewriter) -> Value:
    shape = (-1, *(1,) * (x.type.rank - 2))
    with np.errstate(all="ignore"):
        scale, bias = (rewriter.constant(part.reshape(shape).astype(x.dtype.numpy)) for part in (factor, shift))
    return rewriter.op("Add", rewriter.op("Mul", x, scale), bias)
