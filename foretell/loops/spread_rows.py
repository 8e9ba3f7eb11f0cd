"""What is read or written side by side, at different places of the first cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, prod

from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Buffer, Load
from foretell.loops.cases import cases_of
from foretell.loops.nodes import distinct_loads, map_loads
from foretell.loops.place_lines import LINE_BYTES
from foretell.loops.stages import TensorStage, is_sum_of_products

FEW_PLACES = 2048
"""Rows at a distance of a multiple of this lie at two places of a way of 4096 bytes, or at one: of the rows of a tile,
more than there are ways push each other out."""
WAY_BYTES = 4096
"""Of the first cache: as far apart, lines go to the same place."""
MOST_AT_A_PLACE = 6
"""Slabs that are written or read side by side, of 8 ways or more, some of which others need."""
LEAST_ROW = 8 * LINE_BYTES
"""Shorter ones are not widened, nor are axes with fewer elements than there are lines in this."""


def spread_rows(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> list[TensorStage]:
    """Leave some room behind rows, or behind slabs, that would get in each other's way.

    before: x: f32[196, 1024];  y[i, j] = sum[k] x[i, k] * w[k, j]
    after:  x: f32[196, 1040];  the same

    before: v: f32[36, 64, 64];  v[a, i, j] = select(a == 0, ..., select(a == 1, ...))
    after:  v: f32[36, 65, 64];  the same

    The former for what sums of products read, the latter for what is written case by case or read at several places.
    Declines when the buffer is visible outside or an input.
    """
    read = {load.source for stage in stages if is_sum_of_products(stage) for load in distinct_loads([stage.body])}
    own = {stage.buffer: stage.buffer for stage in stages if stage.buffer not in kept}
    wide = {buffer: _with_wide_rows(buffer) if buffer in read else buffer for buffer in own}
    for stage in stages:
        for buffer, axis, count in _side_by_side(stage):
            if buffer in wide:
                wide[buffer] = _with_wide_slabs(wide[buffer], axis, count)
    if all(buffer == other for buffer, other in wide.items()):
        return list(stages)

    def moved(load: Load) -> Load:
        if not isinstance(load.source, Buffer):
            return load
        return Load(wide.get(load.source, load.source), load.indices, load.dtype)

    return [
        replace(stage, buffer=wide.get(stage.buffer, stage.buffer), body=map_loads(stage.body, moved))
        for stage in stages
    ]


def _with_wide_rows(buffer: Buffer) -> Buffer:
    last = buffer.shape[-1] if len(buffer.shape) > 1 else 1
    row_bytes = last * buffer.dtype.itemsize if isinstance(last, int) else 1
    return _widened(buffer, -1) if row_bytes % FEW_PLACES == 0 else buffer


def _side_by_side(stage: TensorStage) -> Iterator[tuple[Buffer, int, int]]:
    """Buffers of which a stage fills or reads several slabs at once, the axis that numbers these, and how many."""
    cased = {sym: cases.count for sym, cases in cases_of(stage.body, stage.axes).items() if cases.run == 1}
    for axis, index in enumerate(stage.place):
        if isinstance(index, Sym) and index in cased:
            yield stage.buffer, axis, cased[index]
    fixed: dict[Buffer, list[set[int]]] = {}
    for load in distinct_loads([stage.body]):
        if isinstance(load.source, Buffer):
            numbers = fixed.setdefault(load.source, [set() for _ in load.indices])
            for seen, index in zip(numbers, load.indices, strict=True):
                if isinstance(index, int):
                    seen.add(index)
    yield from ((buffer, axis, len(seen)) for buffer, axes in fixed.items() for axis, seen in enumerate(axes))


def _with_wide_slabs(buffer: Buffer, axis: int, count: int) -> Buffer:
    """As little wider as lets the slabs along an axis lie at enough places; the same if nothing does."""
    if not all(isinstance(extent, int) for extent in buffer.shape):
        return buffer
    inner = next((each for each in range(axis + 1, len(buffer.shape)) if buffer.shape[each] != 1), -1)
    rows, row = _widened(buffer, inner), _widened(buffer, -1)
    return next((each for each in (buffer, rows, row, _widened(row, inner)) if _is_spread(each, axis, count)), buffer)


def _is_spread(buffer: Buffer, axis: int, count: int) -> bool:
    shape = [extent for extent in buffer.shape if isinstance(extent, int)]
    places = WAY_BYTES // gcd(prod(shape[axis + 1 :]) * buffer.dtype.itemsize, WAY_BYTES)
    return count <= MOST_AT_A_PLACE * min(places, WAY_BYTES // LINE_BYTES)


def _widened(buffer: Buffer, axis: int) -> Buffer:
    """One more along an axis, or one line along the last; the same if that is much."""
    shape, more = list(buffer.shape), LINE_BYTES // buffer.dtype.itemsize if axis in (-1, len(buffer.shape) - 1) else 1
    extent = shape[axis]
    if isinstance(extent, int) and extent < more * LEAST_ROW // LINE_BYTES:
        return buffer
    shape[axis] = extent + more
    return replace(buffer, shape=tuple(shape))
