"""Operands that serve many tiles: the next slab is asked for while the tiles of this one are computed.

A slab of weights comes from far away when its first tile needs it, and from near for all others. Prefetchers do not
know which one is next: it begins anywhere. Lines asked for one at a time, between multiply-adds, cost next to nothing.
Slabs that serve one tile only, the rows of that tile or weights that few rows use, are asked for where the second cache
cannot have them yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import gcd, prod
from typing import TypeAlias

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

MOST_AT_ONCE = 8
"""Lines asked for in one step of a sum: with more, memory is the limit, and not its latency."""
MANY = 1 << 20
"""Tiles of a loop whose extent is not known."""
SLABS_SHARE = 0.75
"""The part of the second cache in which this slab and the next have to stay."""
NEAREST_SHARE = 0.5
"""The part of the first cache up to which a slab is fetched into it: a larger one would push out what is in use."""
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

    The latter is for slabs that serve one tile, of operands larger than the second cache, but not for rows so long
    that prefetchers that follow them pay; the condition, if that cache holds what an iteration of o reads. Tiles of
    different sizes that a slab serves once each share its successor. Declines for slabs that are not contiguous, too
    large for the second cache twice over, or very small.
    """
    if len(cache_bytes) < 2:
        return kernel
    body = _Fetching(frozenset(kernel.reads), cache_bytes).statement(kernel.body, (), {})
    return kernel if body == kernel.body else replace(kernel, body=body)


Share: TypeAlias = tuple[int, int]
"""Which of so many equal parts of a slab."""
WHOLE: Share = (0, 1)
Shares: TypeAlias = Mapping[Buffer, Share | None]
"""What is left of slabs that serve one tile for it to fetch, where that is not all; None for nothing."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """Where a sum is computed: loops around it, its own that are not written out, and all of its own."""

    around: tuple[For, ...]
    serial: tuple[For, ...]
    inner: tuple[For, ...]
    kept: frozenset[Sym]
    """What says which of a tile's sums is added to."""

    @property
    def steps(self) -> int:
        return prod(loop.extent for loop in self.serial if isinstance(loop.extent, int))


