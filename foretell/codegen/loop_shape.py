"""What a vector loop looks like: how many lanes suit its body, and which sums it carries."""

from __future__ import annotations

from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Index, Scalar, Select, Source, dtype_of
from foretell.loops.nodes import Accumulate, Allocate, Block, Fetch, For, Guard, Statement, Store, loads_in

WIDE = 4
"""Registers' worth of lanes in the main part of a vector loop."""
WIDE_AROUND_LOOPS = 8
"""The same where the body runs a loop: enough independent sums to hide the latency of an addition."""


def vector_steps(body: Statement, extent: Dim, vector_bytes: int) -> tuple[int, int]:
    """How many iterations of a vector loop are done at a time: in its main part, and then in the rest."""
    lanes = fitting_lanes(vector_bytes // max(1, widest_bytes(body)), extent)
    return lanes * registers_at_a_time(body, extent, lanes), lanes


def fitting_lanes(lanes: int, extent: Dim) -> int:
    """Fewer lanes for a loop that is known to be short."""
    if isinstance(extent, int):
        while lanes > 1 and lanes // 2 >= extent:
            lanes //= 2
    return lanes


def registers_at_a_time(body: Statement, extent: Dim, lanes: int) -> int:
    """How many registers' worth of lanes the main loop takes at a time; 1 where many values are alive as it is."""
    if isinstance(body, For) and body.kind == "unroll":
        return 1
    if isinstance(body, Block) and sum(not isinstance(inner, Fetch) for inner in body.statements) > WIDE:
        return 1
    width = WIDE_AROUND_LOOPS if has_loop(body) else WIDE
    while width > 1 and isinstance(extent, int) and lanes * width > extent:
        width //= 2
    return width


def has_loop(statement: Statement) -> bool:
    match statement:
        case For():
            return True
        case Block(statements):
            return any(map(has_loop, statements))
        case Allocate(_, body) | Guard(_, body):
            return has_loop(body)
        case _:
            return False


def has_stream(statement: Statement) -> bool:
    """Whether some loop stores past the caches."""
    match statement:
        case For(_, _, kind, body):
            return kind == "stream" or has_stream(body)
        case Block(statements):
            return any(map(has_stream, statements))
        case Allocate(_, body) | Guard(_, body):
            return has_stream(body)
        case _:
            return False


def widest_bytes(statement: Statement) -> int:
    """Bytes of the widest element that a vector loop computes with."""
    match statement:
        case Block(statements):
            return max((widest_bytes(inner) for inner in statements), default=4)
        case For(_, _, _, body) | Guard(_, body):
            return widest_bytes(body)
        case Allocate(buffer, body):
            return max(widest_bytes(body), buffer.dtype.compute.itemsize)
        case Store(buffer, _, value) | Accumulate(buffer, _, _, value):
            return max(buffer.dtype.itemsize, _widest_scalar(value))
        case Fetch():
            return 1


def _widest_scalar(scalar: Scalar) -> int:
    match scalar:
        case Apply(_, arguments):
            return max(_widest_scalar(argument) for argument in arguments)
        case Select(condition, then, otherwise):
            return max(_widest_scalar(part) for part in (condition, then, otherwise))
        case Cast(value, dtype):
            return max(_widest_scalar(value), dtype.compute.itemsize)
        case Index():
            return 4
        case _:
            return dtype_of(scalar).itemsize


def reduced_in(statement: Statement) -> dict[Buffer, str]:
    """Accumulators of the statement that were allocated outside it."""
    match statement:
        case Block(statements):
            found: dict[Buffer, str] = {}
            for inner in statements:
                found |= reduced_in(inner)
            return found
        case For(_, _, _, body) | Guard(_, body):
            return reduced_in(body)
        case Allocate(buffer, body):
            return {target: reduction for target, reduction in reduced_in(body).items() if target != buffer}
        case Accumulate(buffer, _, reduction, _):
            return {buffer: reduction}
        case Store() | Fetch():
            return {}


def uses_tiles(statement: Statement) -> bool:
    """Whether a statement touches a register buffer that has a shape."""
    match statement:
        case Block(statements):
            return any(map(uses_tiles, statements))
        case For(_, _, _, body) | Guard(_, body) | Allocate(_, body):
            return uses_tiles(body)
        case Store(buffer, _, value) | Accumulate(buffer, _, _, value):
            return _is_tile(buffer) or any(_is_tile(load.source) for load in loads_in(value))
        case Fetch():
            return False


def _is_tile(source: Source) -> bool:
    return isinstance(source, Buffer) and source.scope == "register" and bool(source.shape)
