"""Integer expressions: one normal form, sound bounds, and the laws of arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym

N, M = Sym("n", 1), Sym("m", 1)
I = Sym("i", 0, 5)  # noqa: E741 (an index)
SYMBOLS = (Sym("a", 0, 7), Sym("b", 1, 4), Sym("c", -3, 3))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((N + M) * 2 - M, "m + 2*n"),
        (N - N, "0"),
        (N * 4 // 2, "2*n"),
        ((4 * N + 3) // 4, "n"),
        ((4 * N + 5) // 4, "n + 1"),
        (N * M * 64 // (M * 8), "8*n"),
        ((N + 1) // 2, "(n + 1) // 2"),
        ((2 * N + 2) // 4, "(n + 1) // 2"),
        (N * 768 % 768, "0"),
        (Sym("k", 8, None, 8) % 4, "0"),
        (I // 6, "0"),
        (I % 6, "i"),
        ((I + 6) % 6, "i"),
        (expr.maximum(N, 1), "n"),
        (expr.minimum(N, 0), "0"),
        (expr.maximum(N, M), "max(m, n)"),
        (expr.ceildiv(N * 4, 2), "2*n"),
        (-N + 3, "-n + 3"),
        (N % M, "n % m"),
    ],
)
def test_normal_form(value: Dim, text: str) -> None:
    assert str(value) == text


def test_constants_are_plain_integers() -> None:
    assert (N + 3 - N) == 3
    assert isinstance(N * 0, int)


def test_equal_expressions_are_equal_and_hash_alike() -> None:
    assert N * M + 1 == 1 + M * N
    assert hash(N * M + 1) == hash(1 + M * N)


def test_bounds() -> None:
    assert expr.bounds(I * 2 + 1) == (1, 11)
    assert expr.bounds(N * M + 1) == (2, None)
    assert expr.bounds(10 - I) == (5, 10)
    assert expr.bounds(Sym("s", -2, 3) * Sym("t", -5, 1)) == (-15, 10)
    assert expr.bounds(N - M) == (None, None)


def test_linear_parts() -> None:
    j = Sym("j", 0, 3)
    assert expr.try_linear(I * 2 + j + N, frozenset({I, j})) == ({I: 2, j: 1}, N)
    assert expr.try_linear(I * j, frozenset({I, j})) is None
    assert expr.try_linear(I // 4, frozenset({I})) is None


def expressions() -> st.SearchStrategy[Dim]:
    leaves = st.one_of(st.integers(-6, 6), st.sampled_from(SYMBOLS))

    def grow(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
        pairs = st.tuples(inner, inner)
        return st.one_of(
            pairs.map(lambda p: expr.add(*p)),
            pairs.map(lambda p: expr.mul(*p)),
            pairs.map(lambda p: expr.maximum(*p)),
            pairs.map(lambda p: expr.minimum(*p)),
            st.tuples(inner, st.integers(1, 5)).map(lambda p: expr.floordiv(*p)),
            st.tuples(inner, st.integers(1, 5)).map(lambda p: expr.mod(*p)),
        )

    return st.recursive(leaves, grow, max_leaves=6)


def values() -> st.SearchStrategy[dict[Sym, Dim]]:
    return st.fixed_dictionaries({sym: st.integers(sym.lo, sym.hi) for sym in SYMBOLS})


@given(expressions(), values())
def test_bounds_hold(value: Dim, binding: dict[Sym, Dim]) -> None:
    number = expr.substitute(value, binding)
    assert isinstance(number, int)
    low, high = expr.bounds(value)
    assert (low is None or low <= number) and (high is None or number <= high)


@given(expressions(), expressions(), values())
def test_operations_agree_with_integers(left: Dim, right: Dim, binding: dict[Sym, Dim]) -> None:
    a, b = expr.substitute(left, binding), expr.substitute(right, binding)
    assert isinstance(a, int) and isinstance(b, int)
    assert expr.substitute(left + right, binding) == a + b
    assert expr.substitute(left - right, binding) == a - b
    assert expr.substitute(left * right, binding) == a * b
    assert expr.substitute(left // 3, binding) == a // 3
    assert expr.substitute(left % 3, binding) == a % 3
    assert expr.substitute(expr.maximum(left, right), binding) == max(a, b)


@given(expressions(), expressions())
def test_what_is_added_can_be_taken_away(left: Dim, right: Dim) -> None:
    assert expr.add(left, right) - right == left
