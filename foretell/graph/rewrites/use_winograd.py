from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from foretell.graph.cook_toom import MAX_POINTS, minimal_filtering
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.dtypes import F32

Tile = tuple[int, ...]
"""Results of a tile along each spatial axis."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution with stride and dilation 1, one group and known sizes."""

    batch: int
    channels: int
    outputs: int
    kernel: tuple[int, ...]
    shape: tuple[int, ...]
    """Results along each spatial axis."""

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

    u is computed in float64 and rounded once. A NaN or an infinity of x spreads to the whole tiles that depend on it.

    declines when: w is not constant or is not float32, strides, dilations or groups are not 1, a size is not known, or
    padding is negative.
    """
    return rewrite(graph, partial(_tiled, choose=choose))


def _tiled(node: Node, rewriter: Rewriter, choose: Choose) -> list[Value] | None:
    convolution = try_convolution(node)
    weights = rewriter.array(node.inputs[1]) if convolution else None
    results = choose(convolution) if convolution and weights is not None else 0
    if convolution is None or weights is None or results == 0:
        return None
    tile = convolution.tile(results)
    assert max(convolution.places(tile)) <= MAX_POINTS
    shared = {"tile": tile, "kernel": convolution.kernel, "shape": convolution.shape}
    filters = rewriter.constant(transformed_weights(weights, tile))
    before = ints_attr(node.attrs, "before")
    data = rewriter.op("WinogradInput", node.present_inputs[0], **shared, before=before)
    products = rewriter.op("MatMul", data, filters)
    bias = node.inputs[2:3]
    return [rewriter.op("WinogradOutput", products, *bias, **shared)]


def try_convolution(node: Node) -> Convolution | None:
    """A convolution as tiles can compute it; None for anything else."""
    if node.op != "Conv" or any(value.dtype != F32 for value in (*node.present_inputs, node.output)):
        return None
    x, w, y = node.present_inputs[0].type, node.present_inputs[1].type, node.output.type
    steps = {*ints_attr(node.attrs, "strides"), *ints_attr(node.attrs, "dilations"), int_attr(node.attrs, "group")}
    pads = (*dims_attr(node.attrs, "before"), *dims_attr(node.attrs, "after"))
    if steps != {1} or not all(type.is_static for type in (x, w, y)):
        return None
    if not all(isinstance(pad, int) and pad >= 0 for pad in pads) or 0 in y.static_shape:
        return None
    (outputs, channels, *kernel), (batch, _, *shape) = w.static_shape, y.static_shape
    return Convolution(batch, channels, outputs, tuple(kernel), tuple(shape))


def transformed_weights(weights: Array, tile: Tile) -> npt.NDArray[np.float32]:
    """[o, c, taps...] -> [a, 1..., c, o], where a goes through all places of a tile."""
    moved = np.moveaxis(weights.astype(np.float64), (0, 1), (-1, -2))
    for axis, (results, taps) in enumerate(zip(tile, weights.shape[2:], strict=True)):
        matrix = np.array(minimal_filtering(results, taps).taps, np.float64)
        moved = np.moveaxis(np.tensordot(matrix, moved, (1, axis)), 0, axis)
    channels, outputs = moved.shape[-2:]
    return moved.reshape(-1, *(1,) * len(tile), channels, outputs).astype(np.float32)
