"""Loops over functions of functions, cut so that each computes one.

A function of vector math is a chain of some twenty instructions, each waiting for the one before. A core hides that by
looking ahead to elements that do not depend on it, as far as its window reaches. Two functions in a row double the wait
but not the window: tanh(x sigmoid(x)) took 42 to 47 cycles a vector in one loop, and takes 32 in two.
"""

from __future__ import annotations

from collections.abc import Iterator

from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Load, Scalar, dtype_of, scalars
from foretell.loops.nodes import Allocate, Block, For, Statement, Store
from foretell.loops.stages import OPERATION_COSTS

LONG_COST = 10.0
"""Operations that cost at least this are the long chains."""


def is_chain(body: Statement) -> bool:
    """Whether a store's value has a function of a function's result, computed for every element."""
    store = _only_store(body)
    return store is not None and any(True for _ in _cuts(store.value))


def split_chain(sym: Sym, extent: Dim, points: int, body: Statement) -> Statement:
    """A vector loop as several, each with one function of those that take one another's results.

    before: for j vector: y[j] = tanh(mul(x[j], sigmoid(x[j])))
    after:  for j vector: t[j] = mul(x[j], sigmoid(x[j]));  for j vector: y[j] = tanh(t[j])

    requires: `is_chain(body)`, and an extent of at most `points`, the length of t. What a select may not evaluate stays
    where it is.
    """
    store = _only_store(body)
    assert store is not None, "only a single store is cut"
    value, loops, rows = store.value, list[Statement](), list[Buffer]()
    while (part := next(_cuts(value), None)) is not None:
        row = Buffer(f"{store.buffer.name}.part{len(rows)}", dtype_of(part), (points,), "stack")
        loops.append(For(sym, extent, "vector", Store(row, (sym,), part)))
        value = _replaced(value, part, Load(row, (sym,), row.dtype))
        rows.append(row)
    loops.append(For(sym, extent, "vector", Store(store.buffer, store.indices, value)))
    result: Statement = Block(tuple(loops))
    for row in reversed(rows):
        result = Allocate(row, result)
    return result


def _only_store(body: Statement) -> Store | None:
    match body:
        case Store() as store:
            return store
        case Block((Store() as store,)):
            return store
        case _:
            return None


def _cuts(value: Scalar) -> Iterator[Scalar]:
    """Arguments of long functions that need one themselves, innermost first."""
    match value:
        case Apply(_, arguments):
            for argument in arguments:
                yield from _cuts(argument)
            if is_long(value):
                yield from (argument for argument in arguments if any(map(is_long, scalars(argument))))
        case Cast(inner):
            yield from _cuts(inner)
        case _:
            return


def is_long(value: Scalar) -> bool:
    """Whether a value is a long function of something."""
    return isinstance(value, Apply) and OPERATION_COSTS.get(value.op, 1.0) >= LONG_COST


def _replaced(value: Scalar, part: Scalar, load: Load) -> Scalar:
    """The value with a part of it loaded instead, wherever it would be computed."""
    if value == part:
        return load
    match value:
        case Apply(op, arguments):
            return Apply(op, tuple(_replaced(argument, part, load) for argument in arguments))
        case Cast(inner, dtype, saturate):
            return Cast(_replaced(inner, part, load), dtype, saturate)
        case _:
            return value
