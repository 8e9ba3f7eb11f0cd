from __future__ import annotations

import pytest

from foretell.graph.nodes import Value
from foretell.graph.rewrites.recognise_layer_norm import recognise_layer_norm
from foretell.ir.dtypes import F16, F32, F64, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text


def mean(g: Sketch, x: Value, axes: tuple[int, ...]) -> Value:
    return g.op("ReduceMean", x, axes=axes, keepdims=True)


def centred(g: Sketch, x: Value, axes: tuple[int, ...]) -> Value:
    return g.op("Sub", x, mean(g, x, axes))


def quotient(g: Sketch, d: Value, axes: tuple[int, ...], spelling: str = "div pow") -> Value:
    """d / sqrt(mean(d * d) + epsilon)"""
    square = g.op("Pow", d, g.number(2.0, dtype=d.dtype)) if "pow" in spelling else g.op("Mul", d, d)
    shifted = g.op("Add", mean(g, square, axes), g.number(1e-3, dtype=d.dtype))
    root = g.op("Sqrt", shifted)
    if "div" in spelling:
        return g.op("Div", d, root)
    if "reciprocal" in spelling:
        return g.op("Mul", g.op("Reciprocal", root), d)
    return g.op("Mul", d, g.op("Div", g.number(1.0, (1,), d.dtype), root))


def norm(g: Sketch, x: Value, axes: tuple[int, ...], spelling: str = "div pow") -> Value:
    return quotient(g, centred(g, x, axes), axes, spelling)


SPELLINGS = ["div pow", "div mul", "reciprocal pow", "inverse mul"]
CASES = [((4, 1), (1,)), ((3, 7), (1,)), ((2, 5, 11), (1, 2)), ((Sym("n", 1), Sym("m", 1), 8), (2,)), ((5,), (0,))]


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_normalisation(shape: tuple[int, ...], axes: tuple[int, ...], spelling: str, dtype: DType) -> None:
    sketch = Sketch()
    y = norm(sketch, sketch.data(*shape, dtype=dtype), axes, spelling)
    after = check_rewrite(recognise_layer_norm, sketch.graph(y), ops=["LayerNorm"])
    assert after.nodes[0].attrs["axis"] == axes[0]


def test_golden_with_scale_and_bias() -> None:
    sketch = Sketch()
    sketch.location = "encoder/norm"
    scaled = sketch.op("Mul", sketch.number(2.0, (3,)), norm(sketch, sketch.data(2, 3), (1,)))
    after = check_rewrite(
        recognise_layer_norm, sketch.graph(sketch.op("Add", scaled, sketch.number(0.5, (3,)))), ops=["LayerNorm"]
    )
    assert str(after) == text(
        """
        graph test(%x: f32[2, 3]) {
          %c: f32[3] = constant [2.0, 2.0, 2.0]
          %c_3: f32[3] = constant [0.5, 0.5, 0.5]
          %layernorm_2: f32[2, 3] = LayerNorm(%x, %c, %c_3) {axis=1, epsilon=0.0010000000474974513}
          return y0=%layernorm_2
        }
        """
    )
    assert after.nodes[0].location == "encoder/norm"


def test_scale_and_bias_after_the_operator() -> None:
    for op, shape in (("Add", (7,)), ("Mul", (3, 1)), ("Mul", ())):
        sketch = Sketch()
        plain = sketch.op("LayerNorm", sketch.data(2, 3, 7), axis=2, epsilon=1e-5)
        check_rewrite(
            recognise_layer_norm, sketch.graph(sketch.op(op, plain, sketch.weights(*shape))), ops=["LayerNorm"]
        )


def test_a_scale_after_a_bias_is_no_scale_of_the_norm() -> None:
    sketch = Sketch()
    biased = sketch.op("LayerNorm", sketch.data(2, 3), None, sketch.weights(3), axis=1, epsilon=1e-5)
    check_declines(recognise_layer_norm, sketch.graph(sketch.op("Mul", biased, sketch.weights(3, seed=2))))


def test_a_residual_is_not_a_bias() -> None:
    sketch = Sketch()
    x = sketch.data(2, 3)
    check_declines(
        recognise_layer_norm, sketch.graph(sketch.op("Add", sketch.op("LayerNorm", x, axis=1, epsilon=0.1), x))
    )


def test_declines_a_scale_that_broadcasts_the_result() -> None:
    sketch = Sketch()
    plain = sketch.op("LayerNorm", sketch.data(1, 3), axis=1, epsilon=0.1)
    check_declines(recognise_layer_norm, sketch.graph(sketch.op("Mul", plain, sketch.weights(2, 3))))


def test_declines_axes_that_are_not_the_last() -> None:
    sketch = Sketch()
    check_declines(recognise_layer_norm, sketch.graph(norm(sketch, sketch.data(2, 3, 5), (1,))))


def test_declines_two_different_means() -> None:
    sketch = Sketch()
    y = quotient(sketch, centred(sketch, sketch.data(2, 3, 5), (1, 2)), (2,))
    check_declines(recognise_layer_norm, sketch.graph(y))


@pytest.mark.parametrize("shared", ["mean", "deviation", "root"])
def test_declines_when_something_inside_is_read_elsewhere(shared: str) -> None:
    sketch = Sketch()
    y = norm(sketch, sketch.data(2, 3), (1,))
    inside = {"mean": "reducemean", "deviation": "sub", "root": "sqrt"}[shared]
    value = next(value for value in sketch.producers if value.name == inside)
    check_declines(recognise_layer_norm, sketch.graph(y, value))
