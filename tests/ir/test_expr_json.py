from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.expr_json import dim_from_json, dim_to_json
from foretell.support.errors import ShapeTooComplex

N, M = Sym("n", 1), Sym("m", 2, 64, 2)
SYMBOLS = (N, M)
LEAVES = st.one_of(st.integers(-5, 9), st.sampled_from(SYMBOLS))


def combined(inner: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    operations = st.sampled_from((expr.add, expr.mul, expr.minimum, expr.maximum))
    plain = st.builds(lambda operation, left, right: operation(left, right), operations, inner, inner)
    divided = st.builds(
        lambda operation, left, right: operation(left, right),
        st.sampled_from((expr.floordiv, expr.mod)),
        inner,
        st.one_of(st.integers(1, 7), st.sampled_from(SYMBOLS)),
    )
    return st.one_of(plain, divided)


@given(st.recursive(LEAVES, combined, max_leaves=6))
def test_round_trip(dim: Dim) -> None:
    text = json.dumps(dim_to_json(dim, SYMBOLS))
    assert dim_from_json(json.loads(text), SYMBOLS) == dim


def test_forms() -> None:
    assert dim_to_json(7, SYMBOLS) == 7
    assert dim_to_json(M, SYMBOLS) == ["symbol", 1]
    assert dim_to_json(3 * N + 1, SYMBOLS) == ["+", [3, ["symbol", 0]], [1]]
    assert dim_to_json(N // 2, SYMBOLS) == ["//", ["symbol", 0], 2]


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1.5, "n", [], {}, ["symbol"], ["symbol", 2], ["symbol", -1], ["symbol", True], ["symbol", "n"]),
        *(["^", 1, 2], ["//", 1], ["//", 1, 0], ["%", ["symbol", 0], 0], ["+", 1], ["+", []], [["+"]], 1 << 300),
        ["+", *([[1, ["symbol", 0]]] * 1000)],
    ],
)
def test_what_is_no_dimension(value: object) -> None:
    with pytest.raises(ValueError):
        dim_from_json(value, SYMBOLS)


def test_too_deep_and_too_complicated() -> None:
    deep: object = ["symbol", 0]
    for _ in range(100):
        deep = ["//", deep, ["symbol", 1]]
    with pytest.raises((ValueError, ShapeTooComplex)):
        dim_from_json(deep, SYMBOLS)
    wide = ["+", *([1, *([["symbol", number % 2]] * number)] for number in range(1, 100))]
    with pytest.raises(ShapeTooComplex):
        dim_from_json(wide, SYMBOLS)
