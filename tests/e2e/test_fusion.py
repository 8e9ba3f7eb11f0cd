"""Random networks as machine code: fused as predicted, not at all, and as much as can be; one result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.nodes import Array, Graph, Value
from foretell.ir.dtypes import F32
from foretell.ir.tensor_expr import Buffer
from foretell.link_program import link_program
from foretell.loops.cluster import Cluster
from foretell.partition.choose_groups import GroupChooser
from foretell.runtime.load_model import load
from foretell.runtime.session import CompiledModel
from foretell.target.resolve import resolve_target
from tests.fusing import Chooser, Groups, NoGroups, RandomGroups
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.image_graphs import image_graphs
from tests.random_graphs import Draw, assert_agrees

TARGET = resolve_target("native")
Drawn = tuple[Graph, dict[str, Array]]


@st.composite
def row_graphs(draw: Draw) -> Drawn:
    """Products, normalisations, attention, sums and concatenations of rows."""
    numbers = Random(int(str(draw(st.integers(0, 1 << 16)))))
    sketch = Sketch()
    values = [sketch.data(numbers.choice((4, 12, 32)), numbers.choice((8, 16, 40)))]
    for seed in range(numbers.randint(2, 5)):
        x = values[-1] if numbers.random() < 0.7 else numbers.choice(values)
        values.append(_layer(sketch, x, values, numbers, seed))
    outputs = values[-2:] if numbers.random() < 0.3 else values[-1:]
    graph = sketch.graph(*outputs)
    return graph, random_feeds(graph)


def _layer(sketch: Sketch, x: Value, values: Sequence[Value], numbers: Random, seed: int) -> Value:
    _, size = x.type.static_shape
    match numbers.choice(("product", "product", "norm", "softmax", "attention", "join", "concat", "mean", "gelu")):
        case "product":
            return sketch.op("MatMul", x, product_weights(sketch, size, numbers.choice((8, 16, 40)), seed))
        case "norm":
            return sketch.op("LayerNorm", x, sketch.weights(size), sketch.weights(size), axis=1, epsilon=1e-3)
        case "softmax":
            return sketch.op("Softmax", x, axis=numbers.choice((0, 1)))
        case "attention":
            small = sketch.op("Tanh", x)
            scores = sketch.op("MatMul", small, sketch.transpose(small, (1, 0)))
            return sketch.op("MatMul", sketch.op("Softmax", scores, axis=1), x)
        case "join":
            partners = [value for value in values if value.type == x.type]
            return sketch.op(numbers.choice(("Add", "Max")), x, numbers.choice(partners))
        case "concat":
            return sketch.op("Concat", x, sketch.op("Sigmoid", x), axis=1)
        case "mean":
            return sketch.op("Sub", x, sketch.op("ReduceMean", x, axes=(1,), keepdims=True))
        case _:
            return sketch.op("Gelu", x)


def product_weights(sketch: Sketch, rows: int, columns: int, seed: int) -> Value:
    """Of a size that keeps results as large as operands."""
    array = np.random.default_rng(seed).standard_normal((rows, columns)) / np.sqrt(rows)
    return sketch.constant(array.astype(F32.numpy))


def compiled(graph: Graph, groups: Chooser | None) -> CompiledModel:
    with pytest.MonkeyPatch.context() as patch:
        if groups is not None:

            def choose(_: GroupChooser, clusters: Sequence[Cluster], kept: frozenset[Buffer]) -> Groups:
                return groups(clusters, kept)

            patch.setattr(GroupChooser, "__call__", choose)
        return link_program(graph, TARGET)


def check(drawn: Drawn, seed: int) -> None:
    """Within rounding of the evaluator, and the same bits on one thread and on two."""
    graph, feeds = drawn
    for groups in (None, NoGroups(), RandomGroups(Random(seed))):
        model = compiled(graph, groups)
        found = [np.array(array) for array in model.run(feeds).values()]
        assert_agrees(graph, feeds, found)
        with TemporaryDirectory() as folder:
            model.save(Path(folder, "model"))
            again = load(Path(folder, "model"), threads=2).run(feeds)
        for one, two in zip(found, again.values(), strict=True):
            np.testing.assert_array_equal(one, two)


@settings(max_examples=4, deadline=None)
@given(image_graphs(channels=(4, 8, 16)), st.integers(0, 1 << 16))
def test_images(drawn: Drawn, seed: int) -> None:
    check(drawn, seed)


@settings(max_examples=8, deadline=None)
@given(row_graphs(), st.integers(0, 1 << 16))
def test_rows(drawn: Drawn, seed: int) -> None:
    check(drawn, seed)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.one_of(image_graphs(channels=(4, 8, 16)), row_graphs()), st.integers(0, 1 << 16))
def test_many_networks(drawn: Drawn, seed: int) -> None:
    check(drawn, seed)
