"""Accumulators in registers: the loops of a tile move inside the reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretell.ir import expr
from foretell.ir.tensor_expr import Buffer, Load, Scalar
from foretell.loops.analysis import carried_by
from foretell.loops.nodes import (
    Accumulate,
    Allocate,
    Block,
    Fetch,
    For,
    Guard,
    Statement,
    Store,
    loops_in,
    map_loads,
    scalar_symbols,
)
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.loops_by_name import chain, loops_named, nested, replace_loops


def check_hold(nest: Statement, loops: Sequence[str]) -> None:
    """The loops must be directly inside one another, of known extents, and independent."""
    found = [loop for loop in loops_named(nest, loops[0]) if _is_tile(loop, loops)]
    if not found:
        raise IllegalStep(f"{', '.join(loops)} are not directly inside one another")
    for outermost in found:
        tile = chain(outermost, len(loops))
        if any(not isinstance(loop.extent, int) for loop in tile):
            raise IllegalStep(f"the size of a tile over {', '.join(loops)} is not known")
        own = {loop.sym for loop in tile}
        if any(expr.symbols(loop.extent) & own for loop in loops_in(tile[-1].body)):
            raise IllegalStep(f"an extent inside depends on {', '.join(loops)}")
        if any(True for loop in tile for _ in carried_by(loop)):
            raise IllegalStep(f"iterations of {', '.join(loops)} depend on each other")


def hold(nest: Statement, loops: Sequence[str]) -> Statement:
    """Run loops of a tile for every statement inside them in turn; registers become tiles of registers.

    before: for i < 4: s = 0; for r: s += A(i, r); y[i] = s
    after:  for i < 4: s[i] = 0;  for r: for i < 4: s[i] += A(i, r);  for i < 4: y[i] = s[i]
    """
    check_hold(nest, loops)

    def held(outermost: For) -> Statement:
        tile = chain(outermost, len(loops))
        return _distributed(tile[-1].body, tile, {}) if _is_tile(outermost, loops) else outermost

    return replace_loops(nest, loops[0], held)


def _is_tile(outermost: For, loops: Sequence[str]) -> bool:
    return [loop.sym.name for loop in chain(outermost, len(loops))] == list(loops)


def _distributed(body: Statement, tile: Sequence[For], grown: dict[Buffer, Buffer]) -> Statement:
    match body:
        case Block(statements):
            return Block(tuple(_distributed(inner, tile, grown) for inner in statements))
        case For(_, _, _, inner):
            return replace(body, body=_distributed(inner, tile, grown))
        case Allocate(buffer, inner):
            if buffer.scope != "register":
                raise IllegalStep(f"{buffer} is not a register")
            shape = (*(loop.extent for loop in tile), *buffer.shape)
            larger = replace(buffer, shape=shape)
            return Allocate(larger, _distributed(inner, tile, {**grown, buffer: larger}))
        case Fetch():
            return body
        case Store() | Accumulate():
            return nested(tile, _with_registers(body, tile, grown))
        case Guard(condition, inner):
            if scalar_symbols(condition) & {loop.sym for loop in tile}:
                raise IllegalStep("a guard that depends on the tile")
            return Guard(condition, _distributed(inner, tile, grown))


def _with_registers(leaf: Store | Accumulate, tile: Sequence[For], grown: dict[Buffer, Buffer]) -> Statement:
    """The statement with registers replaced by elements of their tiles."""
    here = tuple(loop.sym for loop in tile)

    def moved(load: Load) -> Scalar:
        larger = grown.get(load.source) if isinstance(load.source, Buffer) else None
        return load if larger is None else Load(larger, (*here, *load.indices), load.dtype)

    value, larger = map_loads(leaf.value, moved), grown.get(leaf.buffer)
    if larger is None:
        return replace(leaf, value=value)
    return replace(leaf, buffer=larger, indices=(*here, *leaf.indices), value=value)
