"""Where the cache lines of large tensors go: asked for before they are touched, or past the caches altogether.

A store to a line that is not in the cache first fetches it, though the loop will overwrite it all, and prefetchers that
follow loads serve stores less well. A loop that passes several times over each row waits for memory in the first pass
and leaves it idle in the others. What to do about it depends on how much a kernel moves, and on nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer, Load
from foretell.loops.axes import access_stride
from foretell.loops.nodes import (
    VECTOR_KINDS,
    Accumulate,
    Allocate,
    Block,
    Fetch,
    For,
    Guard,
    Kernel,
    Statement,
    Store,
    Substituted,
    loads_once,
    loops_in,
    substitute_index,
)

STREAM_SHARE = 2
"""Results stream if they are larger than the last cache divided by this (docs/decisions/0011)."""
LINE_BYTES = 64
LONG_BYTES = 4096
"""A row shorter than this ends before lines fetched ahead in it are reached."""
AHEAD_BYTES = 1024
"""How far ahead of stores their lines are asked for: sixteen lines, about what a core can wait for at a time."""
READ_AHEAD_BYTES = 2048
"""The same for loads."""
NEXT_SHARE = 4
"""The next row is fetched while this one is worked on if so many rows fit in the nearest cache, or in the second one
where this row is read again: then it comes while others than loads keep the core busy."""
ANYWHERE = Sym("anywhere")


def place_lines(kernel: Kernel, cache_bytes: Sequence[int]) -> Kernel:
    """Choose how vector loops get at large tensors, by the sizes of the caches, nearest first.

    before: for i < 8388608 vector: y[i] = x[i]      after: for i < 8388608 stream: y[i] = x[i]

    Where more is written than a share of the last cache, loops that only store neighbouring elements `stream`. Where
    more is read and written than the cache before that holds, loops fetch the lines they will store to, those that read
    a row again fetch the next, and others that only read fetch what they will read. Declines for unknown sizes, and
    does not stream what the kernel reads or updates.
    """
    written = _total_bytes(kernel.writes)
    moved = written + _total_bytes(kernel.reads)
    if not cache_bytes or not isinstance(written, int) or not isinstance(moved, int):
        return kernel
    *nearer, last = cache_bytes
    if moved <= (nearer or [last])[-1]:
        return kernel
    body = kernel.body
    if written * STREAM_SHARE > last:
        body = _streamed(body, frozenset(kernel.writes) - frozenset(_reused(body)))
    loads = {id(loop): _loads_of(loop, kernel.reads) for loop in loops_in(body) if loop.kind in VECTOR_KINDS}
    body = _fetching(body, _Round(kernel, cache_bytes, loads))
    return kernel if body == kernel.body else replace(kernel, body=body)


def _total_bytes(buffers: Sequence[Buffer]) -> Dim:
    total: Dim = 0
    for buffer in buffers:
        total = total + expr.product(buffer.shape) * buffer.dtype.itemsize
    return total


# --- past the caches -----------------------------------------------------------------------------------------


def _streamed(statement: Statement, buffers: frozenset[Buffer]) -> Statement:
    match statement:
        case For(sym, extent, "vector", body):
            suits = all(_fills_lines(store, sym, extent, buffers) for store in _statements(body))
            return For(sym, extent, "stream", body) if suits else statement
        case For(sym, extent, kind, body):
            return For(sym, extent, kind, _streamed(body, buffers))
        case Guard(condition, body):
            return Guard(condition, _streamed(body, buffers))
        case Allocate(buffer, body):
            return Allocate(buffer, _streamed(body, buffers))
        case Block(statements):
            return Block(tuple(_streamed(inner, buffers) for inner in statements))
        case Store() | Accumulate() | Fetch():
            return statement


def _fills_lines(statement: Statement, sym: Sym, extent: Dim, buffers: frozenset[Buffer]) -> bool:
    """Whether a statement stores neighbours, and rows of known length are whole lines."""
    if not isinstance(statement, Store) or statement.buffer not in buffers:
        return False
    if not _are_neighbours(statement.buffer, statement.indices, sym):
        return False
    return not isinstance(extent, int) or extent * statement.buffer.dtype.itemsize % LINE_BYTES == 0


def _reused(statement: Statement) -> Iterator[Buffer]:
    """Buffers that are loaded or updated."""
    for inner in _leaves(statement):
        if isinstance(inner, Accumulate):
            yield inner.buffer
        yield from (load.source for load in _loads(inner) if isinstance(load.source, Buffer))


# --- asked for in time ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Round:
    """One iteration of the loop around vector loops: what they have touched so far, in order."""

    kernel: Kernel
    cache_bytes: Sequence[int]
    loads: Mapping[int, Mapping[Load, Load]]
    """Those of vector loops, by identity: what is read of the kernel's operands, and the same as if by one variable."""
    around: Sym | None = None
    repeated: frozenset[Load] = frozenset()
    """What several loops load, each as if by one and the same variable."""
    stored: set[Buffer] = field(default_factory=set)
    loaded: set[Load] = field(default_factory=set)
    """By earlier loops, in the same way."""
    fetched: set[Load] = field(default_factory=set)


def _fetching(statement: Statement, now: _Round) -> Statement:
    match statement:
        case For(_, _, kind) if kind in VECTOR_KINDS:
            return _with_fetches(statement, now)
        case For(sym, extent, kind, body):
            following = _Round(now.kernel, now.cache_bytes, now.loads, sym, _repeated(body, now.loads))
            return For(sym, extent, kind, _fetching(body, following))
        case Guard(condition, body):
            return Guard(condition, _fetching(body, now))
        case Allocate(buffer, body):
            return Allocate(buffer, _fetching(body, now))
        case Block(statements):
            return Block(tuple(_fetching(inner, now) for inner in statements))
        case Store() | Accumulate() | Fetch():
            return statement


