from __future__ import annotations

from math import pi, sqrt

from foretell.graph.match import agrees, interior, monomial, monomial_of, one_plus, shifted, try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.rewrite import Rewriter, rewrite

CUBIC = 0.044715


def recognise_gelu(graph: Graph) -> Graph:
    """Make one operator of a Gaussian error linear unit (Hendrycks and Gimpel, arXiv 1606.08415).

    before: 0.5 * x * (1 + Erf(x / sqrt(2)))
            0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    after:  Gelu(x){approximate=none}
            Gelu(x){approximate=tanh}

    The factors may stand in any order and grouping; the cube may be a Pow or products.
    declines when: anything between x and the result is read elsewhere, or a constant is another one.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ("Mul", "Div"):
        return None
    product = monomial(node, rewriter)
    if not agrees(product.coefficient, 0.5, node.output.dtype):
        return None
    for x, gate in product.split(1, 1):
        bend = one_plus(gate, rewriter, "Erf", "Tanh")
        if bend is not None and bend.op == "Erf" and _is_erf_argument(bend.present_inputs[0], x, rewriter):
            return try_stand_in(node, rewriter, "Gelu", x, approximate="none")
        if bend is not None and bend.op == "Tanh" and _is_tanh_argument(bend.present_inputs[0], x, rewriter):
            return try_stand_in(node, rewriter, "Gelu", x, approximate="tanh")
    return None


def _is_erf_argument(value: Value, x: Value, rewriter: Rewriter) -> bool:
    """value = x / sqrt(2)"""
    return _is_multiple(value, sqrt(0.5), {x: 1.0}, rewriter)


def _is_tanh_argument(value: Value, x: Value, rewriter: Rewriter) -> bool:
    """value = sqrt(2 / pi) * (x + 0.044715 * x**3), or with x taken out of the sum."""
    product = monomial_of(value, rewriter)
    if not agrees(product.coefficient, sqrt(2 / pi), value.dtype):
        return False
    if any(_is_cubic(total, x, rewriter) for (total,) in product.split(1)):
        return True
    return any(first == x and _is_quadratic(rest, x, rewriter) for first, rest in product.split(1, 1))


def _is_cubic(value: Value, x: Value, rewriter: Rewriter) -> bool:
    """value = x + 0.044715 * x**3"""
    node = interior(value, rewriter, "Add")
    if node is None or x not in node.inputs:
        return False
    left, right = node.present_inputs
    return _is_multiple(right if left == x else left, CUBIC, {x: 3.0}, rewriter)


def _is_quadratic(value: Value, x: Value, rewriter: Rewriter) -> bool:
    """value = 1 + 0.044715 * x**2"""
    found = shifted(value, rewriter)
    return (
        found is not None and agrees(found[1], 1.0, value.dtype) and _is_multiple(found[0], CUBIC, {x: 2.0}, rewriter)
    )


def _is_multiple(value: Value, coefficient: float, powers: dict[Value, float], rewriter: Rewriter) -> bool:
    product = monomial_of(value, rewriter)
    return agrees(product.coefficient, coefficient, value.dtype) and product.powers == powers
