"""Dimensions of constants that two axes go through together, in two: each axis then has one of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer, Load, Scalar
from foretell.loops.nodes import map_loads
from foretell.loops.stages import TensorStage

Parts = dict[int, int]
"""Dimensions of a buffer, and the size of the inner part of each."""


def part_constants(stages: Sequence[TensorStage], constants: frozenset[str]) -> list[TensorStage]:
    """Read a constant's dimension in two where every load of it goes through groups and what is inside of them.

    before: y[g, o] = sum[c<3] x[3*g + c] * w[8*g + o, c]           with o < 8
    after:  y[g, o] = sum[c<3] x[3*g + c] * w[g, o, c]

    Nothing moves in memory; but weights of groups can then be packed along o, which has a dimension of its own.

    Declines for a dimension that some load goes through otherwise.
    """
    found: dict[Buffer, Parts] = {}
    for stage in stages:
        extents = {axis.sym: axis.extent for axis in (*stage.axes, *stage.reduction_axes)}
        for load in stage.loads:
            if isinstance(load.source, Buffer) and load.source.name in constants:
                parts = _parts(load, load.source, extents)
                known = found.setdefault(load.source, parts)
                found[load.source] = {each: size for each, size in known.items() if parts.get(each) == size}
    parted = {buffer: parts for buffer, parts in found.items() if parts}
    if not parted:
        return list(stages)
    return [replace(stage, body=map_loads(stage.body, lambda load: _read(load, parted))) for stage in stages]


def _parts(load: Load, source: Buffer, extents: Mapping[Sym, Dim]) -> Parts:
    found: Parts = {}
    for number, (index, dim) in enumerate(zip(load.indices, source.shape, strict=True)):
        pair = _try_outer_and_inner(index)
        if pair is None:
            continue
        outer, inner, size = pair
        if extents.get(inner) == size and isinstance(dim, int) and extents.get(outer) == dim // size:
            found[number] = size
    return found


def _try_outer_and_inner(index: Dim | Scalar) -> tuple[Sym, Sym, int] | None:
    """g, o and 8 for 8*g + o."""
    linear = expr.try_linear(index, expr.symbols(index)) if isinstance(index, expr.Expr) else None
    if linear is None or linear[1] != 0 or len(linear[0]) != 2:
        return None
    (inner, step), (outer, size) = sorted(linear[0].items(), key=lambda each: each[1])
    return (outer, inner, size) if step == 1 else None


def _read(load: Load, parted: Mapping[Buffer, Parts]) -> Scalar:
    parts = parted.get(load.source) if isinstance(load.source, Buffer) else None
    if parts is None:
        return load
    assert isinstance(load.source, Buffer)
    shape: list[Dim] = []
    indices: list[Dim | Scalar] = []
    for number, (dim, index) in enumerate(zip(load.source.shape, load.indices, strict=True)):
        pair = _try_outer_and_inner(index) if number in parts else None
        if pair is None:
            shape.append(dim)
            indices.append(index)
            continue
        outer, inner, size = pair
        shape += [dim // size, size]
        indices += [outer, inner]
    return replace(load, source=replace(load.source, shape=tuple(shape)), indices=tuple(indices))
