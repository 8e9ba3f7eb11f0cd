"""Quantise and Dequantise against the formulas, written in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Attr
from foretell.graph.ops.quantise import integer_range
from foretell.graph.optable import OPS
from foretell.ir import dtypes
from foretell.ir.dtypes import F8E4M3FN, F8E5M2, F16, F32, F64, I2, I4, I8, I16, I32, U2, U4, U8, U16, DType
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType

Numbers = npt.NDArray[Any]
INTEGERS = (I2, I4, I8, I16, U2, U4, U8, U16)
SPECIAL = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 255.5, 65535.5]


def run(op: str, arrays: list[Numbers | None], **attrs: Attr) -> Numbers:
    build, feeds, values = Builder("test"), {}, []
    for number, array in enumerate(arrays):
        if array is None:
            values.append(None)
            continue
        type = TensorType(dtypes.from_numpy(array.dtype), array.shape)
        values.append(build.input(f"x{number}", type))
        feeds[f"x{number}"] = array
    y = build.op(op, *values, **{"axis": 0, "block": 1, **attrs})
    return evaluate(build.finish([y], ["y"]), feeds)["y"]


def quantise(x: Numbers, scale: Numbers | None, zero: Numbers | None, to: DType, **attrs: Attr) -> Numbers:
    return run("Quantise", [x, scale, zero], to=to, **{"precision": F32, "saturate": True, **attrs})


def quantised(x: Numbers, scale: Numbers, zero: Numbers, to: DType) -> Numbers:
    """The formula, with a NaN as the least number."""
    low, high = integer_range(to)
    with np.errstate(all="ignore"):
        quotient = np.rint((x / scale).astype(np.float32)).astype(np.float64) + zero.astype(np.float64)
    return np.where(np.isnan(quotient), low, np.clip(quotient, low, high)).astype(np.int64)


@pytest.mark.parametrize("to", INTEGERS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 0.1, 3.0, 1e-30])
def test_saturates_rounds_to_even_and_takes_nan_for_the_least(to: DType, scale: float) -> None:
    x, low = np.array(SPECIAL, np.float32), integer_range(to)[0]
    zero = np.array(low + 1).astype(to.numpy)
    found = quantise(x, np.array(scale, np.float32), zero, to)
    assert found.dtype == to.numpy
    assert np.array_equal(found.astype(np.int64), quantised(x, np.array(scale, np.float32), zero, to))


@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3, 5), (4, 0, 2), ()], ids=str)
@pytest.mark.parametrize("to", [I8, U16], ids=str)
def test_scales_broadcast(shape: tuple[int, ...], to: DType) -> None:
    random = np.random.default_rng(0)
    x = (random.standard_normal(shape) * 100).astype(np.float32)
    scale = random.uniform(0.1, 2, shape[-1:]).astype(np.float32)
    zero = random.integers(*integer_range(I4), shape[-1:]).clip(0).astype(to.numpy)
    assert np.array_equal(quantise(x, scale, zero, to).astype(np.int64), quantised(x, scale, zero, to))


@pytest.mark.parametrize(("extent", "block"), [(6, 2), (7, 3), (5, 5), (1, 1), (4, 3)])
def test_a_scale_serves_a_block(extent: int, block: int) -> None:
    random = np.random.default_rng(1)
    x = (random.standard_normal((2, extent, 3)) * 50).astype(np.float32)
    scale = random.uniform(0.1, 2, (2, -(-extent // block), 3)).astype(np.float32)
    zero = random.integers(-3, 4, scale.shape).astype(np.int8)
    wide, wide_zero = (np.repeat(a, block, axis=1)[:, :extent] for a in (scale, zero))
    found = quantise(x, scale, zero, I8, axis=1, block=block)
    assert np.array_equal(found.astype(np.int64), quantised(x, wide, wide_zero, I8))
    back = run("Dequantise", [found, scale, zero], to=F32, axis=1, block=block)
    expected = (found.astype(np.float32) - wide_zero.astype(np.float32)) * wide
    assert np.array_equal(back, expected)


def test_without_a_scale_only_rounds() -> None:
    x = np.array([-1.5, 0.5, 300.0], np.float32)
    assert quantise(x, None, None, U8).tolist() == [0, 0, 255]


def test_the_division_is_rounded_to_its_precision() -> None:
    x, scale = np.array([2049.0], np.float32), np.array([2.0], np.float32)
    assert quantise(x, scale, None, I16, precision=F32).tolist() == [1024]  # 1024.5, to even
    assert quantise(x, scale, None, I16, precision=F16).tolist() == [1024]  # 2049 is 2048 in f16
    x = np.array([2051.0], np.float32)
    assert quantise(x, scale, None, I16, precision=F64).tolist() == [1026]  # 1025.5, to even
    assert quantise(x, scale, None, I16, precision=F16).tolist() == [1026]  # 2052 / 2


@pytest.mark.parametrize("to", [F8E4M3FN, F8E5M2], ids=str)
def test_narrow_floats_saturate_if_asked(to: DType) -> None:
    x, one = np.array([1.0, 1e6, -1e6, np.nan], np.float32), np.ones((), np.float32)
    clamped = quantise(x, one, None, to).astype(np.float32)
    assert np.isfinite(clamped[:3]).all() and np.isnan(clamped[3]) and clamped[1] == -clamped[2]
    assert not np.isfinite(quantise(x, one, None, to, saturate=False).astype(np.float32)[1:]).any()


@pytest.mark.parametrize("dtype", [*INTEGERS, I32, F8E4M3FN], ids=str)
def test_dequantise_is_the_formula(dtype: DType) -> None:
    numbers = np.arange(-2, 4) if dtype.kind != "uint" else np.arange(4)
    numbers = numbers.clip(*integer_range(dtype)) if dtype.is_integer else numbers
    x, zero, scale = numbers.astype(dtype.numpy), np.array(1).astype(dtype.numpy), np.array(0.3, np.float32)
    assert np.array_equal(run("Dequantise", [x, scale, zero], to=F32), (x.astype(np.float32) - 1) * scale)


def test_dequantise_multiplies_in_the_result_type() -> None:
    x, scale = np.array([3], np.int8), np.array([0.1], np.float16)
    assert run("Dequantise", [x, scale, None], to=F64)[0] == 3 * float(np.float16(0.1))
    assert run("Dequantise", [x, scale, None], to=F16).dtype == np.float16


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=8), elements=st.floats(-100, 100, width=32)))
def test_a_round_trip_loses_at_most_half_a_step(x: Numbers) -> None:
    scale, zero = np.array(1.0, np.float32), np.array(3, np.int8)
    back = run("Dequantise", [quantise(x, scale, zero, I8), scale, zero], to=F32)
    assert (np.abs(back - x) <= 0.5).all()


def test_symbolic_dimensions_stay() -> None:
    n, attrs = Sym("n", 1), {"to": I8, "precision": F32, "saturate": True, "axis": 0, "block": 4}
    x, scale = TensorType(F32, (n, 8)), TensorType(F32, ((n + 3) // 4, 8))
    assert OPS["Quantise"].infer((x, scale, None), attrs) == (TensorType(I8, (n, 8)),)


@pytest.mark.parametrize(
    ("shape", "axis", "block"), [((3,), 0, 1), ((2, 2), 0, 0), ((2, 4), 1, 3), ((1, 1, 4), 0, 1)], ids=str
)
def test_scales_that_do_not_fit_are_refused(shape: tuple[int, ...], axis: int, block: int) -> None:
    with pytest.raises(ValueError, match=r"do not fit|blocks of 0"):
        attrs: dict[str, Attr] = {"to": F32, "axis": axis, "block": block}
        OPS["Dequantise"].infer((TensorType(I8, (2, 4)), TensorType(F32, shape)), attrs)
