from __future__ import annotations

from dataclasses import dataclass

from foretell.graph.evaluate import evaluate_node
from foretell.graph.nodes import Array, Attr, Graph, Node, Value
from foretell.graph.ops.control import RANDOM_OPERATORS
from foretell.graph.optable import OPS
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.support.errors import EvaluationError
from foretell.support.limits import DEFAULT_LIMITS, Limits

MAX_NODE_POINTS = 1 << 26
"""Points of all loops of one node that is computed at compile time."""
MAX_POINTS = 1 << 28
"""The same for one run of the pass."""
CHEAP_BYTES = 64 << 10
"""Tensors above this size that an operator makes from almost nothing are left to it."""


def fold_constants(graph: Graph, limits: Limits = DEFAULT_LIMITS) -> Graph:
    """Compute at compile time what depends on constants alone.

    before: y = x + Exp(2.0)
    after:  y = x + 7.389

    Bounded, as a few bytes of model can ask for gigabytes.
    declines when: symbolic dimensions are involved; the result has more bytes than `limits.constant_bytes`, or
    constants would grow by more than `limits.folded_bytes`; there are too many points to compute; a Broadcast or
    Iota makes more than 64 KiB; the operator is random, runs a subgraph, or fails.
    """
    budget = _Budget(limits.folded_bytes, MAX_POINTS)

    def fold(node: Node, rewriter: Rewriter) -> list[Value] | None:
        cost = _cost(node, rewriter, limits) if _is_constant(node, rewriter) else None
        if cost is None or not budget.allows(cost):
            return None
        arrays = _try_evaluate(node, rewriter)
        if arrays is None:
            return None
        budget.spend(cost)
        _release_inputs(node, rewriter)
        return [rewriter.constant(array, value.name) for array, value in zip(arrays, node.outputs, strict=True)]

    return rewrite(graph, fold)


@dataclass(frozen=True, slots=True)
class _Cost:
    """Bytes that constants grow by, and points that are computed."""

    growth_bytes: int
    points: int


@dataclass(slots=True)
class _Budget:
    """What one run may still spend."""

    growth_bytes: int
    points: int

    def allows(self, cost: _Cost) -> bool:
        return cost.growth_bytes <= self.growth_bytes and cost.points <= min(self.points, MAX_NODE_POINTS)

    def spend(self, cost: _Cost) -> None:
        self.growth_bytes -= max(0, cost.growth_bytes)
        self.points -= cost.points


def _is_constant(node: Node, rewriter: Rewriter) -> bool:
    if node.op in ("If", "Loop", "Scan") or node.attrs.get("op_type") in RANDOM_OPERATORS:
        return False
    if any(_is_symbolic(attr) for attr in node.attrs.values()):
        return False
    made_from_nothing = not node.present_inputs and node.op not in ("Iota", "Dims")
    return not made_from_nothing and all(value in rewriter.constants for value in node.present_inputs)


def _is_symbolic(attr: Attr) -> bool:
    return isinstance(attr, expr.Expr) or (isinstance(attr, tuple) and any(_is_symbolic(item) for item in attr))


def _cost(node: Node, rewriter: Rewriter, limits: Limits) -> _Cost | None:
    """What folding the node takes, or None if that is not known or more than any budget allows."""
    sizes = [value.type.elements * value.dtype.itemsize for value in node.outputs]
    result_bytes = sum(size for size in sizes if isinstance(size, int))
    points = _points(node)
    if not all(isinstance(size, int) for size in sizes) or not isinstance(points, int):
        return None
    if result_bytes > (CHEAP_BYTES if node.op in ("Broadcast", "Iota") else limits.constant_bytes):
        return None
    freed = sum(rewriter.constants[value].nbytes for value in _dying_inputs(node, rewriter))
    return _Cost(result_bytes - freed, points)


def _points(node: Node) -> Dim:
    """Points of all loops of a node's definition; of a reference operator only the elements it returns are known."""
    define = OPS[node.op].define
    if define is None:
        return sum(value.type.elements if isinstance(value.type.elements, int) else 0 for value in node.outputs)
    definition = define(tuple(None if value is None else value.type for value in node.inputs), node.attrs)
    total: Dim = 0
    for stage in definition.stages:
        total = total + expr.product(tuple(axis.extent for axis in stage.axes + stage.reduction_axes))
    return total


def _dying_inputs(node: Node, rewriter: Rewriter) -> set[Value]:
    """Constants that only this node reads."""
    return {value for value in node.present_inputs if rewriter.use_count(value) == node.inputs.count(value)}


def _release_inputs(node: Node, rewriter: Rewriter) -> None:
    """Let go of what the result replaces now, so that a chain of large constants never exists at once."""
    for value in _dying_inputs(node, rewriter):
        del rewriter.constants[value]


def _try_evaluate(node: Node, rewriter: Rewriter) -> list[Array] | None:
    try:
        return evaluate_node(node, [rewriter.array(value) for value in node.inputs], {})
    except EvaluationError:
        return None
