from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt

from foretell.graph.cook_toom import MAX_POINTS, minimal_filtering
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.dtypes import F32

Tile = tuple[int, ...]
"""Results of a tile along each spatial axis."""
BLOCK_BYTES = 1 << 18
"""Weights in float64 that are transformed at once: they stay in a cache from the first step to the last."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution with dilation 1, one group and known sizes."""

    batch: int
    channels: int
    outputs: int
    kernel: tuple[int, ...]
    shape: tuple[int, ...]
    """Results along each spatial axis."""
    strides: tuple[int, ...]

    @property
    def in_phases(self) -> Convolution:
        """The same without strides: every s-th element of the data, and every s-th tap, are channels of their own."""
        if set(self.strides) == {1}:
            return self
        kernel = tuple(-(-taps // stride) for taps, stride in zip(self.kernel, self.strides, strict=True))
        channels = self.channels * prod(self.strides)
        return replace(self, channels=channels, kernel=kernel, strides=(1,) * len(kernel))

    @property
    def data_shape(self) -> tuple[int, ...]:
        """What the results of a convolution without strides depend on, along each spatial axis."""
        return tuple(extent + taps - 1 for extent, taps in zip(self.shape, self.kernel, strict=True))

    def tile(self, results: int) -> Tile:
        """That many results along each axis on which the kernel has more than one tap."""
        return tuple(results if taps > 1 else 1 for taps in self.kernel)

    def places(self, tile: Tile) -> tuple[int, ...]:
        """Places that a tile of results depends on: as many products take the place of multiplications by taps."""
        return tuple(results + taps - 1 for results, taps in zip(tile, self.kernel, strict=True))

    def tiles(self, tile: Tile) -> tuple[int, ...]:
        return tuple(-(-extent // results) for results, extent in zip(tile, self.shape, strict=True))


Choose = Callable[[Convolution], int]
"""How many results a tile should have along each axis; 0 to leave a convolution as it is."""


def use_winograd(graph: Graph, choose: Choose) -> Graph:
    """Compute convolutions in tiles, with fewer multiplications, where `choose` says so.

    before: y = Conv(x, w, b)
    after:  y = WinogradOutput(MatMul(WinogradInput(x), u), b)      where u = G w G^T, for each channel and filter

    before: y = Conv(x, w, b){strides=(2, 2)}                       with 3 x 3 taps
    after:  y = Conv(Phases(x), v, b) as above                      with 2 x 2 taps, some 0, for four times the channels

    u is computed in float64 and rounded once. A NaN or an infinity of x spreads to the whole tiles that depend on it.

    declines when: w is not constant or is not float32, dilations or groups are not 1, a size is not known, or padding
    is negative.
    """
    return rewrite(graph, partial(_tiled, choose=choose))


def _tiled(node: Node, rewriter: Rewriter, choose: Choose) -> list[Value] | None:
    convolution = try_convolution(node)
    weights = rewriter.array(node.inputs[1]) if convolution else None
    results = choose(convolution) if convolution and weights is not None else 0
    if convolution is None or weights is None or results == 0:
        return None
    x, before, phased = node.present_inputs[0], ints_attr(node.attrs, "before"), convolution.in_phases
    tile = phased.tile(results)
    assert max(phased.places(tile)) <= MAX_POINTS
    if phased != convolution:
        strides = convolution.strides
        x = rewriter.op("Phases", x, strides=strides, before=before, shape=phased.data_shape)
        weights, before = weights_in_phases(weights, strides), (0,) * len(strides)
    shared = {"tile": tile, "kernel": phased.kernel, "shape": phased.shape}
    filters = rewriter.constant(transformed_weights(weights, tile))
    data = rewriter.op("WinogradInput", x, **shared, before=before)
    products = rewriter.op("MatMul", data, filters)
    bias = node.inputs[2:3]
    return [rewriter.op("WinogradOutput", products, *bias, **shared)]


def try_convolution(node: Node) -> Convolution | None:
    """A convolution as tiles can compute it; None for anything else."""
    if node.op != "Conv" or any(value.dtype != F32 for value in (*node.present_inputs, node.output)):
        return None
    x, w, y = node.present_inputs[0].type, node.present_inputs[1].type, node.output.type
    strides = ints_attr(node.attrs, "strides")
    steps = {*ints_attr(node.attrs, "dilations"), int_attr(node.attrs, "group")}
    pads = (*dims_attr(node.attrs, "before"), *dims_attr(node.attrs, "after"))
    if steps != {1} or not all(type.is_static for type in (x, w, y)):
        return None
    if not all(isinstance(pad, int) and pad >= 0 for pad in pads) or 0 in y.static_shape:
        return None
    (outputs, channels, *kernel), (batch, _, *shape) = w.static_shape, y.static_shape
    return Convolution(batch, channels, outputs, tuple(kernel), tuple(shape), strides)


def weights_in_phases(weights: Array, strides: tuple[int, ...]) -> Array:
    """[o, c, taps...] -> [o, (phases..., c), taps / strides...], with taps of 0 where they do not divide."""
    outputs, channels, *taps = weights.shape
    counts = [-(-count // stride) for count, stride in zip(taps, strides, strict=True)]
    missing = [count * stride - tap for count, stride, tap in zip(counts, strides, taps, strict=True)]
    padded = np.pad(weights, [(0, 0), (0, 0), *((0, after) for after in missing)])
    apart = padded.reshape(outputs, channels, *(size for pair in zip(counts, strides, strict=True) for size in pair))
    spatial = range(len(taps))
    order = (0, *(3 + 2 * axis for axis in spatial), 1, *(2 + 2 * axis for axis in spatial))
    return apart.transpose(order).reshape(outputs, -1, *counts)


def transformed_weights(weights: Array, tile: Tile) -> npt.NDArray[np.float32]:
    """[o, c, taps...] -> [a, 1..., c, o], where a goes through all places of a tile."""
    outputs, channels, *taps = weights.shape
    matrices = [np.array(minimal_filtering(m, r).taps, np.float64) for m, r in zip(tile, taps, strict=True)]
    places, ones = prod(map(len, matrices)), (1,) * len(tile)
    result = np.empty((places, *ones, channels, outputs), np.float32)
    step = max(1, BLOCK_BYTES // (places * outputs * np.dtype(np.float64).itemsize))
    for first in range(0, channels, step):
        moved = np.moveaxis(weights[:, first : first + step].astype(np.float64), (0, 1), (-1, -2))
        for axis, matrix in enumerate(matrices):
            moved = np.moveaxis(np.tensordot(matrix, moved, (1, axis)), 0, axis)
        result[..., first : first + step, :] = moved.reshape(places, *ones, -1, outputs)
    return result
