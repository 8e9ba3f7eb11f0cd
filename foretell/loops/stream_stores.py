"""Stores that go past the caches, for results that the caches would not keep anyway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer
from foretell.loops.axes import access_stride
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Guard, Kernel, Statement, Store, loads_in

CACHE_SHARE = 2
"""A result streams if it is larger than the last cache divided by this (docs/decisions/0010)."""
LINE_BYTES = 64


def stream_stores(kernel: Kernel, cache_bytes: int) -> Kernel:
    """Mark the loops of a kernel that fill much memory, so that their lines are neither fetched nor kept.

    before: for i < 8388608 vector: y[i] = x[i]      after: for i < 8388608 stream: y[i] = x[i]

    Declines when less is written than a share of the last cache, or an unknown amount; for loops that do anything but
    store neighbouring elements, in whole lines; and for buffers that the kernel reads or updates.
    """
    written: Dim = 0
    for buffer in kernel.writes:
        written = written + expr.product(buffer.shape) * buffer.dtype.itemsize
    if not isinstance(written, int) or written * CACHE_SHARE <= cache_bytes:
        return kernel
    body = _marked(kernel.body, frozenset(kernel.writes) - frozenset(_reused(kernel.body)))
    return kernel if body == kernel.body else replace(kernel, body=body)


def _marked(statement: Statement, buffers: frozenset[Buffer]) -> Statement:
    match statement:
        case For(sym, extent, "vector", body):
            streams = all(_fills_lines(store, sym, extent, buffers) for store in _statements(body))
            return For(sym, extent, "stream" if streams else "vector", body)
        case For(sym, extent, kind, body):
            return For(sym, extent, kind, _marked(body, buffers))
        case Guard(condition, body):
            return Guard(condition, _marked(body, buffers))
        case Allocate(buffer, body):
            return Allocate(buffer, _marked(body, buffers))
        case Block(statements):
            return Block(tuple(_marked(inner, buffers) for inner in statements))
        case Store() | Accumulate():
            return statement


def _statements(body: Statement) -> Sequence[Statement]:
    return body.statements if isinstance(body, Block) else (body,)


def _fills_lines(statement: Statement, sym: Sym, extent: Dim, buffers: frozenset[Buffer]) -> bool:
    """Whether a statement stores neighbours, and rows of known length end where a line does."""
    if not isinstance(statement, Store) or statement.buffer not in buffers:
        return False
    plain = tuple(index for index in statement.indices if isinstance(index, (int, expr.Expr)))
    if len(plain) != len(statement.indices) or access_stride(statement.buffer, plain, sym) != 1:
        return False
    return not isinstance(extent, int) or extent * statement.buffer.dtype.itemsize % LINE_BYTES == 0


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
