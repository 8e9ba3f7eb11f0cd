"""Walks through expressions: what they find, in which order, and what they leave as it is."""

from __future__ import annotations

from dataclasses import replace

from foretell.ir.dtypes import F32, I64
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Const, Index, Load, Scalar, Select
from foretell.loops.nodes import loads_in, loads_once, map_loads, substitute_scalar
from foretell.loops.stages import body_cost

M, N = Sym("m", 0, 7), Sym("n", 0, 7)
X, Y = Buffer("x", F32, (8,)), Buffer("y", F32, (8,))
AT_M, AT_N, OTHER = Load(X, (M,), F32), Load(X, (N,), F32), Load(Y, (N,), F32)
SHARED = Apply("mul", (AT_N, OTHER))
GATHERED = Load(X, (Cast(OTHER, I64),), F32)
SUM: Scalar = Apply("add", (Apply("add", (AT_M, SHARED)), Apply("sub", (SHARED, GATHERED))))


def test_loads_once_keeps_the_order_of_all_loads() -> None:
    assert list(loads_in(SUM)) == [AT_M, AT_N, OTHER, AT_N, OTHER, GATHERED, OTHER]
    assert [id(load) for load in loads_once(SUM)] == list(map(id, dict.fromkeys(loads_in(SUM))))


def test_what_no_load_is_replaced_in_stays_the_same_object() -> None:
    moved = map_loads(SUM, lambda load: replace(load, source=Y) if load == AT_M else load)
    assert isinstance(SUM, Apply) and isinstance(moved, Apply)
    assert moved == Apply("add", (Apply("add", (Load(Y, (M,), F32), SHARED)), SUM.arguments[1]))
    assert map_loads(SHARED, lambda load: load) is SHARED
    within = moved.arguments[0]
    assert isinstance(within, Apply) and within.arguments[1] is SHARED


def test_what_mentions_no_symbol_that_is_replaced_stays_the_same_object() -> None:
    assert substitute_scalar(SHARED, {M: N}) is SHARED
    assert substitute_scalar(Apply("add", (AT_M, SHARED)), {M: 3}) == Apply("add", (Load(X, (3,), F32), SHARED))


def test_parts_that_are_shared_cost_what_they_cost_apart() -> None:
    apart = Apply("mul", (AT_N, OTHER))
    condition = Apply("eq", (Index(M), Index(0)))
    value = Select(condition, Apply("add", (SHARED, SHARED)), Const(0.0, F32))
    assert body_cost(value) == body_cost(Select(condition, Apply("add", (apart, SHARED)), Const(0.0, F32))) == 5.0
