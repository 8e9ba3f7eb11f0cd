"""Neighbours that come from different places in turn, as after a shuffle of channels: a vector of each, interleaved.

    before: for i < 116 vector: y[i] = select(58*(i % 2) + i // 2 < 58, a[58*(i % 2) + i // 2], b[...])
    after:  for t < 58 vector: y[2*t] = a[t];  y[2*t + 1] = b[t]

Code generation stores such neighbours together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Op, Sym
from foretell.ir.tensor_expr import Apply, Cast, Index, Load, Scalar, Select
from foretell.loops.nodes import Block, For, Store, substitute_scalar

PERIODS = (2, 4)
"""How many vectors are interleaved at once."""


def interleaved(loop: For) -> For:
    """A vector loop whose only store depends on what remains of its index, with a store for each remainder.

    Declines where that is no power of two that the loop divides into, or the same for all.
    """
    match loop.body:
        case Block((Store() as store,)) if isinstance(loop.extent, int):
            pass
        case _:
            return loop
    period = max(_periods(store.value, loop.sym), default=1)
    if period not in PERIODS or loop.extent % period:
        return loop
    part = Sym(f"{loop.sym.name}.{period}", 0, loop.extent // period - 1)
    stores = tuple(_substituted(store, {loop.sym: part * period + number}) for number in range(period))
    return replace(loop, sym=part, extent=loop.extent // period, body=Block(stores))


def _periods(scalar: Scalar, sym: Sym) -> Iterator[int]:
    """What the symbol is divided by for a remainder, wherever that is asked for."""
    match scalar:
        case Index(value):
            yield from _remainders(value, sym)
        case Load(_, indices):
            for index in indices:
                yield from _remainders(index, sym) if isinstance(index, (int, expr.Expr)) else _periods(index, sym)
        case Cast(value):
            yield from _periods(value, sym)
        case Select(condition, then, otherwise):
            for part in (condition, then, otherwise):
                yield from _periods(part, sym)
        case Apply(_, arguments):
            for argument in arguments:
                yield from _periods(argument, sym)
        case _:
            return


def _remainders(value: Dim, sym: Sym) -> Iterator[int]:
    for monomial, _ in expr.terms_of(value):
        for atom in monomial:
            match atom:
                case Op("%", left, int() as right) if left == sym:
                    yield right
                case Op(_, left, right):
                    yield from _remainders(left, sym)
                    yield from _remainders(right, sym)
                case _:
                    pass


def _substituted(store: Store, bindings: dict[Sym, Dim]) -> Store:
    indices = tuple(
        expr.substitute(index, bindings) if isinstance(index, (int, expr.Expr)) else substitute_scalar(index, bindings)
        for index in store.indices
    )
    return Store(store.buffer, indices, _decided(substitute_scalar(store.value, bindings)))


def _decided(scalar: Scalar) -> Scalar:
    """Of selections whose condition is known, the branch taken."""
    match scalar:
        case Select(condition, then, otherwise):
            holds = _holds(condition)
            if holds is not None:
                return _decided(then if holds else otherwise)
            return Select(condition, _decided(then), _decided(otherwise))
        case Apply(op, arguments):
            return Apply(op, tuple(map(_decided, arguments)))
        case Cast(value, dtype, saturate):
            return Cast(_decided(value), dtype, saturate)
        case _:
            return scalar


def _holds(condition: Scalar) -> bool | None:
    match condition:
        case Apply(("lt" | "ge") as op, (Index(left), Index(right))):
            low, high = expr.bounds(left - right)
        case _:
            return None
    if high is not None and high < 0:
        return op == "lt"
    return op == "ge" if low is not None and low >= 0 else None
