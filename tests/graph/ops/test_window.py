"""Pools, LRN, transposed convolution and Col2Im against loops that say what each element is."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Attr
from foretell.graph.ops.window import pool_extent
from foretell.graph.optable import OPS
from foretell.ir import dtypes
from foretell.ir.dtypes import F16, F32, I8, U8
from foretell.ir.expr import Sym, substitute
from foretell.ir.tensor_expr import TensorType, definition_flops
from foretell.support.errors import InputError
from tests.graph.build_graphs import text

Numbers = npt.NDArray[Any]
Window = dict[str, tuple[int, ...]]
quick = settings(max_examples=30, deadline=None)


def run(op: str, arrays: list[Numbers], **attrs: Attr) -> list[Numbers]:
    build = Builder("test")
    feeds = {f"x{number}": array for number, array in enumerate(arrays)}
    values = [build.input(name, TensorType(dtypes.from_numpy(a.dtype), a.shape)) for name, a in feeds.items()]
    results = build.ops(op, *values, **attrs)
    return list(evaluate(build.finish(results, [f"y{k}" for k in range(len(results))]), feeds).values())


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Numbers:
    """Small whole numbers, so that sums are exact."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


@st.composite
def pooled(draw: st.DrawFn) -> tuple[tuple[int, ...], Window]:
    """A shape, and a window that fits; windows overlap, leave gaps, and stick out of the padding."""
    extents: list[int] = []
    columns: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(1, 2))):
        kernel, stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
        before, after = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        extent = draw(st.integers(max(1, dilation * (kernel - 1) + 1 - before - after), 10))
        count = pool_extent(extent, kernel, stride, dilation, (before, after), draw(st.booleans()))
        assert isinstance(count, int)
        extents.append(extent)
        columns.append((kernel, stride, dilation, before, after, count))
    names = ("kernel", "strides", "dilations", "before", "after", "shape")
    batch = draw(st.sampled_from([(1, 1), (2, 3)]))
    return (*batch, *extents), dict(zip(names, zip(*columns, strict=True), strict=True))


def windows(x: Numbers, window: Window) -> list[tuple[tuple[int, ...], list[tuple[int, ...]], int]]:
    """(window, the places it sees, how many of its taps lie in the input or its declared padding)."""
    space, found = x.shape[2:], []
    for here in product(*map(range, window["shape"])):
        seen, counted = [], 0
        for tap in product(*map(range, window["kernel"])):
            place = tuple(
                s * stride + k * dilation - before
                for s, k, stride, dilation, before in zip(
                    here, tap, window["strides"], window["dilations"], window["before"], strict=True
                )
            )
            bounds = list(zip(place, space, window["before"], window["after"], strict=True))
            if all(0 <= p < extent for p, extent, _, _ in bounds):
                seen.append(place)
            counted += all(-before <= p < extent + after for p, extent, before, after in bounds)
        found.append((here, seen, counted))
    return found


@quick
@given(case=pooled(), dtype=st.sampled_from([F32, F16, I8, U8]), order=st.sampled_from(["", "rows", "columns"]))
def test_max_pool(case: tuple[tuple[int, ...], Window], dtype: dtypes.DType, order: str) -> None:
    shape, window = case
    x = numbers(*shape).astype(dtype.numpy)
    found = run("MaxPool", [x], **window, indices=order)
    for n, c in np.ndindex(x.shape[:2]):
        for here, seen, _ in windows(x, window):
            if not seen:
                continue
            best = max(seen, key=lambda place: (x[n, c][place], [-p for p in place]))
            assert found[0][n, c][here] == x[n, c][best]
            if order:
                storage = "C" if order == "rows" else "F"
                flat = np.ravel_multi_index(best, x.shape[2:], order=storage)
                assert found[1][n, c][here] == (n * x.shape[1] + c) * prod(x.shape[2:]) + flat


def test_max_pool_passes_nan_on_and_finds_it() -> None:
    x = np.array([[[1, np.nan, 3, 2, -np.inf]]], np.float32)
    window = {"kernel": (2,), "strides": (1,), "dilations": (1,), "before": (1,), "after": (0,), "shape": (5,)}
    y, indices = run("MaxPool", [x], **window, indices="rows")
    np.testing.assert_array_equal(y, [[[1, np.nan, np.nan, 3, 2]]])
    np.testing.assert_array_equal(indices, [[[0, 1, 1, 2, 3]]])


