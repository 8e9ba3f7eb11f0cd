from __future__ import annotations

from dataclasses import replace

from foretell.graph.bind_symbols import bind_symbols
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import graph_attr
from foretell.graph.rewrite import Rewriter, map_subgraphs, rewrite
from foretell.ir.expr import Dim, Sym


def inline_constant_branches(graph: Graph) -> Graph:
    """Replace an If whose condition is constant by the branch that it takes.

    before: y = If(true, x){then_branch: y = Exp(x), else_branch: y = Neg(x)}
    after:  y = Exp(x)

    Dimensions that depended on the choice become those of the branch, here and downstream.
    declines when: the condition is data, or what is downstream cannot have the dimensions of the branch.
    """
    graph = _map_all_subgraphs(graph)
    bindings = {sym: dim for node in graph.nodes for sym, dim in _chosen_dims(node, graph).items()}
    try:
        bound = bind_symbols(graph, bindings) if bindings else graph
    except ValueError:
        return graph
    return rewrite(bound, _inline)


def _map_all_subgraphs(graph: Graph) -> Graph:
    nodes = tuple(map_subgraphs(node, inline_constant_branches) for node in graph.nodes)
    changed = any(new is not old for new, old in zip(nodes, graph.nodes, strict=True))
    return replace(graph, nodes=nodes) if changed else graph


def _branch(node: Node, condition: Array | None) -> Graph | None:
    if node.op != "If" or condition is None:
        return None
    return graph_attr(node.attrs, "then_branch" if bool(condition.reshape(())) else "else_branch")


def _chosen_dims(node: Node, graph: Graph) -> dict[Sym, Dim]:
    """What the dimensions that depended on the choice are now."""
    condition = None if not node.inputs or node.inputs[0] is None else graph.constants.get(node.inputs[0])
    branch = _branch(node, condition)
    if branch is None:
        return {}
    pairs = zip(node.outputs, branch.outputs, strict=True)
    dims = [pair for outer, inner in pairs for pair in zip(outer.shape, inner.shape, strict=True)]
    return {outer: inner for outer, inner in dims if isinstance(outer, Sym) and outer != inner}


def _inline(node: Node, rewriter: Rewriter) -> list[Value] | None:
    branch = _branch(node, rewriter.array(node.inputs[0] if node.inputs else None))
    if branch is None or [value.type for value in branch.outputs] != [value.type for value in node.outputs]:
        return None
    values: dict[Value, Value] = {}
    for inner, outer in zip(branch.inputs, node.inputs[1:], strict=True):
        assert outer is not None
        values[inner] = outer
    for inner, array in branch.constants.items():
        values[inner] = rewriter.constant(array, inner.name)
    for inner in branch.nodes:
        _copy(inner, values, rewriter)
    return [values[value] for value in branch.outputs]


def _copy(node: Node, values: dict[Value, Value], rewriter: Rewriter) -> None:
    """Add a node of the branch to the outer graph under names that are free there."""
    inputs = tuple(None if value is None else values[value] for value in node.inputs)
    outputs = tuple(replace(value, name=rewriter.fresh_name(value.name)) for value in node.outputs)
    values.update(zip(node.outputs, outputs, strict=True))
    rewriter.add(replace(node, inputs=inputs, outputs=outputs))
