"""Scaling and shifting what a convolution or a matrix product computes, by changing its constants.

    conv(x, w, b) * factor + shift  =  conv(x, w * factor, b * factor + shift)        per output channel

Arithmetic is in float64 and rounds once, to the type the constant is stored in.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from foretell.graph.nodes import Array, Node, Value
from foretell.graph.rewrite import SMALL_BYTES, Rewriter

Floats: TypeAlias = npt.NDArray[np.float64]

WEIGHT_CHANNEL = {"Conv": 0, "MatMul": -1}
"""Which axis of operand 1 is the output channel."""


def channel_axis(node: Node) -> int:
    """Which axis of the result the channels of a Conv or MatMul are."""
    return 1 if node.op == "Conv" else node.output.type.rank - 1


def channel_vector(array: Array, axis: int, result: Value) -> Floats | None:
    """One number per channel, if adding or multiplying the array to `result` treats each channel alike."""
    channels, rank = result.shape[axis], result.type.rank
    if not isinstance(channels, int) or array.ndim > rank:
        return None
    aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if aligned.size != aligned.shape[axis] or aligned.size not in (1, channels):
        return None
    return np.broadcast_to(aligned.reshape(-1).astype(np.float64), (channels,))


def absorbing_node(value: Value, rewriter: Rewriter) -> Node | None:
    """The float Conv or MatMul that makes `value` for one reader only."""
    node = rewriter.producer(value, *WEIGHT_CHANNEL) if rewriter.has_one_use(value) else None
    return node if node is not None and value.dtype.is_float else None


def try_absorb(node: Node, rewriter: Rewriter, factor: Floats | None, shift: Floats | None) -> Value | None:
    """node * factor + shift as one node, if what that changes is constant, is read here only, and stays finite."""
    x, weights, bias = (*node.inputs, None)[:3]
    if factor is not None:
        weights = _try_scaled_weights(node, rewriter, factor)
    old = _bias(bias, rewriter)
    if weights is None or old is None:
        return None
    rewriter.location = node.location
    with np.errstate(all="ignore"):
        new = (old if factor is None else old * factor) + (0.0 if shift is None else shift)
        vector = np.asarray(new).astype(node.output.dtype.numpy)
    if not np.isfinite(vector.astype(np.float64)).all():
        return None
    keeps_none = bias is None and shift is None
    return rewriter.op(node.op, x, weights, *(() if keeps_none else (rewriter.constant(vector),)), **node.attrs)


def _bias(bias: Value | None, rewriter: Rewriter) -> Floats | None:
    """The bias in float64, zero if there is none, None if it is not constant."""
    if bias is None:
        return np.zeros((), np.float64)
    array = rewriter.array(bias)
    return None if array is None else array.astype(np.float64)


def _try_scaled_weights(node: Node, rewriter: Rewriter, factor: Floats) -> Value | None:
    weights = node.inputs[1]
    # Weights that are one number, broadcast, are scaled before that, so that they stay as small as they are.
    broadcast = rewriter.producer(weights, "Broadcast")
    source = weights if broadcast is None else broadcast.inputs[0]
    array = rewriter.array(source)
    if weights is None or source is None or array is None or not rewriter.may_copy(source):
        return None
    scaled = _scaled(array, factor, WEIGHT_CHANNEL[node.op], weights.type.rank)
    if scaled is None:
        return None
    constant = rewriter.constant(scaled, weights.name)
    return constant if broadcast is None else rewriter.op("Broadcast", constant, shape=weights.shape)


def _scaled(array: Array, factor: Floats, channel: int, rank: int) -> Array | None:
    """array * factor along an axis of the array's shape, widened to a rank; None if that is large or not finite."""
    aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
    shape = [1] * rank
    shape[channel] = -1
    factors = factor.reshape(shape)
    result = np.broadcast_shapes(aligned.shape, factors.shape)
    if prod(result) > max(array.size, SMALL_BYTES // array.itemsize):
        return None
    scaled = np.empty(result, array.dtype)
    with np.errstate(all="ignore"):
        np.multiply(aligned, factors, out=scaled, dtype=np.float64, casting="unsafe")
    return scaled if np.isfinite(scaled).all() else None
