"""From graph nodes to tensor stages: definitions with their operands named, and cheap ones inlined.

before: t[i] = exp(a[i]);  y[i] = t[i] + b[i]
after:  y[i] = exp(a[i]) + b[i]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from foretell.graph.nodes import Node, Value
from foretell.graph.optable import OPS
from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Buffer,
    Cast,
    Const,
    Definition,
    Index,
    Load,
    Local,
    Operand,
    Scalar,
    Select,
    Source,
    Stage,
    axis_over,
)
from foretell.loops.cases import Cases, cases_of, conditions
from foretell.loops.nodes import distinct_loads, loads_in, map_loads, offset, substitute_scalar

CHEAP_COST = 2.0
"""A body that costs at most this may be computed again for a second reader."""
MOST_SHARED = 1000.0
"""A body with cases that costs at most this is computed where one reader needs it, and once if that needs it several
times: expressions must not grow forever. Without cases, stages share loops anyway."""
OPERATION_COSTS = {
    **dict.fromkeys(("exp", "expm1"), 11.0),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sigmoid", "normal_cdf", "fmod", "mod"), 19.0),
    **dict.fromkeys(("tanh", "erf", "sinh", "cosh"), 25.0),
    **dict.fromkeys(("log", "log1p", "asinh", "acosh", "atanh", "pow"), 35.0),
    **dict.fromkeys(("div", "sqrt", "reciprocal"), 9.0),
}
"""Cost of one operation relative to an addition, 1 for what is not listed; after a sum of products, on Ice Lake."""


@dataclass(frozen=True)
class TensorStage:
    """A stage that fills a buffer; its loads name buffers, and its axes are its own."""

    buffer: Buffer
    axes: tuple[Axis, ...]
    body: Scalar
    reduction: str | None
    reduction_axes: tuple[Axis, ...]
    place: tuple[Dim, ...]
    """Where the element of a point is stored: the axes themselves, unless the stage fills a part of its buffer."""
    location: str

    @cached_property
    def loads(self) -> list[Load]:
        """What the body reads, each object once."""
        return distinct_loads([self.body])

    @property
    def points(self) -> Dim:
        return expr.product(tuple(axis.extent for axis in self.axes + self.reduction_axes))

    @property
    def is_whole(self) -> bool:
        """Whether each point is stored at its own place: not in a part of a buffer."""
        return self.place == tuple(axis.sym for axis in self.axes)

    def __str__(self) -> str:
        stage = Stage(str(self.buffer), self.buffer.dtype, self.axes, self.body, self.reduction, self.reduction_axes)
        return str(stage)


def flatten(
    nodes: Sequence[Node], buffer_of: Callable[[Value], Buffer], numbers: Mapping[str, float] | None = None
) -> list[TensorStage]:
    """The stages of all nodes in order, over the buffers of their values; numbers take the place of some, by name.

    before: y[i] = min(max(x[i], low[]), high[])
    after:  y[i] = min(max(x[i], 0.0), 6.0)          each one instruction, because neither number is NaN
    """
    stages: list[TensorStage] = []
    known: dict[object, Definition] = {}
    for node in nodes:
        define, types = OPS[node.op].define, tuple(None if value is None else value.type for value in node.inputs)
        assert define is not None, f"{node.op} has no definition"
        # Attributes that are equal may be of different types, or zeros.
        key = node.op, types, tuple((name, value, repr(value)) for name, value in node.attrs.items())
        if key not in known:
            known[key] = define(types, node.attrs)
        definition = known[key]
        filled: list[Buffer] = []
        for number, stage in enumerate(definition.stages):
            if number in definition.outputs:
                buffer = buffer_of(node.outputs[definition.outputs.index(number)])
            else:
                buffer = Buffer(f"{node.outputs[0].name}.{number}.{stage.name}", stage.dtype, stage.type.shape)
            stages.append(_named(stage, buffer, node, filled, buffer_of, numbers or {}, len(stages)))
            filled.append(buffer)
    return stages


def _named(
    stage: Stage,
    buffer: Buffer,
    node: Node,
    filled: Sequence[Buffer],
    buffer_of: Callable[[Value], Buffer],
    numbers: Mapping[str, float],
    number: int,
) -> TensorStage:
    """One stage with operands replaced by buffers or numbers and axes renamed, so that no two stages share one."""
    fresh = {
        axis.sym: replace(axis.sym, name=f"{axis.sym.name}.{number}") for axis in stage.axes + stage.reduction_axes
    }

    def source(old: Source) -> Buffer:
        assert not isinstance(old, Buffer)
        if isinstance(old, Local):
            return filled[old.index]
        value = node.inputs[old.index]
        assert value is not None
        return buffer_of(value)

    body = _with_sources(substitute_scalar(stage.body, dict(fresh)), source, numbers)
    axes, inner = (
        tuple(Axis(fresh[axis.sym], axis.extent) for axis in some) for some in (stage.axes, stage.reduction_axes)
    )
    place = tuple(axis.sym for axis in axes)
    return TensorStage(buffer, axes, body, stage.reduction, inner, place, node.location)


def _with_sources(scalar: Scalar, source: Callable[[Source], Buffer], numbers: Mapping[str, float]) -> Scalar:
    def keep(load: Load) -> Scalar:
        if not isinstance(load.source, Operand | Local):
            return load
        buffer = source(load.source)
        number = numbers.get(buffer.name)
        return Load(buffer, load.indices, load.dtype) if number is None else Const(number, load.dtype)

    return map_loads(scalar, keep)


def inline(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> list[TensorStage]:
    """Replace loads of cheap or once-read stages by their bodies; stages of `kept` buffers stay.

    A stage is inlined if it has no reduction and its body is computed no more often than before, or costs next to
    nothing. Values in narrow types are rounded where they would have been stored.
    """
    readers = _readers(stages)
    inlined: dict[Buffer, TensorStage] = {}
    result: list[TensorStage] = []
    for stage in stages:
        body = map_loads(stage.body, lambda load: _body_at(load, inlined))
        stage = replace(stage, body=body)
        if stage.buffer not in kept and is_inlinable(stage, readers.get(stage.buffer, ())):
            inlined[stage.buffer] = stage
        else:
            result.append(stage)
    return result


def _readers(stages: Sequence[TensorStage]) -> Mapping[Buffer, list[tuple[TensorStage, Load]]]:
    readers: dict[Buffer, list[tuple[TensorStage, Load]]] = {}
    for stage in stages:
        for load in loads_in(stage.body):
            assert isinstance(load.source, Buffer)
            readers.setdefault(load.source, []).append((stage, load))
    return readers


def is_inlinable(stage: TensorStage, reads: Sequence[tuple[TensorStage, Load]]) -> bool:
    """Whether computing the stage where it is read does no more work than storing and loading it."""
    if stage.reduction is not None or any(not _has_plain_indices(load) for _, load in reads):
        return False
    cased = cases_of(stage.body, stage.axes)
    if not all(_keeps_cases(stage, cased, reader, load) for reader, load in reads):
        return False
    elements, cost = stage.points, body_cost(stage.body)
    if cost == 0 and keeps_runs(stage):
        return True
    if not all(reader.points == elements for reader, _ in reads):
        return False
    is_shared = bool(cased) and cost <= MOST_SHARED and len({(id(reader), load) for reader, load in reads}) == 1
    return len(reads) == 1 or cost <= CHEAP_COST or is_shared


def _keeps_cases(stage: TensorStage, cased: Mapping[Sym, Cases], reader: TensorStage, load: Load) -> bool:
    """Whether a reader can be cut where a stage would be: between cases that the values of an axis choose among."""
    if not cased:
        return True
    indices = [index for index, axis in zip(load.indices, stage.axes, strict=True) if axis.sym in cased]
    return reader.reduction is None and all(index in [axis.sym for axis in reader.axes] for index in indices)


def body_cost(scalar: Scalar, known: dict[int, float] | None = None) -> float:
    """What one evaluation costs, in additions; loads and moves are free. `known` has parts, by identity."""
    known = {} if known is None else known
    if isinstance(scalar, Apply):
        if id(scalar) not in known:
            inside = sum([body_cost(argument, known) for argument in scalar.arguments])
            known[id(scalar)] = OPERATION_COSTS.get(scalar.op, 1.0) + inside
        return known[id(scalar)]
    if isinstance(scalar, Select):
        return 1.0 + sum([body_cost(part, known) for part in (scalar.condition, scalar.then, scalar.otherwise)])
    return body_cost(scalar.value, known) if isinstance(scalar, Cast) else 0.0


def cost_together(scalars: Iterable[Scalar]) -> float:
    """The same of several expressions, whose equal parts are computed once."""
    found: dict[Scalar, float] = {}
    waiting = list(scalars)
    while waiting:
        scalar = waiting.pop()
        if scalar in found:
            continue
        match scalar:
            case Apply(op, arguments):
                found[scalar] = OPERATION_COSTS.get(op, 1.0)
                waiting += arguments
            case Select(condition, then, otherwise):
                found[scalar] = 1.0
                waiting += (condition, then, otherwise)
            case Cast(value):
                waiting.append(value)
            case Const() | Index() | Load():
                pass
    return sum(found.values())


def is_sum_of_products(stage: TensorStage) -> bool:
    """Whether a stage sums up something made from two loads, one of which serves many points of the output.

    This is the work that schedules are made for: a matrix product is, the squares of a layer norm are not.
    """
    if stage.reduction != "sum":
        return False
    loads = list(loads_in(stage.body))
    return len(loads) > 1 and any(_is_reused(load, stage) for load in loads)


def _is_reused(load: Load, stage: TensorStage) -> bool:
    plain = [index for index in load.indices if isinstance(index, (int, expr.Expr))]
    used = frozenset[Sym]().union(*(expr.symbols(index) for index in plain))
    is_reduced = any(axis.sym in used for axis in stage.reduction_axes)
    return is_reduced and any(axis.sym not in used and axis.extent != 1 for axis in stage.axes)


def keeps_runs(stage: TensorStage) -> bool:
    """Whether neighbours stay neighbours: the stage only moves elements, and not those of its last axis apart."""
    last = next((axis for axis in reversed(stage.axes) if axis.extent != 1), None)
    if last is None or not isinstance(stage.body, Load) or not isinstance(stage.body.source, Buffer):
        return not isinstance(stage.body, Load)
    if not _has_plain_indices(stage.body):
        return True
    indices = tuple(index for index in stage.body.indices if isinstance(index, (int, expr.Expr)))
    linear = expr.try_linear(offset(stage.body.source.shape, indices), frozenset({last.sym}))
    return linear is not None and linear[0].get(last.sym, 0) in (0, 1)


def _has_plain_indices(load: Load) -> bool:
    return all(isinstance(index, (int, expr.Expr)) for index in load.indices)


def _body_at(load: Load, inlined: Mapping[Buffer, TensorStage]) -> Scalar:
    assert isinstance(load.source, Buffer)
    stage = inlined.get(load.source)
    if stage is None:
        return load
    bindings: dict[Sym, Dim] = {}
    for axis, index in zip(stage.axes, load.indices, strict=True):
        assert isinstance(index, (int, expr.Expr))
        bindings[axis.sym] = index
    body = substitute_scalar(stage.body, bindings)
    narrow = stage.buffer.dtype
    return Cast(body, narrow, saturate=False) if narrow.compute != narrow else body


MAX_PARTS = 12
"""A stage is cut into at most this many parts."""
THIN_PART = 16
"""A part thinner than this fraction of its axis, such as the border of an image, is not worth a loop of its own, unless
a stage transposes: blocks that ask for each element take twice as long."""


def split_at_conditions(stages: Sequence[TensorStage]) -> list[TensorStage]:
    """Cut the domain of a stage where a condition on one axis changes, so that no part needs to ask.

    before: y[i < 10] = select(i < 4, a[i], b[i - 4])
    after:  y[i < 4] = a[i];   y[i + 4 | i < 6] = b[i]
    """
    result: list[TensorStage] = []
    for stage in stages:
        parts = _parts(stage, MAX_PARTS) if stage.reduction is None else None
        result += parts or [stage]
    return result


def _parts(stage: TensorStage, most: int) -> list[TensorStage] | None:
    """The stage cut as often as it takes, or None if that makes more than `most` parts."""
    cut = _try_cut(stage)
    if cut is None:
        return [stage]
    parts: list[TensorStage] = []
    for part in cut:
        if any(axis.extent == 0 for axis in part.axes):
            continue
        smaller = _parts(part, most - len(parts))
        if smaller is None or len(parts) + len(smaller) > most:
            return None
        parts += smaller
    return parts


def _try_cut(stage: TensorStage) -> tuple[TensorStage, TensorStage] | None:
    """Two parts, below and above the place where the first condition on a single axis changes."""
    for condition in conditions(stage.body):
        found = _threshold(condition, stage.axes)
        if found is not None:
            number, place, holds_below = found
            axis = stage.axes[number]
            assert isinstance(axis.extent, int)
            if 0 < min(place, axis.extent - place) * THIN_PART < axis.extent and not _is_transposing(stage):
                continue
            below = _restricted(stage, number, 0, place, condition, holds_below)
            above = _restricted(stage, number, place, axis.extent - place, condition, not holds_below)
            return below, above
    return None


def _threshold(condition: Scalar, axes: tuple[Axis, ...]) -> tuple[int, int, bool] | None:
    """(axis, first index at which the condition changes, whether it holds below), for i + c < d and i + c >= d."""
    match condition:
        case Apply(("lt" | "ge") as op, (Index(left), Index(right))):
            difference = expr.add(left, expr.mul(right, -1))
        case _:
            return None
    linear = expr.try_linear(difference, frozenset(axis.sym for axis in axes))
    if linear is None or len(linear[0]) != 1 or not isinstance(linear[1], int):
        return None
    ((sym, coefficient),) = linear[0].items()
    number = next(number for number, axis in enumerate(axes) if axis.sym == sym)
    extent = axes[number].extent
    if coefficient != 1 or not isinstance(extent, int):
        return None
    place = min(max(0, -linear[1]), extent)
    return number, place, op == "lt"


def _is_transposing(stage: TensorStage) -> bool:
    """Whether what lies side by side in what a stage fills does not in all that it reads."""
    last = stage.place[-1] if stage.place else 0
    return isinstance(last, Sym) and any(last not in _symbols(load.indices[-1]) for load in stage.loads if load.indices)


def _symbols(index: Dim | Scalar) -> frozenset[Sym]:
    return expr.symbols(index) if isinstance(index, (int, expr.Expr)) else frozenset()


def _restricted(
    stage: TensorStage, number: int, start: int, extent: Dim, condition: Scalar, holds: bool
) -> TensorStage:
    """The stage on a range of one axis, where the condition is known."""
    axis = stage.axes[number]
    fresh = axis_over(extent, f"{axis.sym.name}.{start}")
    bindings: dict[Sym, Dim] = {axis.sym: fresh.sym + start}
    body = substitute_scalar(_decided(stage.body, condition, holds), bindings)
    place = tuple(expr.substitute(index, bindings) for index in stage.place)
    axes = (*stage.axes[:number], fresh, *stage.axes[number + 1 :])
    return replace(stage, axes=axes, body=body, place=place)


def _decided(scalar: Scalar, condition: Scalar, holds: bool) -> Scalar:
    match scalar:
        case Select(asked, then, otherwise):
            if asked == condition:
                return _decided(then if holds else otherwise, condition, holds)
            parts = (_decided(part, condition, holds) for part in (asked, then, otherwise))
            return Select(*parts)
        case Apply(op, arguments):
            return Apply(op, tuple(_decided(argument, condition, holds) for argument in arguments))
        case Cast(value, dtype, saturate):
            return Cast(_decided(value, condition, holds), dtype, saturate)
        case _:
            return scalar
