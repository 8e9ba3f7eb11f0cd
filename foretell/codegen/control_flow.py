"""Loops and variables for functions that are emitted by hand; `builder.if_then` comes from llvmlite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import llvmlite.ir as ir


@contextmanager
def loop(builder: ir.IRBuilder) -> Iterator[ir.Block]:
    """Repeat the block for ever; `break_if` leaves it for the block that is yielded, where emission goes on."""
    head = builder.append_basic_block("loop")
    done = builder.append_basic_block("done")
    builder.branch(head)
    builder.position_at_end(head)
    yield done
    if not builder.block.is_terminated:
        builder.branch(head)
    builder.position_at_end(done)


def break_if(builder: ir.IRBuilder, condition: ir.Value, done: ir.Block) -> None:
    """Leave the loop that yielded `done`; emission goes on where it does not."""
    following = builder.append_basic_block("following")
    builder.cbranch(condition, done, following)
    builder.position_at_end(following)


def variable(builder: ir.IRBuilder, initial: ir.Value) -> ir.Value:
    """A place on the stack that holds `initial` from here on; LLVM turns it into a register."""
    with builder.goto_entry_block():
        place = builder.alloca(initial.type)
    builder.store(initial, place)
    return place
