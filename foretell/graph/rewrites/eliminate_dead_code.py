from __future__ import annotations

from dataclasses import replace

from foretell.graph.nodes import Graph
from foretell.graph.rewrite import drop_unused, map_subgraphs


def eliminate_dead_code(graph: Graph) -> Graph:
    """Drop nodes and constants that no output needs, in subgraphs too.

    before: a = Exp(x); b = Neg(x); return b
    after:  b = Neg(x); return b

    Inputs stay: they are the interface. Operators have no effects, so nothing else keeps a node alive.
    """
    nodes = tuple(map_subgraphs(node, eliminate_dead_code) for node in graph.nodes)
    changed = any(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
    return drop_unused(replace(graph, nodes=nodes) if changed else graph)
