from __future__ import annotations

from foretell.graph.match import interior, monomial, try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.graph.rewrites.recognise_layer_norm import mean_of_squares


def recognise_rms_norm(graph: Graph) -> Graph:
    """Make one operator of a root-mean-square norm that was written out (Zhang and Sennrich, arXiv 1910.07467).

    before: x / Sqrt(ReduceMean(x**2) + epsilon)      RMSNorm(x) * scale
    after:  RMSNorm(x){axis, epsilon}                 RMSNorm(x, scale){axis, epsilon}

    declines when: anything between x and the result is read elsewhere; the scale is not constant.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ("Mul", "Div"):
        return None
    return _normalisation(node, rewriter) or _scale(node, rewriter)


def _normalisation(node: Node, rewriter: Rewriter) -> list[Value] | None:
    product = monomial(node, rewriter)
    for x, square in product.split(1, -0.5):
        found = mean_of_squares(square, x, rewriter)
        if found is not None and product.coefficient == 1:
            return try_stand_in(node, rewriter, "RMSNorm", x, axis=found.axis, epsilon=found.epsilon)
    return None


def _scale(node: Node, rewriter: Rewriter) -> list[Value] | None:
    """RMSNorm(x) * constant"""
    if node.op != "Mul":
        return None
    for value, scale in (node.present_inputs, node.present_inputs[::-1]):
        norm = interior(value, rewriter, "RMSNorm")
        if norm is not None and len(norm.present_inputs) == 1 and rewriter.array(scale) is not None:
            return try_stand_in(node, rewriter, "RMSNorm", norm.inputs[0], scale, **norm.attrs)
    return None
