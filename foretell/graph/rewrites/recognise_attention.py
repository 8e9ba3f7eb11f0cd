from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretell.graph.match import interior, monomial_of, number, try_stand_in
from foretell.graph.nodes import Attr, Graph, Node, Value
from foretell.graph.ops.attrs import int_attr, ints_attr
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.dtypes import BOOL


def recognise_attention(graph: Graph) -> Graph:
    """Make one operator of scaled dot-product attention (Vaswani et al., arXiv 1706.03762).

    before: s = scale * MatMul(q, Transpose(k)) + mask;  p = Softmax(s);  MatMul(p, v)
    after:  Attention(q, k, v, mask){scale, causal=False, softcap=0.0}

    The scale may stand on q, on k, on the product, or be split over them. Also recognised on the way:
        cap * Tanh(s / cap)             {softcap=cap}
        Where(mask, s, number)          a mask of booleans, {fill=number}
        Where(IsNaN(p), 0, p)           {nan_to_zero=True}: torch guards rows that see nothing like this
    A key that arrives transposed in another way (or not at all) gets the one Transpose that is missing.

    declines when: scores or probabilities are read elsewhere; the softmax is not over the last axis; ranks differ.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op != "MatMul" or len(node.present_inputs) != 2:
        return None
    probabilities, v = node.present_inputs
    softmax, guard = _softmax(probabilities, rewriter)
    if softmax is None or int_attr(softmax.attrs, "axis") != probabilities.type.rank - 1:
        return None
    for score, mask, attrs in _masks(softmax.present_inputs[0], rewriter):
        dot = _dot_product(score, rewriter)
        if dot is not None:
            settings: dict[str, Attr] = {"scale": dot.scale, "causal": False, "softcap": dot.softcap, **attrs, **guard}
            operands = (dot.q, dot.k, v) if mask is None else (dot.q, dot.k, v, mask)
            return try_stand_in(node, rewriter, "Attention", *operands, **settings)
    return None


def _softmax(value: Value, rewriter: Rewriter) -> tuple[Node | None, dict[str, Attr]]:
    """The Softmax that makes the probabilities, through a guard Where(IsNaN(p), 0, p)."""
    where = interior(value, rewriter, "Where")
    if where is None:
        return interior(value, rewriter, "Softmax"), {}
    condition, zero, inner = where.present_inputs
    test = interior(condition, rewriter, "IsNaN")
    if test is None or test.inputs != (inner,) or number(zero, rewriter) != 0:
        return None, {}
    return interior(inner, rewriter, "Softmax", uses=2), {"nan_to_zero": True}


def _masks(value: Value, rewriter: Rewriter) -> Iterator[tuple[Value, Value | None, dict[str, Attr]]]:
    """Every way to read a value as (score, mask, attributes of the mask)."""
    yield value, None, {}
    node = interior(value, rewriter, "Add", "Where")
    if node is not None and node.op == "Add":
        left, right = node.present_inputs
        yield left, right, {}
        yield right, left, {}
    elif node is not None:
        condition, then, otherwise = node.present_inputs
        assert condition.dtype == BOOL
        for score, other, flip in ((then, otherwise, False), (otherwise, then, True)):
            fill = number(other, rewriter)
            if fill is not None:
                yield score, rewriter.op("Not", condition) if flip else condition, {"fill": fill}


@dataclass(frozen=True, slots=True)
class _Dot:
    """softcap * tanh(scale * q k^T / softcap), or without the bend if softcap is 0."""

    q: Value
    k: Value
    scale: float
    softcap: float = 0.0


def _dot_product(value: Value, rewriter: Rewriter) -> _Dot | None:
    inner, factor = _unscaled(value, rewriter)
    tanh = interior(inner, rewriter, "Tanh")
    if tanh is not None:
        inner, slope = _unscaled(tanh.present_inputs[0], rewriter)
        dot = _matmul(inner, rewriter)
        return None if dot is None else _Dot(dot.q, dot.k, dot.scale * slope * factor, factor)
    dot = _matmul(inner, rewriter)
    return None if dot is None else _Dot(dot.q, dot.k, dot.scale * factor)


def _matmul(value: Value, rewriter: Rewriter) -> _Dot | None:
    node = interior(value, rewriter, "MatMul")
    if node is None or len(node.present_inputs) != 2:
        return None
    q, q_scale = _unscaled(node.present_inputs[0], rewriter)
    k, k_scale = _key(node.present_inputs[1], rewriter)
    return _Dot(q, k, q_scale * k_scale)


def _unscaled(value: Value, rewriter: Rewriter) -> tuple[Value, float]:
    """(x, c) where value = c * x and both have one type."""
    product = monomial_of(value, rewriter)
    for (x,) in product.split(1):
        if x.type == value.type:
            return x, product.coefficient
    return value, 1.0


def _key(value: Value, rewriter: Rewriter) -> tuple[Value, float]:
    """(k, c) where value = c * k with its last two axes swapped."""
    value, outer = _unscaled(value, rewriter)
    rank = value.type.rank
    swap = (*range(rank - 2), rank - 1, rank - 2)
    transpose = rewriter.producer(value, "Transpose")
    if transpose is None:
        return rewriter.transpose(value, swap), outer
    permutation = ints_attr(transpose.attrs, "perm")
    source, inner = transpose.present_inputs[0], 1.0
    if rewriter.has_one_use(value):
        source, inner = _unscaled(source, rewriter)
    return rewriter.transpose(source, tuple(permutation[axis] for axis in swap)), outer * inner
