"""Scatters and top-k against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Attr
from foretell.graph.optable import OPS
from foretell.ir import dtypes
from foretell.ir.dtypes import F16, F32, I64
from foretell.ir.tensor_expr import TensorType

Numbers = npt.NDArray[Any]
COMBINE = {"none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def run(op: str, arrays: list[Numbers], **attrs: Attr) -> list[Numbers]:
    build = Builder("test")
    feeds = {f"x{number}": array for number, array in enumerate(arrays)}
    values = [build.input(name, TensorType(dtypes.from_numpy(a.dtype), a.shape)) for name, a in feeds.items()]
    results = build.ops(op, *values, **attrs)
    return list(evaluate(build.finish(results, [f"y{k}" for k in range(len(results))]), feeds).values())


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(
    ("shape", "part", "axis"), [((5,), (3,), 0), ((3, 4), (2, 7), 1), ((2, 3, 4), (2, 1, 3), 0), ((3, 2), (0, 2), 0)]
)
def test_scatter_elements(reduction: str, dtype: str, shape: tuple[int, ...], part: tuple[int, ...], axis: int) -> None:
    data, updates = numbers(*shape, dtype=dtype), numbers(*part, dtype=dtype, seed=1)
    indices = np.random.default_rng(2).integers(-shape[axis], shape[axis], part)
    expected = data.copy()
    for place in np.ndindex(part):
        target = (*place[:axis], indices[place], *place[axis + 1 :])
        expected[target] = COMBINE[reduction](expected[target], updates[place])
    (found,) = run("ScatterElements", [data, indices, updates], axis=axis, reduction=reduction)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize(("shape", "count", "depth"), [((5,), 3, 1), ((3, 4), 6, 2), ((3, 4), 2, 1), ((2, 3, 4), 0, 2)])
def test_scatter_nd(reduction: str, shape: tuple[int, ...], count: int, depth: int) -> None:
    data, updates = numbers(*shape), numbers(count, *shape[depth:], seed=1)
    random = np.random.default_rng(2)
    indices = np.stack([random.integers(-extent, extent, count) for extent in shape[:depth]], axis=1)
    expected = data.copy()
    for number in range(count):
        target = tuple(indices[number])
        expected[target] = COMBINE[reduction](expected[target], updates[number])
    (found,) = run("ScatterND", [data, indices, updates], reduction=reduction)
    assert np.array_equal(found, expected)


def test_updates_of_narrow_floats_are_summed_before_they_round() -> None:
    data, updates = np.array([2048], np.float16), np.ones(3, np.float16)
    (found,) = run("ScatterElements", [data, np.zeros(3, np.int64), updates], axis=0, reduction="add")
    assert found[0] == np.float16(2051)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8"])
@pytest.mark.parametrize(("shape", "axis", "k"), [((7,), 0, 3), ((2, 5), 1, 5), ((3, 4, 2), 1, 1), ((3,), 0, 0)])
def test_top_k(largest: bool, dtype: str, shape: tuple[int, ...], axis: int, k: int) -> None:
    x = np.abs(numbers(*shape, dtype="int8")).astype(dtype)
    order = np.argsort(-x.astype(np.int64) if largest else x, axis=axis, kind="stable").take(range(k), axis)
    values, indices = run("TopK", [x], axis=axis, k=k, largest=largest)
    assert np.array_equal(indices, order)
    assert np.array_equal(values, np.take_along_axis(x, order, axis))


def test_top_k_orders_nan_and_infinity() -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, np.nan], np.float32)
    assert run("TopK", [x], axis=0, k=5, largest=True)[1].tolist() == [1, 4, 2, 0, 3]
    assert run("TopK", [x], axis=0, k=5, largest=False)[1].tolist() == [3, 0, 2, 1, 4]


def infer(op: str, *types: TensorType, **attrs: Attr) -> None:
    OPS[op].infer(types, attrs)


def test_what_does_not_fit_is_refused() -> None:
    matrix, indices = TensorType(F32, (3, 4)), TensorType(I64, (2, 4))
    with pytest.raises(ValueError, match="unknown reduction"):
        infer("ScatterElements", matrix, indices, TensorType(F32, (2, 4)), axis=0, reduction="median")
    with pytest.raises(ValueError, match="differ in shape"):
        infer("ScatterElements", matrix, indices, TensorType(F32, (2, 3)), axis=0, reduction="none")
    with pytest.raises(ValueError, match="reach beyond"):
        infer("ScatterElements", TensorType(F32, (3, 2)), indices, TensorType(F32, (2, 4)), axis=0, reduction="none")
    with pytest.raises(ValueError, match="cannot scatter"):
        infer("ScatterElements", TensorType(F32, (3,)), indices, TensorType(F32, (2, 4)), axis=0, reduction="none")
    with pytest.raises(ValueError, match="do not fit"):
        infer("ScatterND", matrix, indices, TensorType(F32, (2,)), reduction="none")
    with pytest.raises(ValueError, match="do not fit indices"):
        infer("ScatterND", matrix, TensorType(I64, (2, 1)), TensorType(F32, (2, 3)), reduction="none")
    with pytest.raises(ValueError, match="no 5 elements"):
        infer("TopK", matrix, axis=1, k=5, largest=True)
    with pytest.raises(ValueError, match="has no axis 2"):
        infer("TopK", TensorType(F16, (2, 2)), axis=2, k=1, largest=True)
