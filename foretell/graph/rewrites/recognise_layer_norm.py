from __future__ import annotations

from dataclasses import dataclass

from foretell.graph.match import interior, monomial, monomial_of, shifted, try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.ops.attrs import ints_attr
from foretell.graph.rewrite import Rewriter, rewrite


def recognise_layer_norm(graph: Graph) -> Graph:
    """Make one operator of a layer norm that was written out (Ba et al., arXiv 1607.06450).

    before: d = x - ReduceMean(x);  d / Sqrt(ReduceMean(d**2) + epsilon)
            LayerNorm(x) * scale + bias
    after:  LayerNorm(x){axis, epsilon}
            LayerNorm(x, scale, bias){axis, epsilon}

    The means are over the last axes; the square may be a Pow or a product, the quotient a product with an inverse.
    declines when: anything between x and the result is read elsewhere; scale or bias is not constant.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ("Mul", "Div", "Add"):
        return None
    return _normalisation(node, rewriter) or _scale_or_bias(node, rewriter)


def _normalisation(node: Node, rewriter: Rewriter) -> list[Value] | None:
    product = monomial(node, rewriter)
    for deviation, variance in product.split(1, -0.5):
        found = mean_of_squares(variance, deviation, rewriter)
        x = None if found is None else _centred_from(deviation, found, rewriter)
        if found is not None and x is not None and product.coefficient == 1:
            return try_stand_in(node, rewriter, "LayerNorm", x, axis=found.axis, epsilon=found.epsilon)
    return None


@dataclass(frozen=True, slots=True)
class MeanOfSquares:
    """The mean over axes `axis` and on, plus epsilon, of the square of a value that is read `reads` times for it."""

    axis: int
    epsilon: float
    reads: int


def mean_of_squares(value: Value, x: Value, rewriter: Rewriter) -> MeanOfSquares | None:
    """How value = mean of x**2 + epsilon, if it is that."""
    found = shifted(value, rewriter)
    mean = None if found is None else interior(found[0], rewriter, "ReduceMean")
    first = None if mean is None else first_of_last_axes(mean)
    if found is None or mean is None or first is None:
        return None
    square = monomial_of(mean.present_inputs[0], rewriter)
    node = rewriter.producer(mean.inputs[0])
    if node is None or square.coefficient != 1 or square.powers != {x: 2.0}:
        return None
    return MeanOfSquares(first, found[1], node.inputs.count(x))


def first_of_last_axes(reduction: Node) -> int | None:
    """k where a reduction keeps its axes and is over axes k, k + 1, ... to the last."""
    axes, rank = ints_attr(reduction.attrs, "axes"), reduction.present_inputs[0].type.rank
    trailing = bool(axes) and sorted(axes) == list(range(min(axes), rank))
    return min(axes) if trailing and reduction.attrs["keepdims"] else None


def _centred_from(deviation: Value, found: MeanOfSquares, rewriter: Rewriter) -> Value | None:
    """x where deviation = x - mean of x over the same axes, read by nothing but its square and the quotient."""
    node = rewriter.producer(deviation, "Sub")
    mean = None if node is None else interior(node.inputs[1], rewriter, "ReduceMean")
    if node is None or mean is None or mean.inputs != node.inputs[:1] or first_of_last_axes(mean) != found.axis:
        return None
    return mean.present_inputs[0] if rewriter.use_count(deviation) == found.reads + 1 else None


def _scale_or_bias(node: Node, rewriter: Rewriter) -> list[Value] | None:
    """LayerNorm(x) * constant, or LayerNorm(x, scale) + constant."""
    if node.op == "Div":
        return None
    for value, parameter in (node.present_inputs, node.present_inputs[::-1]):
        norm = interior(value, rewriter, "LayerNorm")
        if norm is None or rewriter.array(parameter) is None:
            continue
        x, scale, bias = (*norm.inputs, None, None)[:3]
        if node.op == "Mul" and scale is None and bias is None:
            return try_stand_in(node, rewriter, "LayerNorm", x, parameter, **norm.attrs)
        if node.op == "Add" and bias is None:
            return try_stand_in(node, rewriter, "LayerNorm", x, scale, parameter, **norm.attrs)
    return None
