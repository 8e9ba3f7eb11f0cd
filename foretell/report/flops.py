"""Arithmetic in a graph, node by node, from the definitions of its operators.

Every arithmetic operation counts one, a multiply-accumulate two; moves, selects, casts and comparisons are free. The
body of a Scan counts as often as it runs, that of a Loop once unless its trips are constant; of an If both branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.graph.nodes import Graph, Node
from foretell.graph.ops.attrs import graph_attr, int_attr, ints_attr
from foretell.graph.optable import OPS
from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import definition_flops
from foretell.support.errors import ShapeTooComplex


@dataclass(frozen=True, slots=True)
class NodeFlops:
    """A node, those around it outermost first, and its operations.

    None if it has no definition to count in, or if the expression would be too complicated.
    """

    node: Node
    parents: tuple[Node, ...]
    flops: Dim | None
    has_known_trips: bool
    """Whether it is known how often its subgraphs run; where it is not, they count once."""


def count_flops(graph: Graph, times: Dim = 1, parents: tuple[Node, ...] = ()) -> Iterator[NodeFlops]:
    """Every node of the graph and its subgraphs."""
    for node in graph.nodes:
        trips = _trips(node, graph)
        yield NodeFlops(node, parents, _try_flops(node, times), trips is not None)
        for subgraph in node.subgraphs:
            yield from count_flops(subgraph, times if trips is None else expr.mul(times, trips), (*parents, node))


def node_flops(node: Node) -> Dim | None:
    """One run of one node without its subgraphs."""
    define = OPS[node.op].define
    if define is None:
        return None if node.op == "Onnx" else 0
    return definition_flops(define(tuple(None if value is None else value.type for value in node.inputs), node.attrs))


def _try_flops(node: Node, times: Dim) -> Dim | None:
    try:
        flops = node_flops(node)
        return None if flops is None else expr.mul(times, flops)
    except ShapeTooComplex:
        return None


def _trips(node: Node, graph: Graph) -> Dim | None:
    """How often the node's subgraphs run each, where that is known."""
    match node.op:
        case "Scan":
            sequence = node.inputs[int_attr(node.attrs, "states")]
            assert sequence is not None
            return sequence.shape[ints_attr(node.attrs, "axes")[0]]
        case "Loop":
            return _loop_trips(node, graph)
        case _:
            return None if node.subgraphs else 1


def _loop_trips(node: Node, graph: Graph) -> int | None:
    """The constant number of trips of a Loop whose condition never ends it."""
    limit = None if node.inputs[0] is None else graph.constants.get(node.inputs[0])
    if limit is None or node.inputs[1] is not None:
        return None
    body = graph_attr(node.attrs, "body")
    goes_on = body.outputs[0] == body.inputs[1] or bool(np.all(body.constants.get(body.outputs[0], False)))
    return max(0, int(limit.reshape(-1)[0])) if goes_on else None


def try_total(numbers: Sequence[Dim]) -> Dim | None:
    """The sum, or None if it would be too complicated an expression."""
    result: Dim = 0
    try:
        for number in numbers:
            result = expr.add(result, number)
    except ShapeTooComplex:
        return None
    return result


def smallest(dims: Sequence[Dim]) -> dict[Sym, Dim]:
    """The smallest positive number that each symbol may stand for."""
    found = {symbol for dim in dims for symbol in expr.symbols(dim)}
    ordered = sorted(found, key=lambda symbol: symbol.name)
    return {sym: max(1, -(-sym.lo // sym.multiple_of) * sym.multiple_of, sym.multiple_of) for sym in ordered}
