"""Finding loops of a nest by the names of their variables, and putting something else in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from foretell.loops.nodes import Accumulate, Allocate, Block, Fetch, For, Guard, Statement, Store, loops_in


def loops_named(statement: Statement, name: str) -> list[For]:
    return [loop for loop in loops_in(statement) if loop.sym.name == name]


def replace_loops(statement: Statement, name: str, change: Callable[[For], Statement]) -> Statement:
    """The statement with every loop of that name changed; loops inside a changed one stay as they are."""
    match statement:
        case For(sym, _, _, body):
            return change(statement) if sym.name == name else replace(statement, body=replace_loops(body, name, change))
        case Block(statements):
            return Block(tuple(replace_loops(inner, name, change) for inner in statements))
        case Guard(_, body) | Allocate(_, body):
            return replace(statement, body=replace_loops(body, name, change))
        case Store() | Accumulate() | Fetch():
            return statement


def chain(loop: For, count: int) -> list[For]:
    """A loop and those directly inside it, so many in all or as many as there are."""
    found = [loop]
    while len(found) < count and isinstance(found[-1].body, For):
        found.append(found[-1].body)
    return found


def nested(loops: Sequence[For], body: Statement) -> Statement:
    """Loops around a body, the first outermost."""
    for loop in reversed(loops):
        body = replace(loop, body=body)
    return body