def _with_fetches(loop: For, now: _Round) -> Statement:
    """The loop with fetches in front of its statements; declines for loops around others."""
    statements = _statements(loop.body)
    if not all(isinstance(inner, (Store, Accumulate)) for inner in statements):
        return loop
    fetches = [*_for_loads(loop, now)]
    if loop.kind == "vector":
        fetches += _for_stores(loop, now)
    now.loaded.update(now.loads[id(loop)].values())
    now.stored.update(inner.buffer for inner in statements if isinstance(inner, (Store, Accumulate)))
    return replace(loop, body=Block((*fetches, *statements))) if fetches else loop


def _for_stores(loop: For, now: _Round) -> Iterator[Fetch]:
    """The lines of stores a little later, unless another loop had them, or the row is short."""
    for store in _statements(loop.body):
        if not isinstance(store, Store) or store.buffer not in now.kernel.writes or store.buffer in now.stored:
            continue
        if _are_neighbours(store.buffer, store.indices, loop.sym) and _is_long(loop, store.buffer):
            yield _ahead(store.buffer, store.indices, AHEAD_BYTES, to_write=True)


def _for_loads(loop: For, now: _Round) -> Iterator[Fetch]:
    """What the next round will load, where this one loads it again; and what another loop that only reads waits for.

    The latter comes from a little further on in a long row, or from the next round.
    """
    only_reads = not any(
        isinstance(inner, Store) and inner.buffer in now.kernel.writes for inner in _statements(loop.body)
    )
    for load, known in now.loads[id(loop)].items():
        buffer = load.source
        assert isinstance(buffer, Buffer)
        if not _are_neighbours(buffer, load.indices, loop.sym) or known in now.fetched:
            continue
        is_again = known in now.loaded
        if known in now.repeated and now.around and _fits(loop, buffer, now.cache_bytes[:2][-1]):
            if is_again:
                yield _next_round(load, now.around)
                now.fetched.add(known)
        elif only_reads and not is_again and _is_long(loop, buffer):
            yield _ahead(buffer, load.indices, READ_AHEAD_BYTES, to_write=False)
        elif only_reads and now.around and _fits(loop, buffer, now.cache_bytes[0]):
            yield _next_round(load, now.around)
            now.fetched.add(known)


def _repeated(body: Statement, loads: Mapping[int, Mapping[Load, Load]]) -> frozenset[Load]:
    """Loads that more than one vector loop has."""
    inside = (loads[id(loop)] for loop in loops_in(body) if loop.kind in VECTOR_KINDS)
    counts = Counter(known for each in inside for known in each.values())
    return frozenset(load for load, count in counts.items() if count > 1)


def _fits(loop: For, buffer: Buffer, cache_bytes: int) -> bool:
    """Whether a row is long enough for the next one to come in time, and short enough for both to stay."""
    _, longest = expr.bounds(loop.extent)
    row_bytes = (longest or 0) * buffer.dtype.itemsize
    return AHEAD_BYTES <= row_bytes <= cache_bytes // NEXT_SHARE


def _is_long(loop: For, buffer: Buffer) -> bool:
    _, longest = expr.bounds(loop.extent)
    return longest is None or longest * buffer.dtype.itemsize >= LONG_BYTES


def _next_round(load: Load, around: Sym) -> Fetch:
    assert isinstance(load.source, Buffer)
    later = {around: around + 1}
    return Fetch(load.source, tuple(expr.substitute(index, later) for index in _plain(load.indices)), to_write=False)


def _ahead(buffer: Buffer, indices: Sequence[object], distance_bytes: int, *, to_write: bool) -> Fetch:
    *outer, last = _plain(indices)
    return Fetch(buffer, (*outer, last + distance_bytes // buffer.dtype.itemsize), to_write)


# --- statements and indices ----------------------------------------------------------------------------------


def _statements(body: Statement) -> Sequence[Statement]:
    return body.statements if isinstance(body, Block) else (body,)


def _leaves(statement: Statement) -> Iterator[Statement]:
    match statement:
        case For(_, _, _, body) | Guard(_, body) | Allocate(_, body):
            yield from _leaves(body)
        case Block(statements):
            for inner in statements:
                yield from _leaves(inner)
        case _:
            yield statement


def _loads(statement: Statement) -> Iterator[Load]:
    """What a statement reads, each object once."""
    if isinstance(statement, (Store, Accumulate)):
        for scalar in (statement.value, *(i for i in statement.indices if not isinstance(i, (int, expr.Expr)))):
            yield from loads_once(scalar)


def _loads_of(loop: For, buffers: Sequence[Buffer]) -> dict[Load, Load]:
    """The loads of a loop from some buffers, each once, and what they are as if by one and the same variable."""
    known = frozenset(buffers)
    loads = (load for inner in _statements(loop.body) for load in _loads(inner) if load.source in known)
    done = Substituted()
    return {load: _anywhere(load, loop.sym, done) for load in dict.fromkeys(loads)}


def _plain(indices: Sequence[object]) -> tuple[Dim, ...]:
    """The indices that do not come from data."""
    return tuple(index for index in indices if isinstance(index, (int, expr.Expr)))


def _are_neighbours(buffer: Buffer, indices: Sequence[object], sym: Sym) -> bool:
    plain = _plain(indices)
    return len(plain) == len(buffer.shape) and access_stride(buffer, plain, sym) == 1


def _anywhere(load: Load, sym: Sym, done: Substituted) -> Load:
    indices = tuple(substitute_index(index, {sym: ANYWHERE}, done) for index in load.indices)
    return Load(load.source, indices, load.dtype)
