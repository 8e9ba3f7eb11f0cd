"""Reading products out of graphs."""

from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.graph.match import MAX_DEPTH, Monomial, agrees, monomial_of, number
from foretell.graph.nodes import Value
from foretell.graph.rewrite import Rewriter
from foretell.ir.dtypes import F16, F32, F64, I32
from tests.graph.build_graphs import Sketch


def read(sketch: Sketch, value: Value) -> Monomial:
    """The value as a product, in a graph that returns it."""
    rewriter = Rewriter(sketch.graph(value))
    for node in sketch.nodes:
        rewriter.add(node)
    return monomial_of(value, rewriter)


def test_all_spellings_of_a_product_are_one() -> None:
    sketch = Sketch()
    d, v = sketch.data(3, name="d"), sketch.data(3, name="v")
    root = sketch.op("Sqrt", v)
    one, half = sketch.number(1.0), sketch.number(-0.5, (1,))
    spellings = [
        sketch.op("Div", d, root),
        sketch.op("Mul", d, sketch.op("Reciprocal", sketch.op("Sqrt", v))),
        sketch.op("Mul", sketch.op("Div", one, sketch.op("Sqrt", v)), d),
        sketch.op("Mul", sketch.op("Pow", v, half), d),
        sketch.op("Div", d, sketch.op("Pow", v, sketch.number(0.5))),
        sketch.op("Neg", sketch.op("Div", sketch.op("Neg", d), sketch.op("Sqrt", v))),
    ]
    assert [read(sketch, value) for value in spellings] == [Monomial(1.0, {d: 1.0, v: -0.5})] * len(spellings)


def test_what_others_read_is_a_factor_of_its_own() -> None:
    sketch = Sketch()
    x = sketch.data(3)
    shared = sketch.op("Mul", x, sketch.number(2.0))
    y = sketch.op("Mul", shared, shared)
    assert read(sketch, y) == Monomial(1.0, {shared: 2.0})


@pytest.mark.parametrize("spelling", ["x / x", "sqrt(x) * sqrt(x)", "sqrt(x * x)", "x / 0"])
def test_laws_that_fail_at_some_number_are_not_used(spelling: str) -> None:
    sketch = Sketch()
    x = sketch.data(3)
    value = {
        "x / x": lambda: sketch.op("Div", x, x),
        "sqrt(x) * sqrt(x)": lambda: sketch.op("Mul", sketch.op("Sqrt", x), sketch.op("Sqrt", x)),
        "sqrt(x * x)": lambda: sketch.op("Sqrt", sketch.op("Mul", x, x)),
        "x / 0": lambda: sketch.op("Div", x, sketch.number(0.0)),
    }[spelling]()
    assert read(sketch, value) == Monomial(1.0, {value: 1.0})


def test_integers_are_not_products_of_reals() -> None:
    sketch = Sketch()
    x = sketch.data(3, dtype=I32)
    value = sketch.op("Div", x, sketch.number(2, dtype=I32))
    assert read(sketch, value) == Monomial(1.0, {value: 1.0})


def test_long_chains_are_not_followed_to_their_end() -> None:
    sketch = Sketch()
    value = sketch.data(3)
    for _ in range(5000):
        value = sketch.op("Mul", value, sketch.number(2.0))
    assert read(sketch, value).coefficient == 2.0 ** (MAX_DEPTH - 1)


@given(st.lists(st.sampled_from(["Mul", "Div", "Neg", "Reciprocal"]), max_size=MAX_DEPTH - 1), st.integers(1, 4))
def test_coefficients_are_what_the_graph_computes(ops: list[str], factor: int) -> None:
    sketch = Sketch()
    x = value = sketch.data(1, dtype=F64)
    coefficient, exponent = 1.0, 1.0
    for op in ops:
        if op in ("Mul", "Div"):
            value = sketch.op(op, value, sketch.number(2.0**factor, dtype=F64))
            coefficient = coefficient * 2.0**factor if op == "Mul" else coefficient / 2.0**factor
        else:
            value = sketch.op(op, value)
            coefficient, exponent = (-coefficient, exponent) if op == "Neg" else (1 / coefficient, -exponent)
    assert read(sketch, value) == Monomial(coefficient, {x: exponent})


def test_constants_agree_as_well_as_their_type_can_say() -> None:
    sketch = Sketch()
    narrow, wide = sketch.number(sqrt(2), (1, 1), F16), sketch.number(sqrt(2), dtype=F32)
    rewriter = Rewriter(sketch.graph(narrow, wide))
    assert agrees(number(narrow, rewriter), sqrt(2), F16) and agrees(number(wide, rewriter), sqrt(2), F32)
    assert not agrees(number(narrow, rewriter), sqrt(2), F32) and not agrees(1.4142, sqrt(2), F32)
    assert not agrees(None, 1.0, F32) and not agrees(float("nan"), 1.0, F32)
