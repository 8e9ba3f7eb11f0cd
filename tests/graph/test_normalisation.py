"""Softmax, the norms and attention against numpy written from the definitions, and against onnx's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Attr, Graph
from foretell.graph.optable import OPS
from foretell.ir.dtypes import BOOL, F16, F32, F64, DType
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType
from tests.graph.build_graphs import Sketch, assert_close, random_array

SHAPES = [(1,), (1, 1), (3, 7), (2, 5, 11), (2, 0, 3), (4, 1, 3)]


def single(op: str, arrays: list[Array | None], **attrs: Attr) -> Array:
    """One operator applied to arrays."""
    graph, feeds = single_graph(op, arrays, **attrs)
    return evaluate(graph, feeds)["y0"]


def single_graph(op: str, arrays: list[Array | None], **attrs: Attr) -> tuple[Graph, dict[str, Array]]:
    sketch, feeds, values = Sketch(), {}, []
    for number, array in enumerate(arrays):
        if array is None:
            values.append(None)
            continue
        dtype = next(d for d in (F16, F32, F64, BOOL) if d.numpy == array.dtype)
        values.append(sketch.data(*array.shape, dtype=dtype, name=f"x{number}"))
        feeds[f"x{number}"] = array
    return sketch.graph(sketch.op(op, *values, **attrs)), feeds


def onnx_reference(op: str, arrays: list[Array], **attrs: Any) -> Array:
    names = [f"x{number}" for number in range(len(arrays))]
    node = helper.make_node(op, names, ["y"], **attrs)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    (result,) = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    return np.asarray(result)


def numbers(*shape: int, dtype: DType = F32, seed: int = 0) -> Array:
    return random_array(shape, dtype, np.random.default_rng(seed))


def softmax(x: Any, axis: int) -> Any:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        e = np.exp(wide - wide.max(axis, keepdims=True, initial=-np.inf))
        return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax(shape: tuple[int, ...], dtype: DType) -> None:
    x = numbers(*shape, dtype=dtype)
    for axis in range(len(shape)):
        expected = softmax(x, axis)
        assert_close(single("Softmax", [x], axis=axis), expected.astype(x.dtype), dtype)
        with np.errstate(all="ignore"):
            log = np.log(expected).astype(x.dtype)
        assert_close(single("LogSoftmax", [x], axis=axis), log, dtype)


def test_softmax_does_not_overflow() -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    assert_close(single("Softmax", [x], axis=1), softmax(x, 1).astype(np.float32), F32)
    assert np.isfinite(single("LogSoftmax", [x], axis=1)).all()


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((1, 1), 1), ((3, 7), 1), ((2, 5, 11), 1), ((2, 5, 11), 2), ((4,), 0)])
def test_layer_norm(shape: tuple[int, ...], axis: int, dtype: DType) -> None:
    x, scale, bias = numbers(*shape, dtype=dtype), numbers(*shape[axis:], seed=1), numbers(*shape[axis:], seed=2)
    scale, bias = scale.astype(x.dtype), bias.astype(x.dtype)
    wide, axes = x.astype(np.float64), tuple(range(axis, len(shape)))
    normal = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-3)
    found = single("LayerNorm", [x, scale, bias], axis=axis, epsilon=1e-3)
    assert_close(found, (normal * scale + bias).astype(x.dtype), dtype)
    assert_close(single("LayerNorm", [x], axis=axis, epsilon=1e-3), normal.astype(x.dtype), dtype)
    assert_close(single("LayerNorm", [x, None, bias], axis=axis, epsilon=1e-3), (normal + bias).astype(x.dtype), dtype)


def test_layer_norm_and_onnx_agree() -> None:
    x, scale, bias = numbers(2, 3, 5), numbers(3, 5, seed=1), numbers(3, 5, seed=2)
    expected = onnx_reference("LayerNormalization", [x, scale, bias], axis=1, epsilon=1e-5)
    assert_close(single("LayerNorm", [x, scale, bias], axis=1, epsilon=1e-5), expected, F32)


def test_layer_norm_is_an_instance_norm_when_it_scales_by_channel() -> None:
    x, scale, bias = numbers(2, 3, 5, 7), numbers(3, seed=1), numbers(3, seed=2)
    expected = onnx_reference("InstanceNormalization", [x, scale, bias], epsilon=1e-5)
    found = single("LayerNorm", [x, scale.reshape(3, 1, 1), bias.reshape(3, 1, 1)], axis=2, epsilon=1e-5)
    assert_close(found, expected, F32)


def test_layer_norm_keeps_statistics_of_narrow_floats_wide() -> None:
    x = np.full((1, 4096), 100.0, np.float16)
    x[0, ::2] = 102.0
    assert_close(single("LayerNorm", [x], axis=1, epsilon=0.0), (x - np.float16(101)), F16)


@pytest.mark.parametrize(("shape", "axis"), [((1, 1), 1), ((3, 7), 1), ((2, 5, 11), 1), ((2, 5, 11), 2)])
def test_rms_norm(shape: tuple[int, ...], axis: int) -> None:
    x, scale = numbers(*shape), numbers(*shape[axis:], seed=1)
    expected = onnx_reference("RMSNormalization", [x, scale], axis=axis, epsilon=1e-5)
    assert_close(single("RMSNorm", [x, scale], axis=axis, epsilon=1e-5), expected, F32)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (2, 3, 5), (1, 3, 7, 5)])
def test_batch_norm(shape: tuple[int, ...]) -> None:
    x, channels = numbers(*shape), shape[1]
    scale, bias, mean = (numbers(channels, seed=seed) for seed in (1, 2, 3))
    variance = np.abs(numbers(channels, seed=4))
    expected = onnx_reference("BatchNormalization", [x, scale, bias, mean, variance], epsilon=1e-5)
    assert_close(single("BatchNorm", [x, scale, bias, mean, variance], epsilon=1e-5), expected, F32)


def attention(q: Any, k: Any, v: Any, added: Any = 0.0, scale: float = 1.0, cap: float = 0.0) -> Any:
    score = scale * (q.astype(np.float64) @ np.swapaxes(k, -1, -2))
    score = cap * np.tanh(score / cap) if cap else score
    return (softmax(score + added, -1) @ v).astype(q.dtype)


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize("batch", [(), (1,), (2,), (2, 3)], ids=str)
def test_attention(batch: tuple[int, ...], dtype: DType) -> None:
    q, k = numbers(*batch, 5, 4, dtype=dtype), numbers(*batch, 7, 4, dtype=dtype, seed=1)
    v, mask = numbers(*batch, 7, 3, dtype=dtype, seed=2), numbers(5, 7, dtype=dtype, seed=3)
    plain = {"scale": 0.5, "causal": False, "softcap": 0.0}
    assert_close(single("Attention", [q, k, v], **plain), attention(q, k, v, scale=0.5), dtype)
    assert_close(single("Attention", [q, k, v, mask], **plain), attention(q, k, v, mask, 0.5), dtype)
    capped = single("Attention", [q, k, v, mask], scale=0.5, causal=False, softcap=2.0)
    assert_close(capped, attention(q, k, v, mask, 0.5, 2.0), dtype)


def test_attention_is_causal_from_the_upper_left() -> None:
    q, k, v = numbers(2, 5, 4), numbers(2, 7, 4, seed=1), numbers(2, 7, 3, seed=2)
    never = np.where(np.arange(7)[None] <= np.arange(5)[:, None], 0.0, -np.inf)
    found = single("Attention", [q, k, v], scale=1.0, causal=True, softcap=0.0)
    assert_close(found, attention(q, k, v, never), F32)


def test_attention_shares_keys_between_heads() -> None:
    q, k, v = numbers(2, 3, 5, 4), numbers(2, 1, 7, 4, seed=1), numbers(1, 1, 7, 6, seed=2)
    found = single("Attention", [q, k, v], scale=1.0, causal=False, softcap=0.0)
    assert_close(found, attention(q, k, v), F32)


def test_attention_takes_a_mask_of_booleans() -> None:
    q, k, v = numbers(2, 5, 4), numbers(2, 5, 4, seed=1), numbers(2, 5, 3, seed=2)
    seen = np.tril(np.ones((5, 5), np.bool_))
    infinite = single("Attention", [q, k, v, seen], scale=1.0, causal=False, softcap=0.0)
    assert_close(infinite, attention(q, k, v, np.where(seen, 0.0, -np.inf)), F32)
    nothing = np.zeros((5, 5), np.bool_)
    even = single("Attention", [q, k, v, nothing], scale=1.0, causal=False, softcap=0.0, fill=-10.0)
    assert_close(even, np.broadcast_to(v.mean(-2, keepdims=True), v.shape), F32)


def test_attention_makes_rows_that_see_nothing_zero_on_request() -> None:
    q, k, v = numbers(2, 5, 4), numbers(2, 5, 4, seed=1), numbers(2, 5, 3, seed=2)
    mask = np.zeros((5, 5), np.float32)
    mask[1] = -np.inf
    plain = single("Attention", [q, k, v, mask], scale=1.0, causal=False, softcap=0.0)
    guarded = single("Attention", [q, k, v, mask], scale=1.0, causal=False, softcap=0.0, nan_to_zero=True)
    assert np.isnan(plain[:, 1]).all() and (guarded[:, 1] == 0).all()
    assert_close(guarded[:, [0, 2, 3, 4]], plain[:, [0, 2, 3, 4]], F32)


def test_dimensions_may_be_symbolic() -> None:
    n, m = Sym("n", 1), Sym("m", 1)
    sketch = Sketch()
    q, k, v = (sketch.data(n, 2, m, 4, name=name) for name in "qkv")
    normal = sketch.op("LayerNorm", q, axis=2, epsilon=1e-5)
    y = sketch.op("Attention", normal, k, v, scale=1.0, causal=True, softcap=0.0)
    graph = sketch.graph(sketch.op("Softmax", y, axis=2))
    feeds = {name: numbers(3, 2, 5, 4, seed=seed) for seed, name in enumerate("qkv")}
    assert evaluate(graph, feeds)["y0"].shape == (3, 2, 5, 4)


BAD_OPERANDS = [
    ("Softmax", [(2, 3)], {"axis": 2}),
    ("LayerNorm", [(2, 3), (2,)], {"axis": 1, "epsilon": 0.0}),
    ("LayerNorm", [(3,), (2, 3)], {"axis": 0, "epsilon": 0.0}),
    ("RMSNorm", [(2, 3)], {"axis": 5, "epsilon": 0.0}),
    ("BatchNorm", [(2,)] * 5, {"epsilon": 0.0}),
    ("BatchNorm", [(2, 3), (3,), (3,), (3,), (4,)], {"epsilon": 0.0}),
    ("Attention", [(5, 4), (7, 3), (7, 3)], {"scale": 1.0}),
    ("Attention", [(5, 4), (7, 4), (6, 3)], {"scale": 1.0}),
    ("Attention", [(1, 5, 4), (2, 7, 4), (2, 7, 3)], {"scale": 1.0}),
    ("Attention", [(5, 4), (2, 7, 4), (2, 7, 3)], {"scale": 1.0}),
    ("Attention", [(5, 4), (7, 4), (7, 3), (7, 5)], {"scale": 1.0}),
]


@pytest.mark.parametrize(("op", "shapes", "attrs"), BAD_OPERANDS, ids=lambda case: str(case))
def test_operands_that_do_not_fit_are_refused(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Attr]) -> None:
    with pytest.raises(ValueError):
        OPS[op].infer(tuple(TensorType(F32, shape) for shape in shapes), attrs)


def test_printed_definition() -> None:
    row = TensorType(F16, (2, 3))
    define = OPS["Softmax"].define
    assert define is not None
    assert str(define((row,), {"axis": 1})).splitlines() == [
        "max[i0<2]: f32 = max[r1<3] in0[i0, r1]",
        "exp[i0<2, i1<3]: f32 = exp(sub(in0[i0, i1], t0[i0]))",
        "sum[i0<2]: f32 = sum[r1<3] t1[i0, r1]",
        "inverse[i0<2]: f32 = reciprocal(t2[i0])",
        "y[i0<2, i1<3]: f16 = mul(t1[i0, i1], t3[i0])",
    ]
