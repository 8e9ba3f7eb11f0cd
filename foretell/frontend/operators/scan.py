"""Scans written in Python: a loop over one axis of some sequences, with states that each step passes to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foretell.frontend.onnx_node import OnnxNode, normal_axis
from foretell.frontend.operators.importer import Importer
from foretell.graph.build import Builder
from foretell.graph.nodes import Value
from foretell.ir.tensor_expr import TensorType


@dataclass(frozen=True, slots=True)
class Step:
    """What one iteration sees: the body under construction and its own values for everything passed in."""

    build: Builder
    states: tuple[Value, ...]
    slices: tuple[Value, ...]
    captured: tuple[Value, ...]


Advance: TypeAlias = Callable[[Step], tuple[Sequence[Value], Sequence[Value]]]
"""Adds one iteration to the body; returns the next states, and the rows that are stacked along the scanned axis."""


def scan(
    build: Builder,
    advance: Advance,
    states: Sequence[Value],
    sequences: Sequence[Value],
    captured: Sequence[Value] = (),
    axis: int = 0,
    backward: bool = False,
) -> tuple[Value, ...]:
    """The last states, then the stacked rows, of a loop over `axis` of every sequence.

    Backward, the loop starts at the end, and row i still belongs to element i. A constant that is captured becomes
    a constant of the body.
    """
    body = Builder("body")
    body.location = build.location
    state_inputs = tuple(body.input("state", value.type) for value in states)
    slices = tuple(body.input("slice", _without(value.type, axis)) for value in sequences)
    inner = tuple(_captured(build, body, value) for value in captured)
    after, rows = advance(Step(body, state_inputs, slices, inner))
    assert [value.type for value in after] == [value.type for value in states], "a state changes its type"
    outputs = (*after, *rows)
    attrs = {
        "body": body.finish(outputs, [f"output_{number}" for number in range(len(outputs))]),
        "states": len(states),
        "axes": (axis,) * len(sequences),
        "directions": (int(backward),) * len(sequences),
        "output_axes": (axis,) * len(rows),
        "output_directions": (int(backward),) * len(rows),
    }
    length = sequences[0].shape[axis]
    types = [TensorType(row.dtype, (*row.shape[:axis], length, *row.shape[axis:])) for row in rows]
    outer = [value for value in captured if value not in build.constants]
    return build.typed("Scan", (*states, *sequences, *outer), attrs, [*(value.type for value in states), *types])


def _without(type: TensorType, axis: int) -> TensorType:
    return TensorType(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))


def _captured(build: Builder, body: Builder, value: Value) -> Value:
    array = build.constants.get(value)
    return body.input("captured", value.type) if array is None else body.constant(array, "captured")


def _cumulative(op: str, identity: int) -> Importer:
    """A running sum or product; an exclusive one stops before its own element. Narrow floats round once, at the end."""

    def apply(node: OnnxNode) -> Value | None:
        x, axis = node.input(0), node.dims(1)
        if axis is None or len(axis) != 1 or not isinstance(axis[0], int):
            return None
        position, build = normal_axis(axis[0], x.type.rank), node.build
        exclusive, backward = bool(node.int("exclusive", 0)), bool(node.int("reverse", 0))
        wide = x.dtype.compute

        def advance(step: Step) -> tuple[Sequence[Value], Sequence[Value]]:
            (before,), (element,) = step.states, step.slices
            after = step.build.op(op, before, step.build.cast(element, wide))
            return [after], [step.build.cast(before if exclusive else after, x.dtype)]

        start = build.op("Broadcast", build.scalar(identity, wide), shape=_without(x.type, position).shape)
        return scan(build, advance, [start], [x], axis=position, backward=backward)[1]

    return apply


SCAN_IMPORTERS: dict[str, Importer] = {"CumSum": _cumulative("Add", 0), "CumProd": _cumulative("Mul", 1)}
