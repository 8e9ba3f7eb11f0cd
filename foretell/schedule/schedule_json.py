"""Schedules as JSON: `from_json(to_json(schedule)) == schedule`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from foretell.schedule.pack import Part
from foretell.schedule.steps import (
    BlockSum,
    Copy,
    Cut,
    Hold,
    Pack,
    Parallelise,
    Reorder,
    Schedule,
    Step,
    Tile,
    Unroll,
    Vectorise,
)

STEPS: dict[str, type] = {
    step.__name__: step for step in (Tile, Cut, Reorder, Hold, BlockSum, Vectorise, Unroll, Parallelise, Pack, Copy)
}


def to_json(schedule: Schedule) -> list[dict[str, Any]]:
    """One object for each step, `step` being its name."""
    return [{"step": type(step).__name__, **asdict(step)} for step in schedule]


def from_json(steps: Sequence[Mapping[str, Any]]) -> Schedule:
    """The schedule that `to_json` wrote; a KeyError or TypeError for anything else."""
    return tuple(_step(step) for step in steps)


def _step(stored: Mapping[str, Any]) -> Step:
    values = {name: _value(name, value) for name, value in stored.items() if name != "step"}
    return STEPS[stored["step"]](**values)


def _value(name: str, value: Any) -> Any:
    if name == "parts":
        return tuple(Part(**part) for part in value)
    return tuple(value) if isinstance(value, (list, tuple)) else value
