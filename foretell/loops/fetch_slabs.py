"""Operands that serve many tiles: the next slab is asked for while the tiles of this one are computed.

A slab of weights comes from far away when its first tile needs it, and from near for all others. Prefetchers do not
know which one is next: it begins anywhere. Lines asked for one at a time, between multiply-adds, cost next to nothing.
The rows of a tile are a slab that serves this tile only, until the next slab of weights meets them again: they are
asked for where the second cache cannot have them yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, prod

from foretell.ir import expr
from foretell.ir.expr import Dim, Op, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Index, Load
from foretell.loops.axes import access_stride
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
    loops_in,
    offset,
)
from foretell.loops.place_lines import LINE_BYTES, LONG_BYTES

MOST_AT_ONCE = 4
"""Lines asked for in one step of a sum: with more, memory is the limit, and not its latency."""
SLABS_SHARE = 0.75
"""The part of the second cache in which this slab and the next have to stay."""
NEAR_SLABS = 16
"""Slabs that fit the first cache if they are so small that they are not asked for: they come by themselves."""
MOST_TIMES = 4
"""Slabs that serve one tile at a time are not asked for if they come so much more often from near than from far."""
FEW_IDLE = 1.5
"""Steps per line from which on the last line is asked for again instead of those behind it."""


def fetch_slabs(kernel: Kernel, cache_bytes: Sequence[int]) -> Kernel:
    """Add fetches to the innermost loops of sums.

    before: for o: for rows: for k: acc += x[row, k] * w[o, k, lane]
    after:  for o: for rows: for k: fetch w[o + 1, 0, 16 * (rows * K + k)] to read; acc += ...

    before: for o: for r: for k: acc += x[r, k] * w[o, k, lane]
    after:  for o: for r: for k: if o == 0: fetch x[r + 1, 16 * k] to read; acc += ...

    The latter is for operands larger than the second cache whose rows end before prefetchers that follow them pay; the
    condition, if that cache holds what an iteration of o reads.
    Declines for slabs that are not contiguous, too large for the second cache twice over, or very small.
    """
    if len(cache_bytes) < 2:
        return kernel
    body = _fetching(kernel.body, (), frozenset(kernel.reads), cache_bytes)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _fetching(
    statement: Statement, around: tuple[For, ...], reads: frozenset[Buffer], sizes: Sequence[int]
) -> Statement:
    match statement:
        case For(_, _, "serial", body) if _is_sum(body):
            return _with_fetches(statement, around, reads, sizes)
        case For(_, _, "serial" | "parallel", body):
            return replace(statement, body=_fetching(body, (*around, statement), reads, sizes))
        case Guard(_, body) | Allocate(_, body):
            return replace(statement, body=_fetching(body, around, reads, sizes))
        case Block(statements):
            return Block(tuple(_fetching(inner, around, reads, sizes) for inner in statements))
        case For() | Store() | Accumulate() | Fetch():
            return statement


def _is_sum(statement: Statement) -> bool:
    """Whether a statement only accumulates."""
    match statement:
        case Accumulate():
            return True
        case For(_, _, _, body) | Guard(_, body):
            return _is_sum(body)
        case Block(statements):
            return all(map(_is_sum, statements))
        case _:
            return False


def _with_fetches(total: For, around: tuple[For, ...], reads: frozenset[Buffer], sizes: Sequence[int]) -> Statement:
    """The loops of a sum with fetches in the innermost of those that are not written out."""
    serial, body = [total], total.body
    while isinstance(body, For) and body.kind == "serial":
        serial.append(body)
        body = body.body
    inner = [*serial, *loops_in(body)]
    if len({loop.sym for loop in inner}) < len(inner):
        return total
    fetches: list[Statement] = []
    kept = frozenset(sym for update in _updates(body) for index in update.indices for sym in expr.symbols(index))
    for load in distinct_loads(update.value for update in _updates(body)):
        if load.source in reads:
            fetches += _slab_fetches(load, around, serial, inner, kept, sizes)
    if not fetches:
        return total
    changed: Statement = Block((*fetches, *(body.statements if isinstance(body, Block) else (body,))))
    for loop in reversed(serial):
        changed = replace(loop, body=changed)
    return changed


def _slab_fetches(
    load: Load,
    around: tuple[For, ...],
    serial: Sequence[For],
    inner: Sequence[For],
    kept: frozenset[Sym],
    sizes: Sequence[int],
) -> Iterator[Statement]:
    buffer, plain = load.source, tuple(index for index in load.indices if isinstance(index, (int, expr.Expr)))
    assert isinstance(buffer, Buffer)
    place = offset(buffer.shape, plain) if len(plain) == len(load.indices) else 0
    moving = [number for number, loop in enumerate(around) if loop.sym in expr.symbols(place)]
    if not moving:
        return
    slab, step = around[moving[-1]], _period(place, around[moving[-1]].sym)
    slab_bytes = _contiguous_bytes(buffer, plain, inner)
    if not sizes[0] < NEAR_SLABS * slab_bytes or 2 * slab_bytes > SLABS_SHARE * sizes[1] or slab.extent == step:
        return
    counters = [(slab.sym % step, step), *((loop.sym, loop.extent) for loop in (*around[moving[-1] + 1 :], *serial))]
    count: Dim = 0
    steps = 1
    for counter, extent in counters:
        if not isinstance(extent, int):
            return
        count, steps = count * extent + counter, steps * extent
    lines = -(-slab_bytes // LINE_BYTES)
    at_once = -(-lines // max(1, steps))
    if at_once > MOST_AT_ONCE:
        return
    turns: list[Dim] = []
    if steps == prod(loop.extent for loop in serial if isinstance(loop.extent, int)):
        row_bytes = _contiguous_bytes(buffer, plain, [loop for loop in inner if loop.sym not in kept])
        near = list(_read_again(place, around[: moving[-1] + 1], slab_bytes, SLABS_SHARE * sizes[1]))
        is_long = not 0 < row_bytes < LONG_BYTES
        if is_long or not _is_larger(buffer, sizes[1]) or prod(times for _, times in near) > MOST_TIMES:
            return
        turns = [turn for turn, _ in near]
    later: dict[Sym, Dim] = {slab.sym: slab.sym + step, **{loop.sym: 0 for loop in inner}}
    *outer, last = (expr.substitute(index, later) for index in plain)
    fetches: list[Statement] = []
    for number in range(at_once):
        line = count * at_once + number
        if steps * at_once > FEW_IDLE * lines:
            line = expr.minimum(line, lines - 1)
        fetches.append(Fetch(buffer, (*outer, last + line * (LINE_BYTES // buffer.dtype.itemsize)), to_write=False))
    for turn in turns:
        fetches = [Guard(Apply("eq", (Index(turn), Index(0))), Block(tuple(fetches)))]
    yield from fetches


def _is_larger(buffer: Buffer, size_bytes: int) -> bool:
    elements = buffer.type.elements
    return isinstance(elements, int) and elements * buffer.dtype.itemsize > size_bytes


def _read_again(place: Dim, around: Sequence[For], slab_bytes: int, room_bytes: float) -> Iterator[tuple[Dim, int]]:
    """What is 0 where loops come to slabs for the first time and counts the times that these are still near, of how
    many."""
    passed_bytes = slab_bytes
    for loop in reversed(around):
        moves = loop.sym in expr.symbols(place)
        period = _period(place, loop.sym) if moves else loop.extent
        if not isinstance(period, int) or not isinstance(loop.extent, int):
            return
        if period > 1 and passed_bytes <= room_bytes:
            yield (loop.sym % period if moves else loop.sym), period
        if moves:
            passed_bytes *= -(-loop.extent // period)


def _contiguous_bytes(buffer: Buffer, indices: tuple[Dim, ...], loops: Sequence[For]) -> int:
    """What the loops touch, if it lies side by side; else 0."""
    strides = [access_stride(buffer, indices, loop.sym) for loop in loops]
    count, reach = 1, 1
    for stride, loop in zip(strides, loops, strict=True):
        if stride is None or stride < 0 or not isinstance(loop.extent, int):
            return 0
        if stride:
            count, reach = count * loop.extent, reach + stride * (loop.extent - 1)
    return count * buffer.dtype.itemsize if reach == count else 0


def _period(place: Dim, sym: Sym) -> int:
    """After how many iterations an address moves: m if it depends on sym // m alone."""
    return gcd(*_divisors(place, sym))


def _divisors(value: Dim, sym: Sym) -> Iterator[int]:
    """What a symbol is divided by wherever it occurs."""
    for monomial, _ in expr.terms_of(value):
        for atom in monomial:
            match atom:
                case Op("//", left, int(right)) if left == sym:
                    yield right
                case Op(_, left, right):
                    yield from _divisors(left, sym)
                    yield from _divisors(right, sym)
                case Sym():
                    yield from [1] if atom == sym else []


def _updates(statement: Statement) -> Iterator[Accumulate]:
    match statement:
        case Accumulate():
            yield statement
        case For(_, _, _, body) | Guard(_, body):
            yield from _updates(body)
        case Block(statements):
            for inner in statements:
                yield from _updates(inner)
        case _:
            return
