"""Where the lines of large results go: asked for before they are stored to, or past the caches altogether.

A store to a line that is not in the cache first fetches it, though the loop will overwrite it all, and prefetchers that
follow loads serve stores less well. What to do about it depends on how much a kernel moves, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer
from foretell.loops.axes import access_stride
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Guard, Kernel, Statement, Store, loads_in

STREAM_SHARE = 2
"""Results stream if they are larger than the last cache divided by this (docs/decisions/0011)."""
LINE_BYTES = 64
LONG_BYTES = 4096
"""A row shorter than this ends before lines fetched ahead in it are reached."""


def place_stores(kernel: Kernel, cache_bytes: Sequence[int]) -> Kernel:
    """Choose how loops that only store neighbouring elements do it, by the sizes of the caches, nearest first.

    before: for i < 8388608 vector: y[i] = x[i]      after: for i < 8388608 stream: y[i] = x[i]

    `stream` where more is written than a share of the last cache; else `fetch` where more is read and written than the
    cache before that holds. Declines for unknown sizes, and for buffers that the kernel reads or updates.
    """
    written = _total_bytes(kernel.writes)
    moved = written + _total_bytes(kernel.reads)
    if not cache_bytes or not isinstance(written, int) or not isinstance(moved, int):
        return kernel
    *nearer, last = cache_bytes
    if written * STREAM_SHARE > last:
        kind = "stream"
    elif moved > (nearer or [last])[-1]:
        kind = "fetch"
    else:
        return kernel
    body = _placed(kernel.body, kind, frozenset(kernel.writes) - frozenset(_reused(kernel.body)))
    return kernel if body == kernel.body else replace(kernel, body=body)


def _total_bytes(buffers: Sequence[Buffer]) -> Dim:
    total: Dim = 0
    for buffer in buffers:
        total = total + expr.product(buffer.shape) * buffer.dtype.itemsize
    return total


def _placed(statement: Statement, kind: str, buffers: frozenset[Buffer]) -> Statement:
    match statement:
        case For(sym, extent, "vector", body):
            suits = all(_fills_lines(store, kind, sym, extent, buffers) for store in _statements(body))
            return For(sym, extent, kind, body) if suits else statement
        case For(sym, extent, other, body):
            return For(sym, extent, other, _placed(body, kind, buffers))
        case Guard(condition, body):
            return Guard(condition, _placed(body, kind, buffers))
        case Allocate(buffer, body):
            return Allocate(buffer, _placed(body, kind, buffers))
        case Block(statements):
            return Block(tuple(_placed(inner, kind, buffers) for inner in statements))
        case Store() | Accumulate():
            return statement


def _statements(body: Statement) -> Sequence[Statement]:
    return body.statements if isinstance(body, Block) else (body,)


def _fills_lines(statement: Statement, kind: str, sym: Sym, extent: Dim, buffers: frozenset[Buffer]) -> bool:
    """Whether a statement stores neighbours; and rows of known length are whole lines, or long, as the kind needs."""
    if not isinstance(statement, Store) or statement.buffer not in buffers:
        return False
    plain = tuple(index for index in statement.indices if isinstance(index, (int, expr.Expr)))
    if len(plain) != len(statement.indices) or access_stride(statement.buffer, plain, sym) != 1:
        return False
    if not isinstance(extent, int):
        return True
    row_bytes = extent * statement.buffer.dtype.itemsize
    return row_bytes % LINE_BYTES == 0 if kind == "stream" else row_bytes >= LONG_BYTES


def _reused(statement: Statement) -> Iterator[Buffer]:
    """Buffers that are loaded or updated."""
    match statement:
        case For(_, _, _, body) | Guard(_, body) | Allocate(_, body):
            yield from _reused(body)
        case Block(statements):
            for inner in statements:
                yield from _reused(inner)
        case Store(_, indices, value):
            scalars = [value, *(index for index in indices if not isinstance(index, (int, expr.Expr)))]
            for load in (load for scalar in scalars for load in loads_in(scalar)):
                if isinstance(load.source, Buffer):
                    yield load.source
        case Accumulate(buffer, _, _, value):
            yield buffer
            for load in loads_in(value):
                if isinstance(load.source, Buffer):
                    yield load.source
