"""Expressions that choose among cases by the value of an index, by what remains of one, or by where it lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from foretell.ir.expr import Op, Sym
from foretell.ir.tensor_expr import Apply, Axis, Cast, Index, Scalar, Select

MOST_CASES = 144
"""More are not worth loops of their own."""


@dataclass(frozen=True, slots=True)
class Cases:
    """Value v of an axis is of case (v // run) % count."""

    count: int
    run: int = 1

    def parts(self, extent: int) -> int:
        """One for each case, and for each value of what is left of a period."""
        return self.count if self.run > 1 else (self.count if extent >= self.count else 0) + extent % self.count


def cases_of(body: Scalar, axes: Sequence[Axis]) -> dict[Sym, Cases]:
    """The axes whose values choose among cases, and which is which.

    select(a == 0, ..., select(i % 2 == 0, ...)) for a < 2   ->   {a: Cases(2), i: Cases(2)}
    select(j // 8 == 0, ..., ...) for j < 16                 ->   {j: Cases(2, run=8)}

    None if an extent is not known, an axis is asked in two ways, or there are too many cases; not an axis of which only
    a few values are asked for.
    """
    asked: dict[Sym, dict[Cases, set[int]]] = {}
    for condition in conditions(body):
        found = _try_case(condition, axes)
        if found is not None:
            sym, cases, value = found
            asked.setdefault(sym, {}).setdefault(cases, set()).add(value)
    if any(len(ways) > 1 for ways in asked.values()):
        return {}
    whole = {sym: cases for sym, ways in asked.items() for cases in ways if len(ways[cases]) >= cases.count - 1}
    extents = {axis.sym: axis.extent for axis in axes if isinstance(axis.extent, int)}
    return whole if prod(cases.parts(extents[sym]) for sym, cases in whole.items()) <= MOST_CASES else {}


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


def _try_case(condition: Scalar, axes: Sequence[Axis]) -> tuple[Sym, Cases, int] | None:
    """The axis that an equality asks about, its cases, and the one that is asked for."""
    period = run = None
    match condition:
        case Apply("eq", (Index(Op("%", Sym() as sym, int() as period)), Index(int() as value))):
            pass
        case Apply("eq", (Index(Op("//", Sym() as sym, int() as run)), Index(int() as value))):
            pass
        case Apply("eq", (Index(Sym() as sym), Index(int() as value))):
            pass
        case _:
            return None
    extent = next((axis.extent for axis in axes if axis.sym == sym), None)
    if not isinstance(extent, int) or (run is not None and extent % run):
        return None
    return sym, Cases(extent if period is None else period) if run is None else Cases(extent // run, run), value
