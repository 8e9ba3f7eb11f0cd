from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from foretell.graph.nodes import Value
from foretell.graph.rewrites import fold_constants as module
from foretell.graph.rewrites.fold_constants import fold_constants
from foretell.ir.dtypes import BOOL, F32, I64
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.limits import Limits
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, operators, text


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.data(2)
    y = sketch.op("Add", x, sketch.op("Neg", sketch.op("Mul", sketch.number(2.0), sketch.number(3.0, (2,)))))
    after = check_rewrite(fold_constants, sketch.graph(y), ops=["Add"])
    assert str(after) == text(
        """
        graph test(%x: f32[2]) {
          %neg_1: f32[2] = constant [-6.0, -6.0]
          %add: f32[2] = Add(%x, %neg_1)
          return y0=%add
        }
        """
    )


@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (0, 4)], ids=str)
def test_chains_fold_in_one_run(shape: tuple[int, ...]) -> None:
    sketch = Sketch()
    value = sketch.weights(*shape)
    for op in ("Exp", "Neg", "Sigmoid", "Abs"):
        value = sketch.op(op, value)
    check_rewrite(fold_constants, sketch.graph(sketch.op("Add", sketch.data(*shape), value)), ops=["Add"])


def test_tensors_made_from_nothing_fold() -> None:
    sketch = Sketch()
    iota = sketch.op("Iota", shape=(3, 2), axis=0, dtype=I64)
    dims = sketch.op("Dims", values=(4, 5), shape=(2,), dtype=I64)
    check_rewrite(fold_constants, sketch.graph(sketch.op("Add", iota, dims)), ops=[])


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_contractions_fold(rows: int, inner: int, columns: int) -> None:
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.weights(rows, inner), sketch.weights(inner, columns, seed=1))
    check_rewrite(fold_constants, sketch.graph(product), ops=[])


def test_constants_in_subgraphs_fold() -> None:
    inner = Sketch()
    state = inner.data(3)
    body = inner.graph(inner.op("Add", state, inner.op("Exp", inner.number(0.0))))
    sketch = Sketch()
    condition, x = sketch.input("c", TensorType(BOOL, ())), sketch.data(3)
    (y,) = sketch.typed("If", (condition, x), {"then_branch": body, "else_branch": body}, [x.type])
    graph = sketch.graph(y)
    after = fold_constants(graph)
    assert [node.op for node in after.walk()] == ["If", "Add", "Add"]
    assert_same_results(graph, after)


def test_declines_symbolic_results() -> None:
    n = Sym("n", 1)
    sketch = Sketch()
    ones = sketch.op("Broadcast", sketch.number(1.0), shape=(n,))
    dims = sketch.op("Dims", values=(n,), shape=(1,), dtype=I64)
    check_declines(fold_constants, sketch.graph(sketch.op("Add", sketch.data(n), ones), dims))


def test_declines_to_store_what_is_cheap_to_make() -> None:
    sketch = Sketch()
    wide = sketch.op("Broadcast", sketch.number(1.0), shape=(1 << 20,))
    count = sketch.op("Iota", shape=(1 << 20,), axis=0, dtype=F32)
    check_declines(fold_constants, sketch.graph(sketch.op("Mul", sketch.data(1 << 20), sketch.op("Add", wide, count))))


def test_declines_bombs_without_allocating_them() -> None:
    sketch = Sketch()
    pad = sketch.op("Pad", sketch.weights(2), before=(1 << 40,), after=(0,), mode="constant")
    check_declines(fold_constants, sketch.graph(pad))


def test_declines_beyond_the_budget_of_bytes() -> None:
    sketch = Sketch()
    x, weights = sketch.data(1000), sketch.weights(1000)
    graph = sketch.graph(*(sketch.op(op, sketch.op("Add", x, sketch.op(op, weights))) for op in ("Exp", "Neg", "Abs")))
    after = fold_constants(graph, Limits(folded_bytes=8000))
    assert operators(after).count("Abs") == 2 and operators(after).count("Exp") == 1
    assert_same_results(graph, after)


def test_replacing_a_constant_that_nothing_else_reads_is_free() -> None:
    sketch = Sketch()
    x, value = sketch.data(50, 20), sketch.weights(20, 50)
    y = sketch.op("Add", x, sketch.op("Neg", sketch.op("Transpose", value, perm=(1, 0))))
    graph = sketch.graph(y)
    assert operators(fold_constants(graph, Limits(folded_bytes=0))) == ["Add"]


def test_declines_too_many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("MatMul", sketch.weights(10, 10), sketch.weights(10, 10)))
    monkeypatch.setattr(module, "MAX_NODE_WORK", 999)
    check_declines(fold_constants, graph)


def reference(sketch: Sketch, op_type: str, inputs: tuple[Value, ...], type: TensorType, version: int = 20) -> Value:
    node = helper.make_node(op_type, [f"x{number}" for number in range(len(inputs))], ["y"])
    attrs = {"domain": "", "op_type": op_type, "version": version, "node": node.SerializeToString()}
    return sketch.typed("Onnx", inputs, attrs, [type])[0]


def test_declines_what_the_reference_runs() -> None:
    """Nothing tells how long it takes, or whether the type it was given is what it makes."""
    sketch = Sketch()
    check_declines(fold_constants, sketch.graph(reference(sketch, "Det", (sketch.weights(2, 2),), TensorType(F32, ()))))


def test_declines_what_would_be_held_in_memory_at_once() -> None:
    sketch = Sketch()
    vectors = [sketch.weights(300, seed=seed) for seed in range(3)]
    check_declines(fold_constants, sketch.graph(sketch.op("Einsum", *vectors, equation="a,b,c->")))
