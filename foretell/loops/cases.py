"""Expressions that choose among cases by the value of an index, or by what remains of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from foretell.ir.expr import Op, Sym
from foretell.ir.tensor_expr import Apply, Axis, Cast, Index, Scalar, Select

MOST_CASES = 144
"""More are not worth loops of their own."""


def case_periods(body: Scalar, axes: Sequence[Axis]) -> dict[Sym, int]:
    """The axes whose values choose among cases, one for each, and after how many values the cases of an axis repeat.

    select(a == 0, ..., select(i % 2 == 0, ...)) for a < 2   ->   {a: 2, i: 2}

    None if an extent is not known, an axis has two periods, or there are too many cases; not an axis of which only a
    few values are asked for.
    """
    asked: dict[Sym, dict[int, set[int]]] = {}
    for condition in conditions(body):
        found = _try_case(condition, axes)
        if found is not None:
            sym, period, value = found
            asked.setdefault(sym, {}).setdefault(period, set()).add(value)
    if any(len(periods) > 1 for periods in asked.values()):
        return {}
    whole = {sym: period for sym, periods in asked.items() for period in periods if len(periods[period]) >= period - 1}
    extents = {axis.sym: axis.extent for axis in axes if isinstance(axis.extent, int)}
    return whole if prod(_part_count(extents[sym], period) for sym, period in whole.items()) <= MOST_CASES else {}


def _part_count(extent: int, period: int) -> int:
    """One part for each value of a period, and of what is left."""
    return (period if extent >= period else 0) + extent % period


def conditions(scalar: Scalar) -> Iterator[Scalar]:
    """What the selections of an expression ask, each object once."""
    seen: set[int] = set()
    waiting = [scalar]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Apply):
            waiting += reversed(part.arguments)
        elif isinstance(part, Select):
            yield part.condition
            waiting += (part.otherwise, part.then)
        elif isinstance(part, Cast):
            waiting.append(part.value)


def _try_case(condition: Scalar, axes: Sequence[Axis]) -> tuple[Sym, int, int] | None:
    """The axis that an equality asks about, after how many values answers repeat (its extent if not), and for what."""
    match condition:
        case Apply("eq", (Index(Op("%", Sym() as sym, int() as period)), Index(int() as value))):
            pass
        case Apply("eq", (Index(Sym() as sym), Index(int() as value))):
            period = None
        case _:
            return None
    extent = next((axis.extent for axis in axes if axis.sym == sym), None)
    return (sym, extent if period is None else period, value) if isinstance(extent, int) else None
