"""Expressions stay small, and what is asked of them often does not get slower as they grow."""

from __future__ import annotations

import pickle

import pytest

from foretell.ir import expr
from foretell.ir.expr import MAX_BITS, MAX_DEPTH, MAX_WEIGHT, Dim, Sym
from foretell.support.errors import ShapeTooComplex

N, M = Sym("n", 1), Sym("m", 1)


def test_weight_and_depth_count_what_is_written() -> None:
    assert [expr.weight_of(value) for value in (7, N, N + M, N * M + 2)] == [0, 1, 4, 4]
    nested = (N + 1) // 2 + M
    assert expr.depth_of(N + M) == 0 and expr.depth_of(nested) == 1
    assert expr.weight_of(expr.maximum(nested, N)) > expr.weight_of(nested)


def test_squares_of_squares_are_refused() -> None:
    value: Dim = N + M
    with pytest.raises(ShapeTooComplex, match="too complicated"):
        for _ in range(20):
            value = value * value


def test_sums_of_many_symbols_are_refused() -> None:
    value: Dim = 0
    with pytest.raises(ShapeTooComplex):
        for number in range(MAX_WEIGHT):
            value = value + Sym(f"n{number}", 1)


def test_divisions_in_divisions_are_refused() -> None:
    value: Dim = N
    with pytest.raises(ShapeTooComplex):
        for _ in range(MAX_DEPTH + 1):
            value = (value + 1) // 3


def test_large_numbers_are_refused() -> None:
    with pytest.raises(ShapeTooComplex):
        expr.mul(N, 1 << MAX_BITS)


def test_bounds_are_found_once() -> None:
    value = expr.maximum((N * 3 + M) // 2, M) + N
    assert expr.bounds(value) == (3, None)
    assert expr.bounds(value) is expr.bounds(value)


def test_hashes_survive_pickling() -> None:
    value = expr.minimum(N * 4 // 3, M) + 5
    again = pickle.loads(pickle.dumps(value))
    assert again == value and hash(again) == hash(value) and expr.weight_of(again) == expr.weight_of(value)