@dataclass(frozen=True, slots=True)
class _Fetching:
    reads: frozenset[Buffer]
    sizes: Sequence[int]

    def statement(self, statement: Statement, around: tuple[For, ...], shares: Shares) -> Statement:
        match statement:
            case For(_, _, "serial", body) if _is_sum(body):
                return self._total(statement, around, shares)
            case For(_, _, "serial" | "parallel", body):
                return replace(statement, body=self.statement(body, (*around, statement), shares))
            case Guard(_, body) | Allocate(_, body):
                return replace(statement, body=self.statement(body, around, shares))
            case Block(statements):
                own = _shares(statements, shares)
                return Block(tuple(map(self.statement, statements, repeat(around), own)))
            case For() | Store() | Accumulate() | Fetch():
                return statement

    def _total(self, total: For, around: tuple[For, ...], shares: Shares) -> Statement:
        """The loops of a sum with fetches in the innermost of those that are not written out."""
        serial, body = [total], total.body
        while isinstance(body, For) and body.kind == "serial":
            serial.append(body)
            body = body.body
        inner = (*serial, *loops_in(body))
        if len({loop.sym for loop in inner}) < len(inner):
            return total
        kept = frozenset(sym for update in _updates(body) for index in update.indices for sym in expr.symbols(index))
        place = _Sum(around, tuple(serial), inner, kept)
        fetches: list[Statement] = []
        for load in distinct_loads(update.value for update in _updates(body)):
            if isinstance(load.source, Buffer) and load.source in self.reads:
                fetches += self._slab(load, place, shares.get(load.source, WHOLE))
        if not fetches:
            return total
        changed: Statement = Block((*fetches, *(body.statements if isinstance(body, Block) else (body,))))
        for loop in reversed(serial):
            changed = replace(loop, body=changed)
        return changed

    def _slab(self, load: Load, place: _Sum, share: Share | None) -> Iterator[Statement]:
        buffer, plain = load.source, tuple(index for index in load.indices if isinstance(index, (int, expr.Expr)))
        assert isinstance(buffer, Buffer)
        address = offset(buffer.shape, plain) if len(plain) == len(load.indices) else 0
        moving = [number for number, loop in enumerate(place.around) if loop.sym in expr.symbols(address)]
        if not moving:
            return
        slab, apart = place.around[moving[-1]], _period(address, place.around[moving[-1]].sym)
        slab_bytes, (first, second, *_) = _contiguous_bytes(buffer, plain, place.inner), self.sizes
        if not first < NEAR_SLABS * slab_bytes or 2 * slab_bytes > SLABS_SHARE * second or slab.extent == apart:
            return
        counters = [(slab.sym % apart, apart)]
        counters += [(loop.sym, loop.extent) for loop in (*place.around[moving[-1] + 1 :], *place.serial)]
        count: Dim = 0
        steps = 1
        for counter, extent in counters:
            if not isinstance(extent, int):
                return
            count, steps = count * extent + counter, steps * extent
        turns: list[Dim] | None = []
        number, parts = WHOLE
        if steps == place.steps:
            turns = self._try_turns(buffer, plain, place, slab_bytes) if share else None
            number, parts = share or WHOLE
        lines = -(-slab_bytes // LINE_BYTES)
        part = -(-lines // parts)
        at_once = -(-part // max(1, steps))
        if turns is None or at_once > MOST_AT_ONCE:
            return
        later: dict[Sym, Dim] = {slab.sym: slab.sym + apart, **{loop.sym: 0 for loop in place.inner}}
        *outer, last = (expr.substitute(index, later) for index in plain)
        into = 1 if slab_bytes <= NEAREST_SHARE * first else 2
        fetches: list[Statement] = []
        for each in range(at_once):
            line = number * part + count * at_once + each
            if steps * at_once > FEW_IDLE * part:
                line = expr.minimum(line, (number + 1) * part - 1)
            element = last + line * (LINE_BYTES // buffer.dtype.itemsize)
            fetches.append(Fetch(buffer, (*outer, element), to_write=False, cache=into))
        for turn in turns:
            fetches = [Guard(Apply("eq", (Index(turn), Index(0))), Block(tuple(fetches)))]
        yield from fetches

    def _try_turns(self, buffer: Buffer, indices: tuple[Dim, ...], place: _Sum, slab_bytes: int) -> list[Dim] | None:
        """What has to be 0 for a slab that serves one tile to be fetched; None if it should not be."""
        row_bytes = _contiguous_bytes(buffer, indices, [loop for loop in place.inner if loop.sym not in place.kept])
        if row_bytes >= LONG_BYTES or not _is_larger(buffer, self.sizes[1]):
            return None
        near = list(_read_again(offset(buffer.shape, indices), place.around, slab_bytes, SLABS_SHARE * self.sizes[1]))
        return [turn for turn, _ in near] if prod(times for _, times in near) <= MOST_TIMES else None


def _shares(statements: Sequence[Statement], around: Shares) -> Iterator[Shares]:
    """For statements that use the same slabs one after the other: equal parts where each has one tile, else all for the
    one with most."""
    tiles = [Counter[Buffer]() if isinstance(each, Guard) else _tile_counts(each) for each in statements]
    for number, own in enumerate(tiles):
        found = dict(around)
        for buffer in own:
            users = [other for other, counts in enumerate(tiles) if counts[buffer]]
            most = max(users, key=lambda user: tiles[user][buffer])
            if len(users) > 1 and tiles[most][buffer] == 1:
                found[buffer] = users.index(number), len(users)
            elif number != most:
                found[buffer] = None
        yield found


def _tile_counts(statement: Statement) -> Counter[Buffer]:
    """Sums that follow one another in a statement, by what they read, as far as that is known."""
    match statement:
        case For(_, _, "serial", body) if _is_sum(body):
            loads = distinct_loads(update.value for update in _updates(body))
            return Counter({load.source for load in loads if isinstance(load.source, Buffer)})
        case For(_, extent, _, body):
            times = extent if isinstance(extent, int) else MANY
            return Counter({buffer: times * count for buffer, count in _tile_counts(body).items()})
        case Guard(_, body) | Allocate(_, body):
            return _tile_counts(body)
        case Block(statements):
            return sum(map(_tile_counts, statements), Counter[Buffer]())
        case Store() | Accumulate() | Fetch():
            return Counter()


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
