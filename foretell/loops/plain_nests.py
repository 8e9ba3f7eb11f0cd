"""Plain nests: fewer loops, and fewer dimensions, where that says the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Buffer, Load, Scalar
from foretell.loops.nodes import (
    Accumulate,
    Allocate,
    Block,
    Done,
    Fetch,
    For,
    Guard,
    Kernel,
    Statement,
    Store,
    loads_in,
    map_loads,
    substitute_statement,
)

Indices: TypeAlias = "tuple[Dim | Scalar, ...]"


def without_single_iterations(statement: Statement) -> Statement:
    """before: for i < 1: A(i)      after: A(0)"""
    match statement:
        case For(sym, 1, _, body):
            return without_single_iterations(substitute_statement(body, {sym: 0}))
        case For(_, _, _, body) | Guard(_, body) | Allocate(_, body):
            return replace(statement, body=without_single_iterations(body))
        case Block(statements):
            return Block(tuple(without_single_iterations(inner) for inner in statements))
        case Store() | Accumulate() | Fetch():
            return statement


def flattened(statement: Statement) -> Statement:
    """Neighbouring dimensions of a table become one where all accesses go through them as one.

    before: x[c, i // 56, i % 56], x: [64, 56, 56]      after: x[c, i], x: [64, 3136]
    """
    accesses: dict[Buffer, list[Indices]] = {}
    for buffer, indices in accesses_of(statement):
        if buffer.scope == "table":
            accesses.setdefault(buffer, []).append(indices)
    merged = {buffer: _joined_dimensions(buffer, found) for buffer, found in accesses.items()}
    changed = {buffer: groups for buffer, groups in merged.items() if len(groups) < len(buffer.shape)}
    if not changed:
        return statement

    def moved(buffer: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
        groups = changed.get(buffer)
        if groups is None:
            return buffer, indices
        shape = tuple(expr.product(buffer.shape[first:last]) for first, last in groups)
        return replace(buffer, shape=shape), tuple(_joined(buffer, indices, first, last) for first, last in groups)

    return map_accesses(statement, moved)


def with_own_buffers(kernel: Kernel) -> Kernel:
    """The kernel with its operands as its statements know them."""
    known = {buffer.name: buffer for buffer, _ in accesses_of(kernel.body) if buffer.scope == "table"}
    reads, writes = (tuple(known[buffer.name] for buffer in some) for some in (kernel.reads, kernel.writes))
    return replace(kernel, reads=reads, writes=writes)


def _joined_dimensions(buffer: Buffer, accesses: list[Indices]) -> list[tuple[int, int]]:
    """Ranges of dimensions that every access goes through as one, in order; those of size 1 belong to the next."""
    groups: list[tuple[int, int]] = []
    for dimension in range(len(buffer.shape)):
        if groups and all(_is_one(buffer, indices, groups[-1], dimension) for indices in accesses):
            groups[-1] = (groups[-1][0], dimension + 1)
        else:
            groups.append((dimension, dimension + 1))
    return groups


def _is_one(buffer: Buffer, indices: Indices, group: tuple[int, int], dimension: int) -> bool:
    """Whether an access stays simple when a dimension joins those before it: it loses a `//` and a `%`, or a 0."""
    left, right = _joined(buffer, indices, *group), indices[dimension]
    if not isinstance(left, (int, expr.Expr)) or not isinstance(right, (int, expr.Expr)):
        return False
    if left == 0:
        return True
    if not expr.symbols(left) & expr.symbols(right):
        return False
    joined = left * buffer.shape[dimension] + right
    return expr.weight_of(joined) < expr.weight_of(left) + expr.weight_of(right)


def _joined(buffer: Buffer, indices: Indices, first: int, last: int) -> Dim | Scalar:
    if last - first == 1:
        return indices[first]
    place: Dim = 0
    for dimension in range(first, last):
        index = indices[dimension]
        assert isinstance(index, (int, expr.Expr))
        place = place * buffer.shape[dimension] + index
    return place


def accesses_of(statement: Statement) -> Iterator[tuple[Buffer, Indices]]:
    match statement:
        case Block(statements):
            for inner in statements:
                yield from accesses_of(inner)
        case For(_, _, _, body) | Guard(_, body) | Allocate(_, body):
            yield from accesses_of(body)
        case Store(buffer, indices, value) | Accumulate(buffer, indices, _, value):
            yield buffer, indices
            for load in loads_in(value):
                assert isinstance(load.source, Buffer)
                yield load.source, load.indices
        case Fetch(buffer, indices):
            yield buffer, indices


def map_accesses(
    statement: Statement, moved: Callable[[Buffer, Indices], tuple[Buffer, Indices]], done: Done | None = None
) -> Statement:
    """The statement with the place of every load and store changed; accumulators stay.

    With `done`, what statements share is one object afterwards too.
    """

    def load(old: Load) -> Scalar:
        assert isinstance(old.source, Buffer)
        buffer, indices = moved(old.source, old.indices)
        return Load(buffer, indices, old.dtype)

    match statement:
        case Block(statements):
            return Block(tuple(map_accesses(inner, moved, done) for inner in statements))
        case For(_, _, _, body) | Guard(_, body) | Allocate(_, body):
            return replace(statement, body=map_accesses(body, moved, done))
        case Store(buffer, indices, value):
            buffer, indices = moved(buffer, indices)
            return Store(buffer, indices, map_loads(value, load, done))
        case Accumulate(buffer, indices, reduction, value):
            return Accumulate(buffer, indices, reduction, map_loads(value, load, done))
        case Fetch(buffer, indices):
            buffer, indices = moved(buffer, indices)
            plain = tuple(index for index in indices if isinstance(index, (int, expr.Expr)))
            return replace(statement, buffer=buffer, indices=plain)
