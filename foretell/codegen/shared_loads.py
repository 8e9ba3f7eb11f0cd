"""In which order the steps of a short sum are written out, so that what rows have in common is in registers briefly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer, Load, Scalar, Source
from foretell.loops.axes import stride_along
from foretell.loops.nodes import Accumulate, For, Statement, loads_in


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """Loops that are written out together: values of their symbols, in the order of the code, and what is inside."""

    syms: tuple[Sym, ...]
    points: tuple[tuple[int, ...], ...]
    body: Statement


def try_shared_loads(loop: For) -> WrittenOut | None:
    """The loops of a short sum over a window, in the order of what they load.

    before: for u: for v: for r: acc[r] += x[r + u, v] * w[u, v]        all written out
    after:  for i: for v: for r, where u = i - r is in the window: acc[r] += x[i, v] * w[u, v]

    Each x is loaded once, and used by all rows at once: only sums and w stay in registers. Sums are added up in the
    order they were, to the last bit.

    declines when: loops are not written out, rows have nothing in common, or a sum would be added up in another order.
    """
    syms: list[Sym] = []
    extents: list[int] = []
    body: Statement = loop
    while isinstance(body, For) and body.kind == "unroll" and isinstance(body.extent, int):
        syms.append(body.sym)
        extents.append(body.extent)
        body = body.body
    inner = body.body if isinstance(body, For) and body.kind == "vector" else body
    if len(syms) < 2 or not isinstance(inner, Accumulate):
        return None
    sums = _strides(inner.buffer, inner.indices, syms)
    loads = [_strides(load.source, load.indices, syms) for load in loads_in(inner.value) if _is_far(load)]
    windows = [strides for strides in loads if strides and sums and _is_window(strides, sums, extents)]
    if sums is None or len(windows) != 1:
        return None
    points = tuple(product(*map(range, extents)))
    ordered = sorted(range(len(points)), key=lambda number: _place(points[number], windows[0]))
    last: dict[int, int] = {}
    for number in ordered:
        place = _place(points[number], sums)
        if number < last.get(place, -1):
            return None
        last[place] = number
    return WrittenOut(tuple(syms), tuple(points[number] for number in ordered), body)


def _is_far(load: Load) -> bool:
    return isinstance(load.source, Buffer) and load.source.scope != "register"


def _strides(buffer: Source, indices: Sequence[Dim | Scalar], syms: Sequence[Sym]) -> list[int] | None:
    """How far an access moves with each symbol; None where that is not known."""
    assert isinstance(buffer, Buffer)
    found = [stride_along(buffer, indices, sym) for sym in syms]
    known = [stride for stride in found if stride is not None]
    return known if len(known) == len(found) else None


def _is_window(strides: Sequence[int], sums: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether neighbouring rows of sums have elements of an operand in common."""
    moves = list(zip(strides, sums, extents, strict=True))
    rows = [stride for stride, of_sum, _ in moves if stride and of_sum]
    steps = [(stride, extent) for stride, of_sum, extent in moves if stride and not of_sum]
    return any(row % step == 0 and 0 < row // step < extent for row in rows for step, extent in steps)


def _place(point: Sequence[int], strides: Sequence[int]) -> int:
    return sum(number * stride for number, stride in zip(point, strides, strict=True))
