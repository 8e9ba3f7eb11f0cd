"""Tiling: one loop becomes two."""

from __future__ import annotations

from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Apply, Index
from foretell.loops.nodes import Block, For, Guard, Statement, substitute_statement
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.loops_by_name import loops_named, replace_loops


def check_tile(nest: Statement, loop: str, factor: int) -> None:
    """The loop must exist, and its extent be known and no less than the factor."""
    found = loops_named(nest, loop)
    if not found:
        raise IllegalStep(f"there is no loop {loop}")
    for each in found:
        if not isinstance(each.extent, int) or not 1 <= factor <= each.extent:
            raise IllegalStep(f"the {each.extent} iterations of {loop} do not make a tile of {factor}")


def tile(nest: Statement, loop: str, factor: int) -> Statement:
    """Cut a loop into tiles of `factor` iterations.

    before: for i < 12: A(i)      after: for i.o < 3: for i.i < 4: A(4*i.o + i.i)

    If the factor does not divide the extent, the last tile is smaller and has a loop of its own:

    before: for i < 7: A(i)       after: for i.o < 2: if i.o < 1: for i.i < 4: A(4*i.o + i.i)
                                                      if i.o >= 1: for i.t < 3: A(4*i.o + i.t)
    """
    check_tile(nest, loop, factor)

    def tiled(found: For) -> Statement:
        assert isinstance(found.extent, int)
        count, rest = divmod(found.extent, factor)
        outer, inner = Sym(f"{loop}.o", 0, count - (rest == 0)), Sym(f"{loop}.i", 0, factor - 1)
        main = For(inner, factor, found.kind, substitute_statement(found.body, {found.sym: outer * factor + inner}))
        if not rest:
            return For(outer, count, found.kind, main)
        last = Sym(f"{loop}.t", 0, rest - 1)
        tail = For(last, rest, found.kind, substitute_statement(found.body, {found.sym: outer * factor + last}))
        parts = (
            Guard(Apply("lt", (Index(outer), Index(count))), main),
            Guard(Apply("ge", (Index(outer), Index(count))), tail),
        )
        return For(outer, count + 1, found.kind, Block(parts))

    return replace_loops(nest, loop, tiled)


def check_cut(nest: Statement, loop: str, at: int) -> None:
    """The loop must exist and have more than `at` iterations."""
    found = loops_named(nest, loop)
    if not found:
        raise IllegalStep(f"there is no loop {loop}")
    for each in found:
        if not isinstance(each.extent, int) or not 0 < at < each.extent:
            raise IllegalStep(f"{loop} has {each.extent} iterations: it cannot be cut at {at}")


def cut(nest: Statement, loop: str, at: int) -> Statement:
    """Cut a loop into a main part and a tail.

    before: for i < 7: A(i)      after: for i < 4: A(i);  for i.t < 3: A(i.t + 4)
    """
    check_cut(nest, loop, at)

    def parts(found: For) -> Statement:
        assert isinstance(found.extent, int)
        main, tail = Sym(loop, 0, at - 1), Sym(f"{loop}.t", 0, found.extent - at - 1)
        first = For(main, at, found.kind, substitute_statement(found.body, {found.sym: main}))
        rest = substitute_statement(found.body, {found.sym: tail + at})
        return Block((first, For(tail, found.extent - at, found.kind, rest)))

    return replace_loops(nest, loop, parts)
