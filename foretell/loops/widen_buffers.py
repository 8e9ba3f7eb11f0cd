"""Padding as a border of the producer's buffer: what would be copied into a wider buffer is stored there at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Apply, Buffer, Const, Index, Load, Select, axis_over
from foretell.loops.cluster import shared_depth
from foretell.loops.nodes import map_loads
from foretell.loops.stages import TensorStage


def widen_buffers(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> list[TensorStage]:
    """Let a stage store straight into the padded version of its buffer, whose border is filled apart.

    before: x[i<n] = f(i);  p[j<n+2] = select(0 <= j-1 < n, x[j-1], 0);  y = p[i + k] ... x[i]
    after:  p[i+1 | i<n] = f(i);  p[j<1] = 0;  p[j+n+1 | j<1] = 0;       y = p[i + k] ... p[i+1]

    Several paddings of one tensor with the same value share the widest border.

    Declines when x is visible outside, an input or stored in parts; when data decides what is read of x or p; when x's
    stage shares some loops with the one before it but not all (rows of a normalisation: parting them costs more than
    the copy); when the padded stage does more than select and load, or may leave out a part of x of unknown size.
    """
    wides = _wide_buffers(stages, kept)
    if not wides:
        return list(stages)
    shifts = {buffer: (wide.buffer, shift) for wide in wides for buffer, shift in wide.shifts()}
    producers = {wide.source: wide for wide in wides}
    first = {wide.paddings[0].stage.buffer: wide for wide in wides}
    replaced = {padding.stage.buffer for wide in wides for padding in wide.paddings}
    result: list[TensorStage] = []
    for stage in stages:
        if stage.buffer in first:
            result += _borders(first[stage.buffer])
        elif stage.buffer not in replaced:
            stage = replace(stage, body=map_loads(stage.body, lambda load: _shifted(load, shifts)))
            wide = producers.get(stage.buffer)
            result.append(stage if wide is None else replace(stage, buffer=wide.buffer, place=wide.inside(stage.place)))
    return result


def wide_shapes(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> dict[Buffer, tuple[Dim, ...]]:
    """The buffers that would be stored with a border, and their shapes with it."""
    return {wide.source: wide.buffer.shape for wide in _wide_buffers(stages, kept)}


# --- what is padded ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Padding:
    """A stage that copies a tensor and surrounds it by one value."""

    stage: TensorStage
    source: Buffer
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    fill: Const


def _try_padding(stage: TensorStage) -> _Padding | None:
    """The stage as a padding: p[i...] = select(i - b >= 0, select(i - b < n, ... x[i - b ...], fill), fill)."""
    body, fills, conditions = stage.body, list[Const](), list[object]()
    while isinstance(body, Select):
        if not isinstance(body.otherwise, Const):
            return None
        fills.append(body.otherwise)
        conditions.append(body.condition)
        body = body.then
    if not fills or len(set(map(str, fills))) != 1 or stage.reduction is not None or not stage.is_whole:
        return None
    if not isinstance(body, Load) or len(body.indices) != len(stage.axes) or body.dtype != stage.buffer.dtype:
        return None
    assert isinstance(body.source, Buffer)
    before, syms = list[Dim](), frozenset(axis.sym for axis in stage.axes)
    for axis, index, dim in zip(stage.axes, body.indices, body.source.shape, strict=True):
        if not isinstance(index, (int, expr.Expr)) or expr.symbols(axis.sym - index) & syms:
            return None
        before.append(axis.sym - index)
        inside = (Apply("ge", (Index(index), Index(0))), Apply("lt", (Index(index), Index(dim))))
        conditions = [condition for condition in conditions if condition not in inside]
    if conditions:
        return None
    after = tuple(a.extent - b - d for a, b, d in zip(stage.axes, before, body.source.shape, strict=True))
    return _Padding(stage, body.source, tuple(before), after, fills[0])


# --- what becomes wide ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wide:
    """A tensor with a border, and the paddings that it replaces."""

    buffer: Buffer
    source: Buffer
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    paddings: tuple[_Padding, ...]

    def inside(self, place: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(index + before for index, before in zip(place, self.before, strict=True))

    def shifts(self) -> Iterator[tuple[Buffer, tuple[Dim, ...]]]:
        """Each buffer that it replaces, and where in it that one starts."""
        yield self.source, self.before
        for padding in self.paddings:
            yield padding.stage.buffer, tuple(w - b for w, b in zip(self.before, padding.before, strict=True))


def _wide_buffers(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> list[_Wide]:
    paddings: dict[Buffer, list[_Padding]] = {}
    by_data = _read_by_data(stages)
    for stage in stages:
        padding = _try_padding(stage)
        if padding is not None and stage.buffer not in by_data:
            paddings.setdefault(padding.source, []).append(padding)
    if not paddings:
        return []
    fixed = set(kept) | by_data | _filled_in_parts(stages)
    numbers = {stage.buffer: number for number, stage in enumerate(stages)}
    wides: list[_Wide] = []
    for source, candidates in paddings.items():
        taken = {padding.stage.buffer for wide in wides for padding in wide.paddings}
        if source in numbers and source not in fixed | taken and _stays_fused(numbers[source], stages, kept):
            wide = _try_wide(source, candidates, kept)
            if wide is not None:
                wides.append(wide)
    return wides


def _try_wide(source: Buffer, candidates: Sequence[_Padding], kept: frozenset[Buffer]) -> _Wide | None:
    """The first padding, with others of the same value where all sizes are numbers and nobody else sees them."""
    first = candidates[0]
    group = [p for p in candidates if str(p.fill) == str(first.fill) and _has_numbers(p) and p.stage.buffer not in kept]
    if first not in group:
        wide = _Wide(first.stage.buffer, source, first.before, first.after, (first,))
        sure = all(_is_at_least_0(size) for size in (*first.before, *first.after))
        return wide if sure else None
    before = tuple(_greatest(sizes) for sizes in zip(*(padding.before for padding in group), strict=True))
    after = tuple(_greatest(sizes) for sizes in zip(*(padding.after for padding in group), strict=True))
    shape = tuple(b + dim + a for b, dim, a in zip(before, source.shape, after, strict=True))
    return _Wide(replace(first.stage.buffer, shape=shape), source, before, after, tuple(group))


def _has_numbers(padding: _Padding) -> bool:
    return all(isinstance(size, int) for size in (*padding.before, *padding.after))


def _greatest(sizes: Sequence[Dim]) -> int:
    return max(0, *(size for size in sizes if isinstance(size, int)))


def _is_at_least_0(size: Dim) -> bool:
    low, _ = expr.bounds(size)
    return low is not None and low >= 0


def _read_by_data(stages: Sequence[TensorStage]) -> set[Buffer]:
    """Buffers of which data decides what is read."""
    return {
        load.source
        for stage in stages
        for load in stage.loads
        if isinstance(load.source, Buffer) and not all(isinstance(index, (int, expr.Expr)) for index in load.indices)
    }


def _filled_in_parts(stages: Sequence[TensorStage]) -> set[Buffer]:
    seen: set[Buffer] = set()
    parts: set[Buffer] = set()
    for stage in stages:
        if stage.buffer in seen or not stage.is_whole:
            parts.add(stage.buffer)
        seen.add(stage.buffer)
    return parts


def _stays_fused(number: int, stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> bool:
    """Whether a stage that stores into a part of its buffer keeps the loops that it shares with what it reads."""
    if number == 0:
        return True
    stage, before = stages[number], stages[number - 1]
    if all(load.source != before.buffer for load in stage.loads):
        return True
    return shared_depth((before, stage), kept) in (0, len(stage.axes))


# --- how it is filled and read -------------------------------------------------------------------------------


def _shifted(load: Load, shifts: Mapping[Buffer, tuple[Buffer, tuple[Dim, ...]]]) -> Load:
    found = shifts.get(load.source) if isinstance(load.source, Buffer) else None
    if found is None:
        return load
    plain = [index for index in load.indices if isinstance(index, (int, expr.Expr))]
    return Load(found[0], tuple(index + shift for index, shift in zip(plain, found[1], strict=True)), load.dtype)


def _borders(wide: _Wide) -> list[TensorStage]:
    """Slabs that fill the border: for each dimension the ends of what the dimensions before it have inside."""
    slabs: list[TensorStage] = []
    for number, (before, after) in enumerate(zip(wide.before, wide.after, strict=True)):
        for start, extent in ((0, before), (before + wide.source.shape[number], after)):
            if extent != 0:
                slabs.append(_slab(wide, number, start, extent, f"{number}{'ba'[start != 0]}"))
    return slabs


def _slab(wide: _Wide, number: int, start: Dim, extent: Dim, suffix: str) -> TensorStage:
    template = wide.paddings[0].stage
    extents = (*wide.source.shape[:number], extent, *wide.buffer.shape[number + 1 :])
    starts = (*wide.before[:number], start, *(0 for _ in extents[number + 1 :]))
    axes = tuple(
        axis_over(size, f"{axis.sym.name}.{suffix}") for size, axis in zip(extents, template.axes, strict=True)
    )
    place = tuple(axis.sym + first for axis, first in zip(axes, starts, strict=True))
    return TensorStage(wide.buffer, axes, wide.paddings[0].fill, None, (), place, template.location)
