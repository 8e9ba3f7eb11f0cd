"""Functions of what a tile of registers holds, in a loop over its rows instead of written out.

A sum of products is written out for all rows of its tile, and so is what becomes of it. A function of vector math is
some twenty instructions, though: written out for every vector, LLVM mixes them with each other and with the steps of a
short sum, and has no registers left. A depthwise convolution with SiLU, 5 x 5 taps, in tiles of 5 x 32 had 519 accesses
to the stack, and took twice as long as in tiles of 4 x 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foretell.ir.tensor_expr import Buffer, Load, Scalar, scalars
from foretell.loops.nodes import (
    Accumulate,
    Allocate,
    Block,
    Fetch,
    For,
    Guard,
    Kernel,
    Statement,
    Store,
    distinct_loads,
    map_loads,
)
from foretell.loops.split_chains import is_long


def loop_functions(kernel: Kernel) -> Kernel:
    """Keep a tile of sums on the stack where what reads it computes functions, and run that in loops.

    before: t: f32[4, 16] in register;  ...;  for i < 4 unroll: for j < 16 vector: y[i, j] = sigmoid(t[i, j])
    after:  t: f32[4, 16] in stack;     ...;  for i < 4 serial: for j < 16 vector: y[i, j] = sigmoid(t[i, j])

    Declines for a tile of one row, one that is added to, and one that is read by anything but such loops.
    """
    body = _looped(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _looped(statement: Statement) -> Statement:
    match statement:
        case For(_, _, _, body) | Guard(_, body):
            inner = _looped(body)
            return statement if inner is body else replace(statement, body=inner)
        case Block(statements):
            every = tuple(map(_looped, statements))
            same = all(new is old for new, old in zip(every, statements, strict=True))
            return statement if same else Block(every)
        case Allocate(buffer, body):
            inner = _looped(body)
            if buffer.scope == "register" and buffer.shape and _has_functions(inner, buffer):
                kept = replace(buffer, scope="stack")
                return Allocate(kept, _moved(inner, buffer, kept))
            return statement if inner is body else replace(statement, body=inner)
        case Store() | Accumulate() | Fetch():
            return statement


def _has_functions(body: Statement, tile: Buffer) -> bool:
    """Whether a tile is only stored to, and only read in loops that are written out, for functions among others."""
    found = False
    for loops, leaf in _leaves(body, ()):
        is_read = _reads(leaf, tile)
        if leaf.buffer == tile and (is_read or isinstance(leaf, Accumulate)):
            return False
        if is_read:
            has_rows = any(loop.kind == "unroll" and loop.extent != 1 for loop in loops)
            is_written_out = all(loop.kind in ("unroll", "vector") for loop in loops)
            if not is_written_out or isinstance(leaf, Accumulate) or leaf.buffer.scope == "register":
                return False
            found = found or (has_rows and any(map(is_long, scalars(leaf.value))))
    return found


def _leaves(statement: Statement, loops: tuple[For, ...]) -> Iterator[tuple[tuple[For, ...], Store | Accumulate]]:
    match statement:
        case For(_, _, _, body):
            yield from _leaves(body, (*loops, statement))
        case Guard(_, body) | Allocate(_, body):
            yield from _leaves(body, loops)
        case Block(statements):
            for inner in statements:
                yield from _leaves(inner, loops)
        case Store() | Accumulate():
            yield loops, statement
        case Fetch():
            return


def _reads(leaf: Store | Accumulate, tile: Buffer) -> bool:
    return any(load.source == tile for load in distinct_loads([leaf.value]))


def _moved(statement: Statement, tile: Buffer, kept: Buffer) -> Statement:
    """The statement with one buffer for another, and loops around what reads it run one iteration after the other."""

    def moved(load: Load) -> Scalar:
        return replace(load, source=kept) if load.source == tile else load

    match statement:
        case For(_, _, kind, body):
            is_reader = any(_reads(leaf, tile) for _, leaf in _leaves(body, ()))
            return replace(
                statement,
                kind="serial" if kind == "unroll" and is_reader else kind,
                body=_moved(body, tile, kept),
            )
        case Guard(_, body) | Allocate(_, body):
            return replace(statement, body=_moved(body, tile, kept))
        case Block(statements):
            return Block(tuple(_moved(inner, tile, kept) for inner in statements))
        case Store(buffer, _, value):
            return replace(statement, buffer=kept if buffer == tile else buffer, value=map_loads(value, moved))
        case Accumulate() | Fetch():
            return statement
