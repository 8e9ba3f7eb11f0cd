from __future__ import annotations

from foretell.graph.match import agrees, clipped, monomial, monomial_of, shifted, try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.rewrite import Rewriter, rewrite


def recognise_hard_swish(graph: Graph) -> Graph:
    """Make one operator of x times a clipped line (Howard et al., arXiv 1905.02244).

    before: x * clip(x + 3, 0, 6) / 6      x * clip(x / 6 + 1/2, 0, 1)
    after:  HardSwish(x)

    declines when: anything between x and the result is read elsewhere, or a constant is another one.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ("Mul", "Div"):
        return None
    product = monomial(node, rewriter)
    for x, gate in product.split(1, 1):
        if _is_gate(x, gate, product.coefficient, rewriter):
            return try_stand_in(node, rewriter, "HardSwish", x)
    return None


def _is_gate(x: Value, gate: Value, coefficient: float, rewriter: Rewriter) -> bool:
    """Whether coefficient * gate = clip(x / 6 + 1/2, 0, 1)."""
    top = 1 / coefficient if coefficient > 0 else 0.0
    line = clipped(gate, rewriter, 0.0, top)
    found = None if line is None else shifted(line, rewriter)
    if found is None or not agrees(found[1], top / 2, x.dtype):
        return False
    slope = monomial_of(found[0], rewriter)
    return agrees(slope.coefficient, top / 6, x.dtype) and slope.powers == {x: 1.0}
