from __future__ import annotations

from foretell.graph.match import agrees, monomial, monomial_of, one_plus, try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.rewrite import Rewriter, rewrite


def recognise_sigmoid(graph: Graph) -> Graph:
    """Make one operator of a logistic function that was written out.

    before: 1 / (1 + exp(-x))      y / (1 + exp(-x))
    after:  Sigmoid(x)             y * Sigmoid(x)

    declines when: anything between x and the result is read elsewhere.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ("Div", "Reciprocal"):
        return None
    product = monomial(node, rewriter)
    if product.coefficient != 1:
        return None
    for (denominator,) in product.split(-1):
        x = _exponent(denominator, rewriter)
        return None if x is None else try_stand_in(node, rewriter, "Sigmoid", x)
    for y, denominator in product.split(1, -1):
        x = _exponent(denominator, rewriter)
        return None if x is None else try_stand_in(node, rewriter, "Mul", y, rewriter.op("Sigmoid", x))
    return None


def _exponent(value: Value, rewriter: Rewriter) -> Value | None:
    """x where value = 1 + exp(-x)."""
    power = one_plus(value, rewriter, "Exp")
    exponent = None if power is None else monomial_of(power.present_inputs[0], rewriter)
    if exponent is not None and agrees(exponent.coefficient, -1.0, value.dtype):
        return next((x for (x,) in exponent.split(1)), None)
    return None
