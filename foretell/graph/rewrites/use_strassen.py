from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt

from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr
from foretell.graph.ops.op import Attrs
from foretell.graph.ops.strassen import RIGHT
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.dtypes import F32

MOST_LEVELS = 2
"""More are not written out: 343 products of sums of 64."""


@dataclass(frozen=True, slots=True)
class Halves:
    """Matrices [..., rows, length] and [length, width] of known sizes, as many of the former as `others`."""

    others: int
    rows: int
    length: int
    width: int
    readers: int = 1
    """Products that have the former in common."""

    def fits(self, levels: int) -> bool:
        """Whether they can be halved so often. Rows may be left over."""
        return levels <= MOST_LEVELS and self.length % 2**levels == 0 and self.width % 2**levels == 0


Choose = Callable[[Halves], int]
"""How often to halve the matrices of a product; 0 to leave it as it is."""


def use_strassen(graph: Graph, choose: Choose) -> Graph:
    """Multiply large matrices with seven products of quarters instead of eight, where `choose` says so.

    before: y = MatMul(x, w, b)
    after:  y = StrassenResult(MatMul(StrassenOperand(x), t), b)    where t are sums of quarters of w

    before: y = Conv(x, w, b)                                       with one tap
    after:  the same, with the pixels of a line for rows

    t is computed in float64 and rounded once. A NaN or an infinity of x spreads to the rows with which it is added up.

    declines when: w is not a constant matrix, something is not float32, sizes are not known or do not divide, there are
    groups, padding or several taps, or w is large and has other readers.
    """
    products = [node for node in graph.walk() if try_halves(node) is not None]
    counts = Counter((node.present_inputs[0], _strides(node)) for node in products)
    readers = {node.output: counts[node.present_inputs[0], _strides(node)] for node in products}
    return rewrite(graph, partial(_halved, readers=readers, choose=choose))


def _halved(node: Node, rewriter: Rewriter, readers: Mapping[Value, int], choose: Choose) -> list[Value] | None:
    halves = try_halves(node)
    weights = rewriter.array(node.inputs[1]) if halves else None
    if halves is None or weights is None:
        return None
    levels = choose(replace(halves, readers=readers[node.output]))
    if levels == 0 or not rewriter.may_copy(node.present_inputs[1]):
        return None
    x, is_product = node.present_inputs[0], node.op == "MatMul"
    rows, columns = x.type.rank - (2 if is_product else 1), x.type.rank - 1 if is_product else 1
    attrs: Attrs = {"levels": levels, "rows": rows, "columns": columns}
    sums = weight_sums(weights if is_product else weights.reshape(weights.shape[:2]).T, levels)
    sums = sums.reshape(len(sums), *(1,) * (x.type.rank - 2), *sums.shape[1:])
    products = rewriter.op(
        "MatMul", _operand(rewriter, x, {**attrs, "strides": _strides(node)}), rewriter.constant(sums)
    )
    return [rewriter.op("StrassenResult", products, *node.inputs[2:3], **attrs, count=halves.rows)]


def _strides(node: Node) -> tuple[int, ...]:
    """Along each axis of what is multiplied."""
    if node.op == "MatMul":
        return (1,) * node.present_inputs[0].type.rank
    return (1, 1, *ints_attr(node.attrs, "strides"))


def _operand(rewriter: Rewriter, x: Value, attrs: Attrs) -> Value:
    """Sums of quarters of x: those that another product has already, or new ones."""
    for node in rewriter.nodes:
        if node.op == "StrassenOperand" and node.present_inputs == (x,) and dict(node.attrs) == dict(attrs):
            return node.output
    return rewriter.op("StrassenOperand", x, **attrs)


def try_halves(node: Node) -> Halves | None:
    """A product as quarters can compute it; None for anything else."""
    if node.op not in ("MatMul", "Conv") or any(value.dtype != F32 for value in (*node.present_inputs, node.output)):
        return None
    types = [value.type for value in (*node.present_inputs[:2], node.output)]
    if not all(type.is_static for type in types) or any(0 in type.static_shape for type in types):
        return None
    _, w, y = (type.static_shape for type in types)
    if node.op == "MatMul":
        return Halves(prod(y[:-2]), y[-2], w[0], w[1]) if len(w) == 2 and len(y) >= 2 else None
    pads = (*dims_attr(node.attrs, "before"), *dims_attr(node.attrs, "after"))
    if int_attr(node.attrs, "group") != 1 or any(pad != 0 for pad in pads) or set(w[2:]) != {1}:
        return None
    return Halves(y[0] * prod(y[2:-1]), y[-1], w[1], w[0])


def weight_sums(weights: Array, levels: int) -> npt.NDArray[np.float32]:
    """[k, j] -> [p, k, j], the sums of quarters that take part in each product."""
    matrix, sums = np.array(RIGHT, np.float64), weights.astype(np.float64)[None]
    for _ in range(levels):
        count, k, j = sums.shape
        quarters = sums.reshape(count, 2, k // 2, 2, j // 2).transpose(0, 1, 3, 2, 4).reshape(count, 4, -1)
        sums = (matrix @ quarters).reshape(-1, k // 2, j // 2)
    return sums.astype(np.float32)
