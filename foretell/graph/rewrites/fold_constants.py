from __future__ import annotations

from dataclasses import dataclass

from foretell.graph.evaluate import evaluate_node
from foretell.graph.nodes import Array, Attr, Graph, Node, Value
from foretell.graph.optable import OPS
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Apply, Stage, scalars
from foretell.support.errors import EvaluationError
from foretell.support.limits import DEFAULT_LIMITS, Limits

MAX_NODE_WORK = 1 << 27
"""Points of all loops of one node that is computed at compile time, each times the operations there."""
MAX_WORK = 1 << 30
"""The same for one model: some seconds."""
MAX_BOX_POINTS = 1 << 24
"""Points that the evaluator looks at together, and so holds in memory."""
SLOW_OPERATIONS = {"erf": 64, "normal_cdf": 64}
"""Operations for which the evaluator has no vector code count as many."""
CHEAP_BYTES = 64 << 10
"""Tensors above this size that an operator makes from almost nothing are left to it."""


@dataclass(slots=True)
class FoldingBudget:
    """What folding may still add to a model, and how long it may take."""

    growth_bytes: int
    work: int = MAX_WORK

    def allows(self, cost: _Cost) -> bool:
        return cost.growth_bytes <= self.growth_bytes and cost.work <= min(self.work, MAX_NODE_WORK)

    def spend(self, cost: _Cost) -> None:
        self.growth_bytes -= max(0, cost.growth_bytes)
        self.work -= cost.work


@dataclass(frozen=True, slots=True)
class _Cost:
    """Bytes that constants grow by, and operations to compute them."""

    growth_bytes: int
    work: int


def fold_constants(graph: Graph, limits: Limits = DEFAULT_LIMITS, budget: FoldingBudget | None = None) -> Graph:
    """Compute at compile time what depends on constants alone.

    before: y = x + Exp(2.0)
    after:  y = x + 7.389

    Bounded, as a few bytes of model can ask for gigabytes.
    declines when: symbolic dimensions are involved; the result has more bytes than `limits.constant_bytes`, or
    constants would grow by more than `limits.folded_bytes`; there are too many points to compute; a Broadcast or
    Iota makes more than 64 KiB; the operator runs a subgraph or is run by the reference, of which nothing tells how
    long it takes; or it fails. `budget` is what earlier runs on the same model left, by default all of it.
    """
    left = FoldingBudget(limits.folded_bytes) if budget is None else budget

    def fold(node: Node, rewriter: Rewriter) -> list[Value] | None:
        cost = _cost(node, rewriter, limits) if _is_constant(node, rewriter) else None
        if cost is None or not left.allows(cost):
            return None
        arrays = _try_evaluate(node, rewriter)
        if arrays is None:
            return None
        left.spend(cost)
        _release_inputs(node, rewriter)
        return [rewriter.constant(array, value.name) for array, value in zip(arrays, node.outputs, strict=True)]

    return rewrite(graph, fold)


def _is_constant(node: Node, rewriter: Rewriter) -> bool:
    if OPS[node.op].define is None:
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
    work = _work(node)
    if not all(isinstance(size, int) for size in sizes) or not isinstance(work, int):
        return None
    if result_bytes > (CHEAP_BYTES if node.op in ("Broadcast", "Iota") else limits.constant_bytes):
        return None
    freed = sum(rewriter.constants[value].nbytes for value in _dying_inputs(node, rewriter))
    return _Cost(result_bytes - freed, work)


def _work(node: Node) -> Dim | None:
    """Operations of all loops of a node's definition; None if the evaluator would have to hold too much at once."""
    define = OPS[node.op].define
    assert define is not None
    definition = define(tuple(None if value is None else value.type for value in node.inputs), node.attrs)
    if any(_is_too_large(stage) for stage in definition.stages):
        return None
    return sum((_stage_work(stage) for stage in definition.stages), start=0)


def _is_too_large(stage: Stage) -> bool:
    """Whether one step along the first axis, the least that the evaluator computes at once, is too much."""
    box = expr.product(tuple(axis.extent for axis in (stage.axes[1:] + stage.reduction_axes)))
    return not isinstance(box, int) or box > MAX_BOX_POINTS


def _stage_work(stage: Stage) -> Dim:
    points = expr.product(tuple(axis.extent for axis in stage.axes + stage.reduction_axes))
    return points * sum(
        SLOW_OPERATIONS.get(scalar.op, 1) if isinstance(scalar, Apply) else 1 for scalar in scalars(stage.body)
    )


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
