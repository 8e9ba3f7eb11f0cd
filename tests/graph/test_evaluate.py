"""The evaluator: feeds, symbols and control flow."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.graph.verify import verify
from foretell.ir.dtypes import F32, I64
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import InputError

N = Sym("n", 1)


def flatten_graph() -> Graph:
    build = Builder("flatten")
    x = build.input("x", TensorType(F32, (N, 3, 2)))
    flat = build.reshape(x, (N * 3, 2))
    rows = build.op("Dims", values=(N * 3,), shape=(1,), dtype=I64)
    return build.finish([flat, rows], ["flat", "rows"])


def test_symbols_are_taken_from_the_inputs() -> None:
    graph = flatten_graph()
    verify(graph)
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    results = evaluate(graph, {"x": x})
    np.testing.assert_array_equal(results["flat"], x.reshape(12, 2))
    np.testing.assert_array_equal(results["rows"], [12])


def test_printing_is_deterministic_and_readable() -> None:
    assert str(flatten_graph()).splitlines() == [
        "graph flatten(%x: f32[n, 3, 2]) {",
        "  %reshape: f32[3*n, 2] = Reshape(%x) {shape=(3*n, 2)}",
        "  %dims: i64[1] = Dims() {values=(3*n), shape=(1), dtype=i64}",
        "  return flat=%reshape, rows=%dims",
        "}",
    ]


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "FT401: input 'x' is missing\n  expected x: f32[n, 3, 2]; got nothing\n"),
        (
            {"x": np.zeros((1, 3, 2))},
            "FT401: input 'x' has the wrong type\n  expected f32[n, 3, 2]; got float64[1, 3, 2]",
        ),
        ({"x": np.zeros((1, 3), np.float32)}, "FT401: input 'x' has the wrong type"),
        ({"x": np.zeros((1, 3, 5), np.float32)}, "FT401: the shape of 'x' disagrees with the model"),
        ({"y": np.zeros(1)}, "FT401: the model has no input 'y'\n  expected x; got y"),
    ],
)
def test_wrong_feeds(feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(flatten_graph(), feeds)
    assert str(caught.value).startswith(message)


def test_empty_dimension_is_refused_where_the_model_promises_one_or_more() -> None:
    with pytest.raises(InputError, match="disagrees"):
        evaluate(flatten_graph(), {"x": np.zeros((0, 3, 2), np.float32)})
