from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from foretell.graph.cook_toom import amplification
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.dtypes import F32

VECTOR = 16
"""Products that are paired lie about so far apart: whole vectors of rows are multiplied with each other."""
FEW, MANY = VECTOR // 2, 4 * VECTOR


@dataclass(frozen=True, slots=True)
class Product:
    """Matrices [rows, length] and [length, width] of known sizes, as many as `batch`."""

    batch: int
    rows: int
    length: int
    width: int
    amplified: float = 1.0
    """By how much errors grow in what is done with results: those of tiles by Winograd's filtering are transformed."""


Choose = Callable[[Product], bool]
"""Whether to compute a product in pairs."""


def pair_products(graph: Graph, choose: Choose) -> Graph:
    """Compute sums of products with fewer multiplications, where `choose` says so (`graph/ops/paired.py`).

    before: y = MatMul(x, w, b)
    after:  y = PairedMatMul(x, first, second, third, rest, scale, shift, b)

    before: y = Conv(x, w, b)                                               with one tap
    after:  y = PairedConv(x, first, second, third, rest, scale, shift, b)

    Columns of w are divided by powers of two near the sums of their elements, which is exact. A NaN or an infinity of x
    spreads to its whole row.

    declines when: w or b is not constant, something is not float32, sizes are not known, there are groups, padding or
    several taps, or w is large and has other readers.
    """
    return rewrite(graph, partial(_paired, choose=choose))


def _paired(node: Node, rewriter: Rewriter, choose: Choose) -> list[Value] | None:
    tiles = rewriter.producer(node.inputs[0] if node.inputs else None, "WinogradInput")
    product = try_product(node, tiles)
    weights = rewriter.array(node.inputs[1]) if product is not None else None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if product is None or weights is None or (bias is not None and rewriter.array(bias) is None):
        return None
    if not choose(product) or not rewriter.may_copy(node.present_inputs[1]):
        return None
    is_matrix = node.op == "MatMul"
    parts = weight_parts(weights if is_matrix else weights.reshape(weights.shape[:2]).T)
    if bias is not None:
        parts.append(rewriter.constants[bias].reshape((1,) * (weights.ndim - 1 if is_matrix else 1) + (-1,)))
    operands = [node.present_inputs[0], *map(rewriter.constant, parts)]
    if is_matrix:
        return [rewriter.op("PairedMatMul", *operands)]
    return [rewriter.op("PairedConv", *operands, strides=ints_attr(node.attrs, "strides"))]


def try_product(node: Node, tiles: Node | None = None) -> Product | None:
    """What a node multiplies, perhaps the data of tiles, if it could be done in pairs; None for anything else."""
    if node.op not in ("MatMul", "Conv") or any(value.dtype != F32 for value in (*node.present_inputs, node.output)):
        return None
    types = [value.type for value in (*node.present_inputs[:2], node.output)]
    if not all(type.is_static for type in types) or any(0 in type.static_shape for type in types):
        return None
    x, w, y = (type.static_shape for type in types)
    if node.op == "MatMul":
        lead = (1,) * (len(y) - len(w)) + w[:-2]
        if len(x) != len(y) or len(w) > len(x):
            return None
        batch = prod(lead)
        return Product(batch, prod(y[:-1]) // batch, x[-1], y[-1], 1.0 if tiles is None else amplified(tiles))
    pads = (*dims_attr(node.attrs, "before"), *dims_attr(node.attrs, "after"))
    if set(w[2:]) != {1} or int_attr(node.attrs, "group") != 1 or any(pads):
        return None
    return Product(1, y[0] * prod(y[2:]), w[1], w[0])


def amplified(tiles: Node) -> float:
    """By how much errors of products grow when their tiles are transformed."""
    sizes = zip(ints_attr(tiles.attrs, "tile"), ints_attr(tiles.attrs, "kernel"), strict=True)
    return prod(amplification(results, taps) for results, taps in sizes if taps > 1)


def weight_parts(weights: Array) -> list[Array]:
    """[..., k, j] -> first, second, third [..., g, t, j], rest [..., e, j], scale and shift [..., 1, j]."""
    sizes = np.abs(weights).sum(axis=-2, keepdims=True)
    powers = np.exp2(np.ceil(np.log2(np.where(sizes > 0, sizes, 1.0)))).astype(np.float32)
    scaled, scale = weights / powers, np.where(sizes > 0, powers, np.float32(0))
    groups, apart = _grouped(weights.shape[-2] // 3)
    count = 3 * groups * apart
    grouped = scaled[..., :count, :].reshape(*weights.shape[:-2], groups, 3, apart, weights.shape[-1])
    first, second, third = (np.ascontiguousarray(grouped[..., number, :, :]) for number in range(3))
    shift = (first * second).sum(axis=(-3, -2), dtype=np.float64)[..., None, :].astype(np.float32)
    return [first, second, third, np.ascontiguousarray(scaled[..., count:, :]), scale, shift]


def _grouped(triples: int) -> tuple[int, int]:
    """Groups, and triples in each: those whose products lie best apart, even if a few triples are left out."""
    for count in range(triples, max(0, triples - FEW), -1):
        sizes = [size for size in range(FEW, MANY + 1) if count % size == 0]
        if sizes:
            apart = min(sizes, key=lambda size: abs(size - VECTOR))
            return count // apart, apart
    return 1, triples
