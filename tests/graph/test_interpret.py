"""Tensor expressions mean what they say: definitions against numpy, on awkward shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph import interpret as module
from foretell.graph.interpret import interpret
from foretell.graph.nodes import Array, Attr
from foretell.graph.optable import OPS
from foretell.ir import dtypes
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType, definition_flops


def run(op: str, *arrays: Array | None, **attrs: Attr) -> list[Array]:
    operands = tuple(None if a is None else TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays)
    define = OPS[op].define
    assert define is not None
    return interpret(define(operands, attrs), arrays, {})


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.randoms())
def test_transpose(shape: list[int], random: object) -> None:
    x = floats(*shape)
    perm = tuple(np.random.default_rng(len(shape)).permutation(len(shape)).tolist())
    np.testing.assert_array_equal(run("Transpose", x, perm=perm)[0], x.transpose(perm))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((2, 3, 4), (6, 4)),
        ((6, 4), (2, 3, 4)),
        ((1, 7), (7,)),
        ((), (1, 1)),
        ((4, 6), (3, 8)),
        ((5, 1, 2), (5, 2)),
        ((0, 3), (3, 0)),
        ((2, 1, 3, 1), (1, 6)),
    ],
)
def test_reshape_definition(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    x = floats(*before)
    np.testing.assert_array_equal(run("Reshape", x, shape=after)[0], x.reshape(after))


def test_reshape_keeps_unchanged_dimensions_apart() -> None:
    n = Sym("n", 1)
    define = OPS["Reshape"].define
    assert define is not None
    definition = define((TensorType(dtypes.F32, (n, 64, 56, 56)),), {"shape": (n, 64, 3136)})
    assert str(definition) == "y[i0<n, i1<64, i2<3136]: f32 = in0[i0, i1, i2 // 56, i2 % 56]"


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3), st.sampled_from([1, 2, 3]), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2),
    st.integers(0, 2), st.integers(1, 3),
)  # fmt: skip
def test_conv_against_a_plain_loop(
    n: int, group: int, per_group: int, kernel: int, dilation: int, pad: int, stride: int
) -> None:
    x, w = floats(n, 2 * group, 7, 6), floats(per_group * group, 2, kernel, 1, seed=1)
    bias = floats(per_group * group, seed=2)
    (y,) = run(
        "Conv", x, w, bias,
        strides=(stride, 1), dilations=(dilation, 1), before=(pad, 0), after=(pad, 1), group=group,
    )  # fmt: skip
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (0, 1)))
    expected = np.empty_like(y)
    for o in range(y.shape[1]):
        channels = slice(o // per_group * 2, o // per_group * 2 + 2)
        for i in range(y.shape[2]):
            rows = padded[:, channels, i * stride : i * stride + dilation * (kernel - 1) + 1 : dilation, :]
            expected[:, o, i] = np.einsum("nckw,ck->nw", rows, w[o, :, :, 0]) + bias[o]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (7, 4, 1)), ((1, 0), (0, 3)), ((0, 2), (2, 3))]
)
def test_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = floats(*shapes[0]), floats(*shapes[1], seed=1)
    np.testing.assert_allclose(run("MatMul", a, b)[0], a @ b, rtol=1e-5, atol=1e-6)


def test_matmul_of_narrow_floats_rounds_once() -> None:
    a = np.full((1, 4096), 1.0, np.float16)
    b = np.full((4096, 1), 0.25, np.float16)
    assert run("MatMul", a, b)[0].item() == 1024.0


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ii->i", "ij->", "ij,ij,ij->i", "i,j->ij", "bij,bjk->bk"])
def test_einsum(equation: str) -> None:
    terms = equation.split("->")[0].split(",")
    arrays = [floats(*(3 for _ in term), seed=number) for number, term in enumerate(terms)]
    np.testing.assert_allclose(run("Einsum", *arrays, equation=equation)[0], np.einsum(equation, *arrays), rtol=1e-5)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize(("before", "after"), [((1, 2), (0, 1)), ((4, 0), (5, 7)), ((0, 0), (0, 0))])
def test_pad(mode: str, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    x = floats(3, 4)
    expected = np.pad(x, tuple(zip(before, after, strict=True)), mode=mode)  # type: ignore[call-overload]
    np.testing.assert_array_equal(run("Pad", x, None, before=before, after=after, mode=mode)[0], expected)


def test_negative_pads_crop() -> None:
    x = floats(4, 5)
    result = run("Pad", x, None, before=(-1, 1), after=(-1, -2), mode="constant")[0]
    np.testing.assert_array_equal(result, np.pad(x, ((0, 0), (1, 0)))[1:3, :4])


def test_slice_backwards() -> None:
    x = floats(7)
    np.testing.assert_array_equal(run("Slice", x, starts=(6,), steps=(-2,), shape=(4,))[0], x[::-2])


def test_concat_and_gather_with_negative_indices() -> None:
    x, y = floats(2, 3), floats(2, 4, seed=1)
    joined = run("Concat", x, y, axis=1)[0]
    np.testing.assert_array_equal(joined, np.concatenate([x, y], 1))
    indices = np.array([[0, -1], [-7, 3]])
    np.testing.assert_array_equal(run("Gather", joined, indices, axis=1)[0], np.take(joined, indices, 1))


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"])
def test_empty_reductions_give_the_identity(op: str) -> None:
    result = run(op, floats(2, 0), axes=(1,), keepdims=False)[0]
    expected = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf}[op]
    np.testing.assert_array_equal(result, np.full(2, expected, np.float32))


def test_nan_wins_in_max_and_min() -> None:
    x = np.array([1.0, np.nan, 3.0], np.float32)
    assert np.isnan(run("ReduceMax", x, axes=(0,), keepdims=False)[0])
    assert np.isnan(run("Relu", x)[0][1])


def test_integer_division_truncates_and_wraps() -> None:
    left, right = np.array([-7, 7, -128, 5], np.int8), np.array([2, -2, -1, 3], np.int8)
    np.testing.assert_array_equal(run("Div", left, right)[0], np.array([-3, -3, -128, 1], np.int8))
    np.testing.assert_array_equal(run("Mod", left, right)[0], np.mod(left, right))
    np.testing.assert_array_equal(run("FMod", left, right)[0], np.fmod(left, right))


def test_sigmoid_and_softplus_do_not_overflow() -> None:
    x = np.array([-1e4, -100.0, 0.0, 100.0, 1e4], np.float32)
    np.testing.assert_allclose(run("Sigmoid", x)[0], [0, 3.8e-44, 0.5, 1, 1], rtol=0.01, atol=1e-38)
    np.testing.assert_allclose(run("Softplus", x)[0], [0, 0, np.log(2), 100, 1e4], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("last", [False, True])
def test_arg_max_takes_the_first_or_last(last: bool) -> None:
    x = np.array([[1, 5, 5, 0], [7, 7, 7, 7]], np.float32)
    result = run("ArgMax", x, axis=1, keepdims=False, select_last_index=last)[0]
    np.testing.assert_array_equal(result, [2, 3] if last else [1, 0])


def test_arg_max_finds_the_first_nan() -> None:
    x = np.array([[1, np.nan, 5, np.nan]], np.float32)
    assert run("ArgMax", x, axis=1, keepdims=False, select_last_index=False)[0].item() == 1
    assert run("ArgMin", x, axis=1, keepdims=False, select_last_index=True)[0].item() == 3


def test_chunks_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    x = floats(7, 5, 3)
    whole = run("ReduceSum", x, axes=(2,), keepdims=False)[0]
    monkeypatch.setattr(module, "CHUNK_POINTS", 20)
    np.testing.assert_array_equal(run("ReduceSum", x, axes=(2,), keepdims=False)[0], whole)


def test_loads_of_read_only_and_strided_arrays() -> None:
    x = floats(6, 8)[::-2, 1::3]
    np.testing.assert_array_equal(run("Neg", x)[0], -x)
    exact = x.astype(np.float64)
    np.testing.assert_array_equal(run("MatMul", x, x.T.copy())[0], (exact @ exact.T).astype(np.float32))


def test_flops_of_closed_forms() -> None:
    f32 = dtypes.F32
    n = Sym("n", 1)
    matmul, conv, add = OPS["MatMul"].define, OPS["Conv"].define, OPS["Add"].define
    assert matmul is not None and conv is not None and add is not None
    assert definition_flops(matmul((TensorType(f32, (n, 64)), TensorType(f32, (64, 32))), {})) == 2 * 64 * 32 * n
    window: dict[str, Attr] = {
        "strides": (2, 2), "dilations": (1, 1), "before": (3, 3), "after": (3, 3), "group": 1,
    }  # fmt: skip
    types = (TensorType(f32, (1, 3, 224, 224)), TensorType(f32, (64, 3, 7, 7)))
    assert definition_flops(conv(types, window)) == 2 * 64 * 112 * 112 * 3 * 7 * 7
    assert definition_flops(add((TensorType(f32, (3, 1)), TensorType(f32, (1, 5))), {})) == 15
