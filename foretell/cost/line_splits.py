"""How many vectors of a loop lie across the end of a cache line, where a port works on each half in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from statistics import fmean

from foretell.codegen.loop_shape import vector_steps
from foretell.ir import expr
from foretell.ir.expr import Dim, Expr, Sym
from foretell.ir.tensor_expr import Buffer, Scalar
from foretell.loops.nodes import (
    VECTOR_KINDS,
    Accumulate,
    Allocate,
    Block,
    Fetch,
    For,
    Guard,
    Statement,
    Store,
    distinct_loads,
    offset,
)

LINE_BYTES = 64


def line_splits(loop: For, vector_bytes: int) -> tuple[float, float]:
    """The share of split vectors among those that a loop itself loads, and among those that it stores.

    Buffers begin with a line; places within one are taken to be equally likely, as far as strides leave them open.
    """
    loads: list[float] = []
    stores: list[float] = []
    for is_store, share in _shares(loop, None, vector_bytes):
        (stores if is_store else loads).append(share)
    return fmean(loads) if loads else 0.0, fmean(stores) if stores else 0.0


@dataclass(frozen=True, slots=True)
class _Along:
    """The vector loop around an access."""

    sym: Sym
    lanes: int


def _shares(loop: For, along: _Along | None, vector_bytes: int) -> Iterator[tuple[bool, float]]:
    """Whether an access is a store, and how often it is split; loops that count have their own."""
    if loop.kind in VECTOR_KINDS:
        along = _Along(loop.sym, vector_steps(loop.body, loop.extent, vector_bytes)[1])
    yield from _shares_inside(loop.body, along, vector_bytes)


def _shares_inside(statement: Statement, along: _Along | None, vector_bytes: int) -> Iterator[tuple[bool, float]]:
    match statement:
        case For(_, _, kind):
            if kind == "unroll" or kind in VECTOR_KINDS:
                yield from _shares(statement, along, vector_bytes)
        case Block(statements):
            for inner in statements:
                yield from _shares_inside(inner, along, vector_bytes)
        case Allocate(_, body) | Guard(_, body):
            yield from _shares_inside(body, along, vector_bytes)
        case Store(buffer, indices, value):
            yield from _of_loads(value, along)
            yield from _of_access(True, buffer, indices, along)
        case Accumulate(_, _, _, value):
            yield from _of_loads(value, along)
        case Fetch():
            return


def _of_loads(value: Scalar, along: _Along | None) -> Iterator[tuple[bool, float]]:
    for load in distinct_loads([value]):
        if isinstance(load.source, Buffer):
            yield from _of_access(False, load.source, load.indices, along)


def _of_access(
    is_store: bool, buffer: Buffer, indices: Sequence[Dim | Scalar], along: _Along | None
) -> Iterator[tuple[bool, float]]:
    plain = tuple(index for index in indices if isinstance(index, (int, Expr)))
    if along is None or buffer.scope == "register" or len(plain) < len(indices):
        return
    place = offset(buffer.shape, plain)
    if along.sym not in expr.symbols(place):
        return
    item = buffer.dtype.itemsize
    width = along.lanes * item
    unit = gcd(LINE_BYTES, width, *(item * step for step in _steps(place, along.sym)))
    yield is_store, max(0, min(width, LINE_BYTES) - unit) / LINE_BYTES


def _steps(place: Dim, along: Sym) -> list[int]:
    """What a place moves by as anything but the loop in vectors goes on."""
    return [coefficient for monomial, coefficient in expr.terms_of(place) if monomial != (along,)]