def test_max_pool_of_minus_infinity_points_into_the_input() -> None:
    x = np.full((1, 1, 2), -np.inf, np.float32)
    window = {"kernel": (2,), "strides": (1,), "dilations": (1,), "before": (1,), "after": (1,), "shape": (3,)}
    assert run("MaxPool", [x], **window, indices="rows")[1].tolist() == [[[0, 0, 1]]]


@quick
@given(case=pooled(), include=st.booleans())
def test_average_pool(case: tuple[tuple[int, ...], Window], include: bool) -> None:
    shape, window = case
    x = numbers(*shape)
    (found,) = run("AveragePool", [x], **window, count_include_pad=include)
    for n, c in np.ndindex(x.shape[:2]):
        for here, seen, counted in windows(x, window):
            total, count = sum(x[n, c][place] for place in seen), counted if include else len(seen)
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(found[n, c][here], np.float32(total) / np.float32(count), rtol=1e-6)


@quick
@given(case=pooled(), p=st.integers(1, 4))
def test_lp_pool(case: tuple[tuple[int, ...], Window], p: int) -> None:
    shape, window = case
    x = numbers(*shape)
    (found,) = run("LpPool", [x], **window, p=p)
    for n, c in np.ndindex(x.shape[:2]):
        for here, seen, _ in windows(x, window):
            norm = sum(abs(float(x[n, c][place])) ** p for place in seen) ** (1 / p)
            np.testing.assert_allclose(found[n, c][here], norm, rtol=1e-5)


def test_sums_of_half_floats_do_not_overflow() -> None:
    x = np.full((1, 1, 4), 60000, np.float16)
    window = {"kernel": (4,), "strides": (1,), "dilations": (1,), "before": (0,), "after": (0,), "shape": (1,)}
    assert run("AveragePool", [x], **window, count_include_pad=False)[0].item() == 60000
    assert run("LpPool", [x / 2], **window, p=2)[0].item() == 60000


def test_a_window_that_never_fits_gives_nothing() -> None:
    window = {"kernel": (4,), "strides": (4,), "dilations": (1,), "before": (0,), "after": (0,), "shape": (0,)}
    assert run("MaxPool", [numbers(2, 3, 3)], **window, indices="")[0].shape == (2, 3, 0)


