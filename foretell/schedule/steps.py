"""A schedule is data: a tuple of steps that can be stored, replayed, and left unfinished."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from foretell.loops.analysis import accesses
from foretell.loops.nodes import Kernel
from foretell.schedule.block_sum import block_sum
from foretell.schedule.copy_operand import copy_operand
from foretell.schedule.hold import hold
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.order import parallelise, reorder, run
from foretell.schedule.pack import Part, pack, packed_buffer
from foretell.schedule.tile import cut, tile


@dataclass(frozen=True, slots=True)
class Tile:
    loop: str
    factor: int


@dataclass(frozen=True, slots=True)
class Cut:
    loop: str
    at: int


@dataclass(frozen=True, slots=True)
class Reorder:
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockSum:
    loop: str
    around: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vectorise:
    loop: str


@dataclass(frozen=True, slots=True)
class Unroll:
    loop: str


@dataclass(frozen=True, slots=True)
class Parallelise:
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    buffer: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    buffer: str
    before: str
    loops: tuple[str, ...]


Step: TypeAlias = Tile | Cut | Reorder | Hold | BlockSum | Vectorise | Unroll | Parallelise | Pack | Copy
Schedule: TypeAlias = tuple[Step, ...]


def apply_schedule(kernel: Kernel, schedule: Schedule) -> Kernel:
    """The kernel after every step in turn."""
    for step in schedule:
        kernel = apply_step(kernel, step)
    return kernel


def apply_step(kernel: Kernel, step: Step) -> Kernel:
    """The kernel after one step; `IllegalStep` if the nest does not allow for it."""
    nest = kernel.body
    match step:
        case Tile(loop, factor):
            return replace(kernel, body=tile(nest, loop, factor))
        case Cut(loop, at):
            return replace(kernel, body=cut(nest, loop, at))
        case Reorder(loops):
            return replace(kernel, body=reorder(nest, loops))
        case Hold(loops):
            return replace(kernel, body=hold(nest, loops))
        case BlockSum(loop, around):
            return replace(kernel, body=block_sum(nest, loop, around))
        case Vectorise(loop):
            return replace(kernel, body=run(nest, loop, "vector"))
        case Unroll(loop):
            return replace(kernel, body=run(nest, loop, "unroll"))
        case Parallelise(loops):
            return replace(kernel, body=parallelise(nest, loops))
        case Pack(name, parts):
            return _packed(kernel, name, parts)
        case Copy(name, before, loops):
            return replace(kernel, body=copy_operand(nest, name, before, loops))


def _packed(kernel: Kernel, name: str, parts: tuple[Part, ...]) -> Kernel:
    buffer = next((buffer for buffer in kernel.reads if buffer.name == name), None)
    if buffer is None or any(access.buffer == buffer and access.kind != "read" for access in accesses(kernel)):
        raise IllegalStep(f"{name} is not an operand that is only read")
    reads = tuple(packed_buffer(other, parts) if other == buffer else other for other in kernel.reads)
    return replace(kernel, reads=reads, body=pack(kernel.body, buffer, parts))
