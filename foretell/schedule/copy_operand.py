"""Copying an operand near: what a part of a nest reads of it, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Buffer, Load
from foretell.loops.analysis import buffers_written
from foretell.loops.nodes import Allocate, Block, For, Statement, Store, substitute_scalar
from foretell.loops.plain_nests import Indices, accesses_of, map_accesses
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.loops_by_name import loops_named, replace_loops

LINE_BYTES = 64
COPY_BYTES = 256 << 10
"""The most that a copy may take of the stack."""


def check_copy_operand(nest: Statement, name: str, before: str, loops: Sequence[str]) -> None:
    """The operand must be only read there, at one place, which no other loop inside but these may decide."""
    found = [each for each in loops_named(nest, before) if _contains(each, loops)]
    if not found:
        raise IllegalStep(f"there is no loop {before} with {', '.join(loops)} inside")
    for each in found:
        place = _place(each, name)
        own = {sym for sym in _symbols(place) if loops_named(each, sym.name)}
        missing = own - {loop.sym for loop in _chosen(each, loops)}
        if missing:
            raise IllegalStep(f"{name} depends on {', '.join(sorted(sym.name for sym in missing))} inside {before}")
        if any(written == _source(each, name) for written in buffers_written(each)):
            raise IllegalStep(f"{name} is written inside {before}")
        if _bytes(_local(each, name, loops)) > COPY_BYTES:
            raise IllegalStep(f"a copy of {name} takes more than {COPY_BYTES} bytes")


def copy_operand(nest: Statement, name: str, before: str, loops: Sequence[str]) -> Statement:
    """Copy what a loop reads of an operand to the stack before it runs, contiguous in the order of loops inside it.

    before: for j.o: for i: for k: for j.i: A(x[k, 8*j.o + j.i])
    after:  for j.o: for k: for j.i vector: t[k, j.i] = x[k, 8*j.o + j.i];  for i: for k: for j.i: A(t[k, j.i])
    """
    check_copy_operand(nest, name, before, loops)

    def copied(found: For) -> Statement:
        if not _contains(found, loops):
            return found
        local, chosen = _local(found, name, loops), _chosen(found, loops)
        source, place = _source(found, name), _place(found, name)
        fresh = {loop.sym: replace(loop.sym, name=f"{loop.sym.name}.c") for loop in chosen}
        value = substitute_scalar(Load(source, place, source.dtype), dict(fresh))
        fill: Statement = Store(local, tuple(fresh.values()), value)
        for number, loop in enumerate(reversed(chosen)):
            fill = For(fresh[loop.sym], loop.extent, "serial" if number else "vector", fill)

        def moved(buffer: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
            return (local, tuple(loop.sym for loop in chosen)) if buffer == source else (buffer, indices)

        return Allocate(local, Block((fill, map_accesses(found, moved))))

    return replace_loops(nest, before, copied)


def _contains(found: For, loops: Sequence[str]) -> bool:
    return all(loops_named(found.body, name) for name in loops)


def _local(found: For, name: str, loops: Sequence[str]) -> Buffer:
    """What is copied, each row of it from the start of a line."""
    source = _source(found, name)
    *outer, row = (loop.extent for loop in _chosen(found, loops))
    elements = max(1, LINE_BYTES // source.dtype.itemsize)
    shape = (*outer, expr.ceildiv(row, elements) * elements)
    return Buffer(f"{name}.{found.sym.name}", source.dtype, shape, "stack")


def _source(body: Statement, name: str) -> Buffer:
    return next(buffer for buffer, _ in accesses_of(body) if buffer.name == name)


def _place(body: Statement, name: str) -> Indices:
    places = {indices for buffer, indices in accesses_of(body) if buffer.name == name}
    if len(places) != 1:
        raise IllegalStep(f"{name} is read at {len(places)} places")
    return places.pop()


def _chosen(body: Statement, loops: Sequence[str]) -> list[For]:
    """The loops by name, in order, which must be of known extents."""
    chosen: list[For] = []
    for name in loops:
        found = loops_named(body, name)
        if not found or not isinstance(found[0].extent, int):
            raise IllegalStep(f"there is no loop {name} of known extent")
        chosen.append(found[0])
    return chosen


def _symbols(place: Indices) -> set[Sym]:
    if not all(isinstance(index, (int, expr.Expr)) for index in place):
        raise IllegalStep("an operand is read at indices that come from data")
    return {sym for index in place if isinstance(index, expr.Expr) for sym in expr.symbols(index)}


def _bytes(buffer: Buffer) -> int:
    elements = expr.product(buffer.shape)
    assert isinstance(elements, int)
    return elements * buffer.dtype.itemsize
