from __future__ import annotations

from foretell.graph.match import interior, monomial, try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.rewrite import Rewriter, rewrite


def recognise_silu(graph: Graph) -> Graph:
    """Make one operator of x times its own sigmoid (Elfwing et al., arXiv 1702.03118; also called Swish).

    before: x * Sigmoid(x)
    after:  Silu(x)

    declines when: the sigmoid is read elsewhere, or is of another value.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op != "Mul":
        return None
    product = monomial(node, rewriter)
    for x, gate in product.split(1, 1):
        sigmoid = interior(gate, rewriter, "Sigmoid")
        if product.coefficient == 1 and sigmoid is not None and sigmoid.inputs == (x,):
            return try_stand_in(node, rewriter, "Silu", x)
    return None
