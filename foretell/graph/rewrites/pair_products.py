from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from foretell.graph.cook_toom import amplification
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr
from foretell.graph.ops.op import Attrs
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

    before: y = Conv(x, w, b)                                               with one tap, or three along an axis
    after:  y = PairedConv(x, first, second, third, rest, scale, shift, b)

    Columns of w are divided by powers of two near the sums of their elements, which is exact. A NaN or an infinity of x
    spreads to its whole row.

    declines when: w or b is not constant, something is not float32, sizes are not known, there are groups, padding is
    negative, there are other taps, channels do not divide into parts of about a vector, w is large and has other
    readers, or matrices are multiplied by quarters already: nothing is known of both errors together.
    """
    return rewrite(graph, partial(_paired, choose=choose))


def _paired(node: Node, rewriter: Rewriter, choose: Choose) -> list[Value] | None:
    tiles = rewriter.producer(node.inputs[0] if node.inputs else None, "WinogradInput", "StrassenOperand")
    product = None if tiles is not None and tiles.op == "StrassenOperand" else try_product(node, tiles)
    weights = rewriter.array(node.inputs[1]) if product is not None else None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if product is None or weights is None or (bias is not None and rewriter.array(bias) is None):
        return None
    if not choose(product) or not rewriter.may_copy(node.present_inputs[1]):
        return None
    attrs: Attrs = {}
    if node.op == "MatMul":
        parts = weight_parts(weights)
    else:
        kernel = weights.shape[2:]
        attrs = {name: node.attrs[name] for name in ("strides", "dilations", "before", "after")}
        attrs |= {"kernel": kernel, "thirds": _thirds(kernel)}
        parts = weight_parts(weights[(..., *(0 for _ in kernel))].T) if set(kernel) == {1} else window_parts(weights)
    if bias is not None:
        parts.append(rewriter.constants[bias].reshape((1,) * (parts[-1].ndim - 1) + (-1,)))
    constants = map(rewriter.constant, parts)
    return [rewriter.op(f"Paired{node.op}", node.present_inputs[0], *constants, **attrs)]


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
    if int_attr(node.attrs, "group") != 1 or not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        return None
    if set(w[2:]) != {1} and (_thirds(w[2:]) < 0 or not _apart(w[1])):
        return None
    return Product(1, y[0] * prod(y[2:]), prod(w[1:]), w[0])


def amplified(tiles: Node) -> float:
    """By how much errors of products grow when their tiles are transformed."""
    sizes = zip(ints_attr(tiles.attrs, "tile"), ints_attr(tiles.attrs, "kernel"), strict=True)
    return prod(amplification(results, taps) for results, taps in sizes if taps > 1)


def weight_parts(weights: Array, apart: int = 0) -> list[Array]:
    """[..., k, j] -> first, second, third [..., g, t, j], rest [..., e, j], scale and shift [..., 1, j].

    Unless it is given how far apart the elements of triples are, a good distance is found.
    """
    sizes = np.abs(weights).sum(axis=-2, keepdims=True)
    powers = np.exp2(np.ceil(np.log2(np.where(sizes > 0, sizes, 1.0)))).astype(np.float32)
    scaled, scale = weights / powers, np.where(sizes > 0, powers, np.float32(0))
    triples = weights.shape[-2] // 3
    groups, apart = (triples // apart, apart) if apart else _grouped(triples)
    count = 3 * groups * apart
    grouped = scaled[..., :count, :].reshape(*weights.shape[:-2], groups, 3, apart, weights.shape[-1])
    first, second, third = (np.ascontiguousarray(grouped[..., number, :, :]) for number in range(3))
    shift = (first * second).sum(axis=(-3, -2), dtype=np.float64)[..., None, :].astype(np.float32)
    return [first, second, third, np.ascontiguousarray(scaled[..., count:, :]), scale, shift]


def _grouped(triples: int) -> tuple[int, int]:
    """Groups, and triples in each: those whose products lie best apart, even if a few triples are left out."""
    for count in range(triples, max(0, triples - FEW), -1):
        if apart := _apart(count):
            return count // apart, apart
    return 1, triples


def window_parts(weights: Array) -> list[Array]:
    """[o, c, taps...] -> the same, with rows stored as [(other taps..., parts of c), three taps, within a part]."""
    outputs, channels, *kernel = weights.shape
    apart, thirds = _apart(channels), 3 + _thirds(tuple(kernel))
    cut = weights.reshape(outputs, -1, apart, *kernel)
    others = [axis for axis in range(3, cut.ndim) if axis != thirds]
    return weight_parts(cut.transpose(*others, 1, thirds, 2, 0).reshape(-1, outputs), apart)


def _apart(count: int) -> int:
    """The size nearest to a vector of parts into which so many can be divided; 0 if there is none."""
    sizes = [size for size in range(FEW, MANY + 1) if count % size == 0]
    return min(sizes, key=lambda size: abs(size - VECTOR), default=0)


def _thirds(kernel: tuple[int, ...]) -> int:
    """The last spatial axis with three taps, or -1."""
    return max((axis for axis, taps in enumerate(kernel) if taps == 3), default=-1)
