"""The order of loops, and how they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretell.ir import expr
from foretell.ir.tensor_expr import Axis
from foretell.loops.analysis import carried_by
from foretell.loops.axes import join_axes
from foretell.loops.nodes import For, Statement, substitute_statement
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.loops_by_name import chain, loops_named, nested, replace_loops


def check_reorder(nest: Statement, order: Sequence[str]) -> None:
    """The loops must be directly inside one another, with extents that do not depend on each other."""
    for outermost in _chains(nest, order):
        loops = chain(outermost, len(order))
        if sorted(loop.sym.name for loop in loops) != sorted(order):
            raise IllegalStep(f"{', '.join(order)} are not directly inside one another")
        own = {loop.sym for loop in loops}
        if any(expr.symbols(loop.extent) & own for loop in loops):
            raise IllegalStep(f"an extent among {', '.join(order)} depends on another loop of these")
        if any(found.kind != "reduction" for loop in loops for found in carried_by(loop)):
            raise IllegalStep(f"iterations of {', '.join(order)} depend on each other")


def reorder(nest: Statement, order: Sequence[str]) -> Statement:
    """Put loops that are directly inside one another into another order.

    before: for i: for j: A(i, j)      after: for j: for i: A(i, j)
    """
    check_reorder(nest, order)
    for outermost in _chains(nest, order):
        loops = chain(outermost, len(order))
        by_name = {loop.sym.name: loop for loop in loops}
        changed = nested([by_name[name] for name in order], loops[-1].body)
        nest = replace_loops(nest, outermost.sym.name, lambda loop, o=outermost, c=changed: c if loop == o else loop)
    return nest


def _chains(nest: Statement, names: Sequence[str]) -> list[For]:
    """The outermost loop of every chain of these loops."""
    for name in names:
        outer = [loop for loop in loops_named(nest, name) if len(chain(loop, len(names))) == len(names)]
        found = [o for o in outer if {loop.sym.name for loop in chain(o, len(names))} == set(names)]
        if found:
            return found
    raise IllegalStep(f"{', '.join(names)} are not directly inside one another")


def check_run(nest: Statement, loop: str, kind: str) -> None:
    """Iterations of a vector loop must not depend on each other, but for reductions; unrolled ones must be counted."""
    found = loops_named(nest, loop)
    if not found:
        raise IllegalStep(f"there is no loop {loop}")
    for each in found:
        if kind == "unroll" and not isinstance(each.extent, int):
            raise IllegalStep(f"{loop} has {each.extent} iterations: it cannot be written out")
        if kind == "vector" and any(found.kind != "reduction" for found in carried_by(each)):
            raise IllegalStep(f"iterations of {loop} depend on each other")


def run(nest: Statement, loop: str, kind: str) -> Statement:
    """Say how a loop runs: `vector` or `unroll`.

    before: for i < 16 serial: A(i)      after: for i < 16 vector: A(i)
    """
    check_run(nest, loop, kind)
    return replace_loops(nest, loop, lambda found: replace(found, kind=kind))


def check_parallelise(nest: Statement, loops: Sequence[str]) -> None:
    """The loops must be the outermost ones, in this order, and their iterations independent."""
    if not isinstance(nest, For) or [loop.sym.name for loop in chain(nest, len(loops))] != list(loops):
        raise IllegalStep(f"{', '.join(loops)} are not the outermost loops")
    outer = chain(nest, len(loops))
    if any(True for loop in outer for _ in carried_by(loop)):
        raise IllegalStep(f"iterations of {', '.join(loops)} depend on each other")


def parallelise(nest: Statement, loops: Sequence[str]) -> Statement:
    """Join the outermost loops into one that threads share.

    before: for i < 3: for j < 4: A(i, j)      after: for i*j < 12 parallel: A(i*j // 4, i*j % 4)
    """
    check_parallelise(nest, loops)
    assert isinstance(nest, For)
    outer = chain(nest, len(loops))
    joined, bindings = join_axes(tuple(Axis(loop.sym, loop.extent) for loop in outer))
    return For(joined.sym, joined.extent, "parallel", substitute_statement(outer[-1].body, bindings))
