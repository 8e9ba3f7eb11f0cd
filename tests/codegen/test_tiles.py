"""Tiles of registers: the same lanes for every loop over a tile, whatever each of them computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretell.graph.evaluate import evaluate
from foretell.ir.dtypes import BF16, F16, F32, F64, I8, I32, I64, DType
from foretell.link_program import link_program
from foretell.target.resolve import Target, resolve_target
from tests.graph.build_graphs import Sketch, random_feeds
from tests.tolerances import assert_close

TARGET = resolve_target("native")


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64, I8, I32, I64], ids=str)
def test_products_of_any_type(dtype: DType) -> None:
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.data(7, 13, dtype=dtype), sketch.weights(13, 37, dtype=dtype))
    graph = sketch.graph(product)
    feeds = random_feeds(graph)
    (got,), (expected,) = link_program(graph, TARGET, 1).run(feeds).values(), evaluate(graph, feeds).values()
    assert_close(np.asarray(got), expected, dtype, terms=13, scale=16.0)


@pytest.mark.skipif(TARGET.spec.vector_bytes < 16, reason="there are no vectors to halve")
@pytest.mark.parametrize("columns", [1, 3, 8, 20, 24, 40, 61, 104])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_halves_of_vectors(columns: int, dtype: DType) -> None:
    """On a CPU whose units are half as wide as its vectors, rows are cut into halves where that is less."""
    target = Target(replace(TARGET.spec, unit_bytes=TARGET.spec.vector_bytes // 2))
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.data(19, 13, dtype=dtype), sketch.weights(13, columns, dtype=dtype))
    graph = sketch.graph(sketch.op("Relu", product))
    feeds = random_feeds(graph)
    (got,), (expected,) = link_program(graph, target, 1).run(feeds).values(), evaluate(graph, feeds).values()
    assert_close(np.asarray(got), expected, dtype, terms=13, scale=16.0)


def test_a_cast_in_the_epilogue() -> None:
    """Sums of float32 whose results are stored as float64 and as float16."""
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.data(9, 8), sketch.weights(8, 40))
    wide = sketch.op("Cast", product, to=F64)
    graph = sketch.graph(sketch.op("Neg", wide), sketch.op("Cast", product, to=F16))
    feeds = random_feeds(graph)
    results = zip(link_program(graph, TARGET, 1).run(feeds).values(), evaluate(graph, feeds).values(), strict=True)
    for got, expected in results:
        assert_close(np.asarray(got), expected, F16, terms=8, scale=16.0)