def test_symbolic_extents_give_the_same_windows() -> None:
    n = Sym("n", 1)
    count = pool_extent(n, 3, 2, 1, (1, 1), ceil=True)
    attrs: dict[str, Attr] = {"kernel": (3,), "strides": (2,), "dilations": (1,), "before": (1,), "after": (1,)}
    build = Builder("test")
    x = build.input("x", TensorType(F32, (1, 1, n)))
    y = build.op("AveragePool", x, **attrs, shape=(count,), count_include_pad=False)
    graph = build.finish([y], ["y"])
    for extent in range(1, 9):
        data = numbers(1, 1, extent)
        shape = (substitute(count, {n: extent}),)
        (expected,) = run("AveragePool", [data], **attrs, shape=shape, count_include_pad=False)
        np.testing.assert_array_equal(evaluate(graph, {"x": data})["y"], expected)
    build = Builder("test")
    x = build.input("x", TensorType(F32, (1, 1, n)))
    narrow = {**attrs, "before": (0,), "after": (0,), "shape": (n - 2,), "strides": (1,)}
    graph = build.finish([build.op("MaxPool", x, **narrow, indices="")], ["y"])
    with pytest.raises(InputError, match="does not fit into"):
        evaluate(graph, {"x": numbers(1, 1, 1)})


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("shape", [(1, 1), (2, 4, 3), (1, 7, 2, 2)])
def test_lrn(size: int, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    squares = np.zeros_like(x)
    for c in range(shape[1]):
        low, high = max(0, c - (size - 1) // 2), min(shape[1] - 1, c + size // 2)
        squares[:, c] = (x[:, low : high + 1] ** 2).sum(axis=1)
    (found,) = run("LRN", [x], size=size, alpha=0.3, beta=0.6, bias=1.5)
    np.testing.assert_allclose(found, x / (1.5 + 0.3 / size * squares) ** 0.6, rtol=1e-5)


@st.composite
def transposed(draw: st.DrawFn) -> dict[str, Any]:
    """A transposed convolution: strides beyond the kernel, dilation, groups, cuts on both sides, zeros behind."""
    rank, group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    axes = [
        {
            "extent": draw(st.integers(1, 4)),
            "kernel": draw(st.integers(1, 4)),
            "stride": draw(st.integers(1, 4)),
            "dilation": draw(st.integers(1, 3)),
            "before": draw(st.integers(0, 5)),
            "length": draw(st.integers(1, 12)),
        }
        for _ in range(rank)
    ]
    return {"axes": axes, "group": group, "bias": draw(st.booleans()), "out": draw(st.integers(1, 2))}


@quick
@given(case=transposed())
def test_conv_transpose(case: dict[str, Any]) -> None:
    axes, group, per_group = case["axes"], case["group"], case["out"]
    x = numbers(2, 2 * group, *(axis["extent"] for axis in axes))
    w = numbers(2 * group, per_group, *(axis["kernel"] for axis in axes), seed=1)
    bias = numbers(group * per_group, seed=2)
    expected = np.zeros((2, group * per_group, *(axis["length"] for axis in axes)), np.float32)
    for place, tap in product(np.ndindex(x.shape[2:]), np.ndindex(w.shape[2:])):
        target = tuple(
            i * axis["stride"] + k * axis["dilation"] - axis["before"]
            for i, k, axis in zip(place, tap, axes, strict=True)
        )
        if all(0 <= t < axis["length"] for t, axis in zip(target, axes, strict=True)):
            for g in range(group):
                data, weights = x[(slice(None), slice(2 * g, 2 * g + 2), *place)], w[2 * g : 2 * g + 2]
                into = (slice(None), slice(g * per_group, (g + 1) * per_group), *target)
                expected[into] += data @ weights[(..., *tap)]
    if case["bias"]:
        expected += bias.reshape(-1, *(1,) * len(axes))
    attrs = {
        "strides": tuple(axis["stride"] for axis in axes),
        "dilations": tuple(axis["dilation"] for axis in axes),
        "before": tuple(axis["before"] for axis in axes),
        "shape": tuple(axis["length"] for axis in axes),
    }
    (found,) = run("ConvTranspose", [x, w, bias] if case["bias"] else [x, w], **attrs, group=group)
    np.testing.assert_array_equal(found, expected)


@quick
@given(
    image=st.tuples(st.integers(3, 7), st.integers(3, 7)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    before=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    after=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_col2im(**window: tuple[int, ...]) -> None:
    kernel, image = window["kernel"], window["image"]
    blocks = tuple(
        (image[k] + window["before"][k] + window["after"][k] - window["dilations"][k] * (kernel[k] - 1) - 1)
        // window["strides"][k]
        + 1
        for k in (0, 1)
    )
    x = numbers(2, 2 * prod(kernel), prod(blocks))
    columns = x.reshape(2, 2, *kernel, *blocks)
    expected = np.zeros((2, 2, *image), np.float32)
    for tap, block in product(np.ndindex(kernel), np.ndindex(blocks)):
        place = tuple(
            block[k] * window["strides"][k] + tap[k] * window["dilations"][k] - window["before"][k] for k in (0, 1)
        )
        if all(0 <= p < extent for p, extent in zip(place, image, strict=True)):
            expected[(..., *place)] += columns[(..., *tap, *block)]
    np.testing.assert_array_equal(run("Col2Im", [x], **window)[0], expected)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "message"),
    [
        ("MaxPool", [numbers(2, 3)], {"kernel": (), "shape": ()}, "spatial axes"),
        ("MaxPool", [numbers(1, 1, 4)], {"kernel": (2, 2), "shape": (1,)}, "spatial axes"),
        ("MaxPool", [numbers(1, 1, 4)], {"kernel": (9,), "shape": (-4,)}, "does not fit into"),
        ("LRN", [numbers(3)], {"size": 1}, "LRN over 1"),
        ("ConvTranspose", [numbers(1, 2, 3), numbers(3, 1, 2)], {"shape": (4,), "group": 1}, "for 2 channels"),
        ("ConvTranspose", [numbers(1, 3, 3), numbers(3, 1, 2)], {"shape": (4,), "group": 2}, "2 groups"),
        ("ConvTranspose", [numbers(1, 2, 3), numbers(2, 1, 2)], {"shape": (0,), "group": 1}, "spatial shape"),
        ("ConvTranspose", [numbers(1, 2), numbers(2, 1)], {"shape": (), "group": 1}, "one rank"),
        ("Col2Im", [numbers(1, 4, 5)], {"kernel": (2, 2), "image": (3, 3)}, "4 blocks"),
        ("Col2Im", [numbers(1, 3, 4)], {"kernel": (2, 2), "image": (3, 3)}, "do not divide"),
        ("Col2Im", [numbers(1, 3)], {"kernel": (2, 2), "image": (3, 3)}, "rank 3"),
    ],
)
def test_operands_that_do_not_fit(op: str, arrays: list[Numbers], attrs: dict[str, Any], message: str) -> None:
    count = len(attrs.get("image", attrs.get("shape", ())))
    ones, zeros = (1,) * count, (0,) * count
    defaults = {"strides": ones, "dilations": ones, "before": zeros, "after": zeros, "indices": ""}
    operands = tuple(TensorType(dtypes.from_numpy(array.dtype), array.shape) for array in arrays)
    with pytest.raises(ValueError, match=message):
        OPS[op].infer(operands, {**defaults, **attrs})


def flops(op: str, shapes: list[tuple[int, ...]], **attrs: Attr) -> object:
    define = OPS[op].define
    assert define is not None
    return definition_flops(define(tuple(TensorType(F32, shape) for shape in shapes), attrs))


def test_flops() -> None:
    window: dict[str, Attr] = {
        "kernel": (3, 3),
        "strides": (2, 2),
        "dilations": (1, 1),
        "before": (1, 1),
        "after": (1, 1),
        "shape": (28, 28),
    }
    image, results = (1, 64, 56, 56), 64 * 28 * 28
    assert flops("MaxPool", [image], **window, indices="") == 9 * results
    assert flops("AveragePool", [image], **window, count_include_pad=False) == (9 + 1) * results
    assert flops("LpPool", [image], **window, p=2) == (2 * 9 + 1) * results
    assert flops("LRN", [(1, 8, 4, 4)], size=5, alpha=1.0, beta=0.5, bias=1.0) == (2 * 5 + 4) * 8 * 16
    # A stride that divides the kernel wastes nothing: four taps for each of 2 * 2 remainders at 9 * 9 quotients.
    attrs: dict[str, Attr] = {"strides": (2, 2), "dilations": (1, 1), "before": (1, 1), "shape": (16, 16), "group": 1}
    assert flops("ConvTranspose", [(1, 3, 8, 8), (3, 5, 4, 4)], **attrs) == 2 * 3 * 5 * (2 * 2) * (2 * 2) * (9 * 9)
    tiles: dict[str, Attr] = {"strides": (2, 2), "dilations": (1, 1), "before": (0, 0), "after": (0, 0)}
    assert flops("Col2Im", [(1, 12, 4)], **tiles, kernel=(2, 2), image=(4, 4)) == 4 * 3 * 16


def test_the_definition_of_a_transposed_convolution() -> None:
    define = OPS["ConvTranspose"].define
    assert define is not None
    attrs: dict[str, Attr] = {"strides": (2,), "dilations": (1,), "before": (1,), "shape": (8,), "group": 1}
    definition = define((TensorType(F32, (1, 3, 4)), TensorType(F32, (3, 5, 3)), TensorType(F32, (5,))), attrs)
    assert str(definition) == text("""
        filter[i0<3, i1<5, i2<4]: f32 = select(lt(index(i2), index(3)), in1[i0, i1, i2], 0:f32)
        padded[i0<1, i1<3, i2<6]: f32 = select(lt(index(i2 - 1), index(4)), select(ge(index(i2 - 1), index(0)), in0[i0, i1, i2 - 1], 0:f32), 0:f32)
        sum[n<1, o<5, q0<5, r0<2]: f32 = sum[c<3, k0<2] mul(t1[n, c, -k0 + q0 + 1], t0[c, o, 2*k0 + r0])
        y[i0<1, i1<5, i2<8]: f32 = add(t2[i0, i1, (i2 + 1) // 2, (i2 + 1) % 2], in2[i1])
    """)  # noqa: E501
