"""From graph nodes to tensor stages: definitions with their operands named, and cheap ones inlined.

    before: t[i] = exp(a[i]);  y[i] = t[i] + b[i]
    after:  y[i] = exp(a[i]) + b[i]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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
    Index,
    Load,
    Local,
    Operand,
    Scalar,
    Select,
    Source,
    Stage,
    operation_count,
)
from foretell.loops.nodes import loads_in, substitute_scalar

CHEAP_OPERATIONS = 2
"""A body of at most this many operations may be computed again for a second reader."""


@dataclass(frozen=True, slots=True)
class TensorStage:
    """A stage that fills a buffer; its loads name buffers, and its axes are its own."""

    buffer: Buffer
    axes: tuple[Axis, ...]
    body: Scalar
    reduction: str | None
    reduction_axes: tuple[Axis, ...]
    location: str

    @property
    def points(self) -> Dim:
        return expr.product(tuple(axis.extent for axis in self.axes + self.reduction_axes))

    def __str__(self) -> str:
        stage = Stage(str(self.buffer), self.buffer.dtype, self.axes, self.body, self.reduction, self.reduction_axes)
        return str(stage)


def flatten(nodes: Sequence[Node], buffer_of: Callable[[Value], Buffer]) -> list[TensorStage]:
    """The stages of all nodes in order, over the buffers of their values."""
    stages: list[TensorStage] = []
    for node in nodes:
        define = OPS[node.op].define
        assert define is not None, f"{node.op} has no definition"
        definition = define(tuple(None if value is None else value.type for value in node.inputs), node.attrs)
        filled: list[Buffer] = []
        for number, stage in enumerate(definition.stages):
            if number in definition.outputs:
                buffer = buffer_of(node.outputs[definition.outputs.index(number)])
            else:
                buffer = Buffer(f"{node.outputs[0].name}.{stage.name}", stage.dtype, stage.type.shape)
            stages.append(_named(stage, buffer, node, filled, buffer_of, len(stages)))
            filled.append(buffer)
    return stages


def _named(
    stage: Stage,
    buffer: Buffer,
    node: Node,
    filled: Sequence[Buffer],
    buffer_of: Callable[[Value], Buffer],
    number: int,
) -> TensorStage:
    """One stage with operands replaced by buffers and axes renamed, so that no two stages share one."""
    fresh = {axis.sym: replace(axis.sym, name=f"{axis.sym.name}.{number}") for axis in stage.axes + stage.reduction_axes}

    def source(old: Source) -> Buffer:
        assert not isinstance(old, Buffer)
        if isinstance(old, Local):
            return filled[old.index]
        value = node.inputs[old.index]
        assert value is not None
        return buffer_of(value)

    body = _with_sources(substitute_scalar(stage.body, dict(fresh)), source)
    axes, inner = (
        tuple(Axis(fresh[axis.sym], axis.extent) for axis in some) for some in (stage.axes, stage.reduction_axes)
    )
    return TensorStage(buffer, axes, body, stage.reduction, inner, node.location)


def _with_sources(scalar: Scalar, source: Callable[[Source], Buffer]) -> Scalar:
    def keep(load: Load) -> Scalar:
        return Load(source(load.source), load.indices, load.dtype) if isinstance(load.source, Operand | Local) else load

    return map_loads(scalar, keep)


def map_loads(scalar: Scalar, function: Callable[[Load], Scalar]) -> Scalar:
    """The scalar with every load replaced, innermost first."""
    match scalar:
        case Const() | Index():
            return scalar
        case Load(source, indices, dtype):
            mapped = tuple(
                index if isinstance(index, (int, expr.Expr)) else map_loads(index, function) for index in indices
            )
            return function(Load(source, mapped, dtype))
        case Apply(op, arguments):
            return Apply(op, tuple(map_loads(argument, function) for argument in arguments))
        case Select(condition, then, otherwise):
            parts = (map_loads(part, function) for part in (condition, then, otherwise))
            return Select(*parts)
        case Cast(value, dtype, saturate):
            return Cast(map_loads(value, function), dtype, saturate)


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
    operations = operation_count(stage.body)
    if operations == 0:
        return True
    elements = stage.points
    once = len(reads) == 1 and reads[0][0].points == elements
    return once or (operations <= CHEAP_OPERATIONS and all(reader.points == elements for reader, _ in reads))


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
