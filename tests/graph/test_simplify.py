"""The whole of simplification: order, fixed point, bounds and trace."""

from __future__ import annotations

import pytest

from foretell.graph.nodes import Graph, Value
from foretell.graph.simplify import MAX_ROUNDS, SIMPLIFICATIONS, simplify
from foretell.graph.verify import verify
from foretell.ir.expr import Sym
from foretell.support.limits import Limits
from foretell.support.trace import Trace
from tests.graph.build_graphs import Sketch, assert_same_results, operators


def linear(sketch: Sketch, x: Value, width: int, seed: int) -> Value:
    product = sketch.op("MatMul", x, sketch.weights(32, width, seed=seed))
    return sketch.op("Add", product, sketch.weights(width, seed=seed + 1))


def layer_norm(sketch: Sketch, x: Value) -> Value:
    mean = sketch.op("ReduceMean", x, axes=(2,), keepdims=True)
    d = sketch.op("Sub", x, mean)
    variance = sketch.op("ReduceMean", sketch.op("Pow", d, sketch.number(2.0)), axes=(2,), keepdims=True)
    root = sketch.op("Sqrt", sketch.op("Add", variance, sketch.number(1e-5)))
    normal = sketch.op("Mul", sketch.op("Div", d, root), sketch.weights(32, seed=7))
    return sketch.op("Add", normal, sketch.weights(32, seed=8))


def transformer_block(batch: int | Sym, length: int | Sym) -> Graph:
    """Attention, GELU and two norms as an exporter without composite operators writes them."""
    sketch = Sketch()
    x = sketch.data(batch, length, 32)
    heads = [
        sketch.op("Transpose", sketch.reshape(linear(sketch, x, 32, seed), (batch, length, 2, 16)), perm=perm)
        for seed, perm in ((10, (0, 2, 1, 3)), (20, (0, 2, 3, 1)), (30, (0, 2, 1, 3)))
    ]
    scores = sketch.op("Div", sketch.op("MatMul", heads[0], heads[1]), sketch.number(4.0))
    below = sketch.op("Sub", scores, sketch.op("ReduceMax", scores, axes=(3,), keepdims=True))
    e = sketch.op("Exp", below)
    p = sketch.op("Div", e, sketch.op("ReduceSum", e, axes=(3,), keepdims=True))
    context = sketch.op("Transpose", sketch.op("MatMul", p, heads[2]), perm=(0, 2, 1, 3))
    y = layer_norm(sketch, sketch.op("Add", x, sketch.reshape(context, (batch, length, 32))))
    h = linear(sketch, y, 32, 40)
    gate = sketch.op("Add", sketch.op("Erf", sketch.op("Div", h, sketch.number(2**0.5))), sketch.number(1.0))
    return sketch.graph(sketch.op("Mul", sketch.op("Mul", h, gate), sketch.number(0.5)))


BLOCK = [
    *("MatMul", "Reshape", "Transpose", "MatMul", "Reshape", "Transpose", "MatMul", "Reshape", "Transpose"),
    *("Attention", "Transpose", "Reshape", "Add", "LayerNorm", "MatMul", "Gelu"),
]


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7), (Sym("n", 1), Sym("m", 1))], ids=str)
def test_transformer_block(batch: int | Sym, length: int | Sym) -> None:
    graph = transformer_block(batch, length)
    after = simplify(graph)
    assert_same_results(graph, after)
    assert simplify(after) is after
    if batch != 1:  # sums over a single key vanish before they are recognised
        assert sorted(operators(after)) == sorted(BLOCK)


def test_convolution_batch_norm_and_activation_become_two_nodes() -> None:
    sketch = Sketch()
    x, window = sketch.data(1, 3, 8, 8), {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    y = sketch.op("Conv", x, sketch.weights(4, 3, 3, 3), before=(1, 1), after=(1, 1), **window)
    parameters = [sketch.weights(4, seed=seed) for seed in (1, 2, 3)]
    y = sketch.op("BatchNorm", y, *parameters, sketch.number(1.5, (4,)), epsilon=1e-5)
    y = sketch.op("Mul", y, sketch.op("Sigmoid", y))
    graph = sketch.graph(y)
    after = simplify(graph)
    assert_same_results(graph, after)
    assert operators(after) == ["Conv", "Silu"]
    assert "BatchNorm" in operators(graph)


def test_trace_names_every_pass_and_the_rounds_are_few() -> None:
    trace = Trace[Graph](keep_ir=True)
    after = simplify(transformer_block(2, 5), trace)
    names = [record.name for record in trace.records]
    assert names[: len(SIMPLIFICATIONS)] == [function.__name__ for function in SIMPLIFICATIONS]
    assert len(names) < 5 * len(SIMPLIFICATIONS) < MAX_ROUNDS * len(SIMPLIFICATIONS)
    assert trace.after("sink_transposes") is after
    for record in trace.records:
        assert record.after is not None
        verify(record.after)


def test_nothing_to_do_returns_the_same_graph() -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Exp", sketch.data(3)))
    assert simplify(graph) is graph


def test_folding_is_bounded_over_all_rounds() -> None:
    """Each Slice of a large constant is 40 kB; the budget pays for two of them, however often folding runs."""
    sketch = Sketch()
    x, table = sketch.data(10_000), sketch.weights(100_000)
    for number in range(6):
        part = sketch.op("Slice", table, starts=(number * 10_000,), steps=(1,), shape=(10_000,))
        x = sketch.op("Sub", x, part)
    graph = sketch.graph(x)
    after = simplify(graph, limits=Limits(folded_bytes=100_000))
    assert operators(after).count("Slice") == 4
    assert_same_results(graph, after)


def test_dead_constants_do_not_stay() -> None:
    sketch = Sketch()
    x = sketch.data(4)
    graph = sketch.graph(sketch.op("Add", x, sketch.op("Mul", sketch.weights(4), sketch.number(0.0))))
    after = simplify(graph)
    assert after.nodes == () and after.constants == {} and after.outputs == after.inputs
