"""Invariants of the loop IR, asserted: a kernel that breaks one is our bug, never the user's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.dtypes import BOOL
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    PRIMITIVES,
    REDUCTIONS,
    Apply,
    Buffer,
    Cast,
    Const,
    Index,
    Load,
    Scalar,
    Select,
    dtype_of,
)
from foretell.loops.nodes import (
    LOOP_KINDS,
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
    free_symbols,
)

Indices: TypeAlias = "tuple[Dim | Scalar, ...]"


def verify(kernel: Kernel, symbols: frozenset[Sym] | None = None) -> None:
    """Assert that a kernel is well formed.

    - A symbol is one of `symbols` (those no loop binds, unless told) or bound by a loop around its use, whose range
      it allows for.
    - A parallel loop is the outermost statement; a vector loop holds no other one.
    - Loads name what the kernel reads, or what it has stored to before; stores name what it writes or has allocated.
    - Accesses have one index per dimension, and none that is sure to happen is out of bounds at a corner of its loops.
    - Types agree: of loads with buffers, of operands with each other, of conditions with bool.
    """
    for buffer in (*kernel.reads, *kernel.writes):
        assert buffer.scope == "table", f"{kernel.name}: {buffer} is a parameter but lives in a {buffer.scope}"
    shared = set(kernel.reads) & set(kernel.writes)
    assert not shared, f"{kernel.name}: {min(map(str, shared))} is both read and written, yet promised not to alias"
    bound = free_symbols(kernel) if symbols is None else symbols
    _verify_statement(kernel.body, _Scope(kernel, bound, written=set(kernel.reads)))


@dataclass(frozen=True, slots=True)
class _Scope:
    """What stands around a statement."""

    kernel: Kernel
    symbols: frozenset[Sym]
    written: set[Buffer]
    """Buffers that hold values by now; shared by all scopes, since statements are visited in order."""
    loops: tuple[For, ...] = ()
    allocated: frozenset[Buffer] = field(default_factory=frozenset)
    guarded: bool = False
    """Whether a condition may keep what is here from running."""

    def demand(self, holds: bool, what: str) -> None:
        assert holds, f"kernel {self.kernel.name}: {what}"


def _verify_statement(statement: Statement, scope: _Scope) -> None:
    match statement:
        case Block(statements):
            for inner in statements:
                _verify_statement(inner, scope)
        case For():
            _verify_loop(statement, scope)
        case Store(buffer, indices, value):
            _verify_scalar(value, scope)
            _verify_target(buffer, indices, scope)
            same_kind = dtype_of(value) == buffer.dtype.compute
            scope.demand(same_kind, f"{buffer} of {buffer.dtype} is given {dtype_of(value)}")
            scope.written.add(buffer)
        case Accumulate():
            _verify_accumulate(statement, scope)
        case Fetch(buffer, indices):
            _verify_fetch(buffer, indices, scope)
        case Guard(condition, body):
            _verify_condition(condition, scope)
            _verify_statement(body, replace(scope, guarded=True))
        case Allocate(buffer, body):
            _verify_allocation(buffer, scope)
            _verify_statement(body, replace(scope, allocated=scope.allocated | {buffer}))
            scope.written.discard(buffer)


def _verify_loop(loop: For, scope: _Scope) -> None:
    scope.demand(loop.kind in LOOP_KINDS, f"{loop.kind!r} is no kind of loop")
    scope.demand(loop.kind != "parallel" or loop is scope.kernel.body, f"parallel loop {loop.sym} is not outermost")
    inside_vector = any(outer.kind in VECTOR_KINDS for outer in scope.loops)
    scope.demand(loop.kind not in VECTOR_KINDS or not inside_vector, f"vector loop {loop.sym} stands in another one")
    scope.demand(all(loop.sym != outer.sym for outer in scope.loops), f"loop {loop.sym} is bound twice")
    _verify_symbols(loop.extent, scope)
    _verify_range(loop, scope)
    _verify_statement(loop.body, replace(scope, loops=(*scope.loops, loop), symbols=scope.symbols | {loop.sym}))


def _verify_range(loop: For, scope: _Scope) -> None:
    """What a symbol declares of itself must hold for all values of its loop: simplification relied on it."""
    scope.demand(loop.sym.lo <= 0 and loop.sym.multiple_of == 1, f"{loop.sym} excludes values of its loop")
    if loop.sym.hi is not None:
        _, last = expr.bounds(loop.extent)
        fits = last is not None and last <= loop.sym.hi + 1
        scope.demand(fits, f"{loop.sym} is at most {loop.sym.hi}, but its loop runs to {loop.extent}")


def _verify_allocation(buffer: Buffer, scope: _Scope) -> None:
    scope.demand(buffer.scope in ("stack", "register"), f"{buffer} of scope {buffer.scope} is allocated")
    scope.demand(buffer.type.is_static, f"{buffer} needs a known size")
    scope.demand(buffer not in scope.allocated, f"{buffer} is allocated twice")
    in_vector = any(loop.kind in VECTOR_KINDS for loop in scope.loops)
    scope.demand(buffer.scope == "register" or not in_vector, f"the lanes of a vector loop share {buffer}")


def _verify_accumulate(statement: Accumulate, scope: _Scope) -> None:
    buffer, value = statement.buffer, statement.value
    scope.demand(statement.reduction in REDUCTIONS, f"{statement.reduction!r} is no reduction")
    _verify_scalar(value, scope)
    _verify_target(buffer, statement.indices, scope)
    scope.demand(buffer in scope.written, f"{buffer} is accumulated into before it holds a value")
    scope.demand(buffer.dtype == buffer.dtype.compute, f"{buffer} would round each partial result to {buffer.dtype}")
    scope.demand(dtype_of(value) == buffer.dtype, f"{buffer} of {buffer.dtype} accumulates {dtype_of(value)}")


def _verify_fetch(buffer: Buffer, indices: Indices, scope: _Scope) -> None:
    known = buffer in scope.kernel.reads or buffer in scope.kernel.writes
    scope.demand(known, f"{buffer} is fetched but neither read nor written")
    _verify_access(buffer, indices, replace(scope, guarded=True))


def _verify_target(buffer: Buffer, indices: Indices, scope: _Scope) -> None:
    known = buffer in scope.allocated or buffer in scope.kernel.writes
    scope.demand(known, f"{buffer} is stored to but neither written nor allocated")
    _verify_access(buffer, indices, scope)


# --- scalars -------------------------------------------------------------------------------------------------


def _verify_scalar(scalar: Scalar, scope: _Scope) -> None:
    match scalar:
        case Const():
            return
        case Index(value):
            _verify_symbols(value, scope)
        case Load(buffer, indices, dtype):
            assert isinstance(buffer, Buffer), f"{scalar} is not lowered"
            # A condition may keep the first iteration from reading what only later ones find written.
            scope.demand(scope.guarded or buffer in scope.written, f"{buffer} is read but holds nothing")
            scope.demand(dtype == buffer.dtype, f"{buffer} of {buffer.dtype} is loaded as {dtype}")
            _verify_access(buffer, indices, scope)
        case Cast(value):
            _verify_scalar(value, scope)
        case Select(condition, then, otherwise):
            _verify_condition(condition, scope)
            for branch in (then, otherwise):
                _verify_scalar(branch, replace(scope, guarded=True))
            scope.demand(dtype_of(then) == dtype_of(otherwise), f"branches of {scalar} differ in type")
        case Apply(op, arguments):
            for argument in arguments:
                _verify_scalar(argument, scope)
            _verify_operands(op, arguments, scope)


def _verify_operands(op: str, arguments: tuple[Scalar, ...], scope: _Scope) -> None:
    scope.demand(op in PRIMITIVES, f"{op!r} is no primitive")
    count = 2 if op in ARITHMETIC | BITWISE | COMPARISONS else 1
    scope.demand(len(arguments) == count, f"{op} takes {count} arguments, not {len(arguments)}")
    types = {dtype_of(argument) for argument in arguments}
    scope.demand(len(types) == 1, f"{op} has operands of {', '.join(sorted(map(str, types)))}")


def _verify_condition(condition: Scalar, scope: _Scope) -> None:
    _verify_scalar(condition, scope)
    scope.demand(dtype_of(condition) == BOOL, f"condition {condition} is {dtype_of(condition)}")


def _verify_symbols(value: Dim, scope: _Scope) -> None:
    for symbol in sorted(expr.symbols(value) - scope.symbols, key=str):
        scope.demand(False, f"{symbol} is used outside its loop")


# --- accesses ------------------------------------------------------------------------------------------------


def _verify_access(buffer: Buffer, indices: Indices, scope: _Scope) -> None:
    rank = len(buffer.shape)
    scope.demand(len(indices) == rank, f"{buffer} of rank {rank} is accessed with {len(indices)} indices")
    for index, extent in zip(indices, buffer.shape, strict=True):
        if isinstance(index, (int, expr.Expr)):
            _verify_symbols(index, scope)
            if not scope.guarded:
                _verify_bounds(buffer, index, extent, scope)
        else:
            _verify_scalar(index, scope)
            scope.demand(dtype_of(index).is_integer, f"{buffer} is indexed with {dtype_of(index)}")


def _verify_bounds(buffer: Buffer, index: Dim, extent: Dim, scope: _Scope) -> None:
    """No corner of the loops is outside for certain. For a linear index and known extents this is a proof."""
    if any(_is_surely_empty(loop) for loop in scope.loops):
        return
    for place in corners(index, scope.loops):
        _, highest = expr.bounds(place)
        _, room = expr.bounds(extent - 1 - place)
        inside = (highest is None or highest >= 0) and (room is None or room >= 0)
        scope.demand(inside, f"index {index} of {buffer} reaches {place}, outside {extent}")


def _is_surely_empty(loop: For) -> bool:
    _, highest = expr.bounds(loop.extent)
    return highest is not None and highest <= 0


def corners(index: Dim, loops: tuple[For, ...]) -> tuple[Dim, Dim]:
    """The index where it is least and greatest, if it is linear; else at the first and the last point of all loops."""
    linear = expr.try_linear(index, frozenset(loop.sym for loop in loops))
    signs = {} if linear is None else linear[0]
    rising = {loop.sym: signs.get(loop.sym, 1) > 0 for loop in loops}
    falling = {sym: not rises for sym, rises in rising.items()}
    return _at_corner(index, loops, falling), _at_corner(index, loops, rising)


def _at_corner(index: Dim, loops: tuple[For, ...], at_end: dict[Sym, bool]) -> Dim:
    """The index at one point: inner loops first, since their extents may mention the symbols of outer ones."""
    for loop in reversed(loops):
        index = expr.substitute(index, {loop.sym: loop.extent - 1 if at_end[loop.sym] else 0})
    return index
