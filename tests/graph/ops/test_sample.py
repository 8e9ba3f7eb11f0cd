"""Sampling at computed places: cases whose result is known without interpolating."""

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
from foretell.ir.dtypes import F32, I64
from foretell.ir.tensor_expr import TensorType, definition_flops

Numbers = npt.NDArray[Any]


def run(op: str, arrays: list[Numbers | None], **attrs: Attr) -> Numbers:
    build = Builder("test")
    feeds = {f"x{number}": array for number, array in enumerate(arrays) if array is not None}
    types = {name: TensorType(dtypes.from_numpy(array.dtype), array.shape) for name, array in feeds.items()}
    values = [build.input(f"x{k}", types[f"x{k}"]) if f"x{k}" in types else None for k in range(len(arrays))]
    return evaluate(build.finish([build.op(op, *values, **attrs)], ["y"]), feeds)["y"]


def numbers(*shape: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def centres(*shape: int, align: bool) -> Numbers:
    """The grid whose points are the elements of an image, in order."""
    axes = [np.linspace(-1, 1, d) if align and d > 1 else (2 * np.arange(d) + 1) / d - 1 for d in shape]
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.stack(mesh[::-1], axis=-1)[None].astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 4), (1, 3), (2, 3, 2)])
def test_a_grid_of_centres_gives_the_image(mode: str, padding: str, align: bool, shape: tuple[int, ...]) -> None:
    x = numbers(1, 2, *shape)
    found = run("GridSample", [x, centres(*shape, align=align)], mode=mode, padding=padding, align_corners=align)
    np.testing.assert_allclose(found, x, atol=1e-5)


@pytest.mark.parametrize(("padding", "expected"), [("zeros", [0, 0]), ("border", [1, 3]), ("reflection", [3, 2])])
def test_padding_far_outside(padding: str, expected: list[float]) -> None:
    """Coordinates -3 and 7 of four elements; mirrored at the first and the last these are 3 and 1."""
    x, grid = np.array([[[1, 2, 9, 3]]], np.float32), np.array([[[-3], [11 / 3]]], np.float32)
    found = run("GridSample", [x, grid], mode="linear", padding=padding, align_corners=True)
    np.testing.assert_allclose(found[0, 0], expected, atol=1e-5)


def test_nearest_moves_integers() -> None:
    x = np.arange(6, dtype=np.int64).reshape(1, 1, 2, 3) + (1 << 60)
    found = run("GridSample", [x, centres(2, 3, align=False)], mode="nearest", padding="zeros", align_corners=False)
    assert np.array_equal(found, x)


WINDOW: dict[str, Attr] = {"strides": (2, 1), "dilations": (1, 2), "before": (1, 0), "after": (1, 1)}


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("offset_group", [1, 2])
def test_a_convolution_without_offsets(group: int, offset_group: int) -> None:
    x, w, bias = numbers(2, 4, 5, 6), numbers(6, 4 // group, 3, 2, seed=1), numbers(6, seed=2)
    expected = run("Conv", [x, w, bias], **WINDOW, group=group)
    offset = np.zeros((2, offset_group * 6 * 2, *expected.shape[2:]), np.float32)
    mask = np.full((2, offset_group * 6, *expected.shape[2:]), 2, np.float32)
    attrs = {**WINDOW, "group": group, "offset_group": offset_group}
    found = run("DeformConv", [x, w, offset, bias, None], **attrs)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    found = run("DeformConv", [x, w / 2, offset, bias, mask], **attrs)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("half_pixel", [False, True])
def test_regions_of_a_constant_image(mode: str, half_pixel: bool) -> None:
    x, rois = np.full((2, 3, 4, 5), 2.5, np.float32), np.array([[0, 0, 4, 3], [1, 1, 2, 2]], np.float32)
    attrs: dict[str, Attr] = {"scale": 1.0, "ratio": 1, "shape": (2, 2), "mode": mode, "half_pixel": half_pixel}
    found = run("RoiAlign", [x, rois, np.array([1, 0])], **attrs)
    assert found.shape == (2, 3, 2, 2)
    if mode == "avg":
        np.testing.assert_allclose(found, 2.5)
    else:
        assert (found <= 2.5).all() and (found >= 2.5 / 4).all()


def test_max_roi_pool() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 3, 3], [0, 9, 9, 12, 12]], np.float32)
    found = run("MaxRoiPool", [x, rois], scale=1.0, shape=(2, 2))
    np.testing.assert_array_equal(found, [[[[5, 7], [13, 15]]], [[[0, 0], [0, 0]]]])


def test_flops() -> None:
    def flops(op: str, operands: list[TensorType | None], **attrs: Attr) -> object:
        define = OPS[op].define
        assert define is not None
        return definition_flops(define(tuple(operands), attrs))

    x, grid = TensorType(F32, (1, 3, 8, 8)), TensorType(F32, (1, 5, 7, 2))
    found = flops("GridSample", [x, grid], mode="linear", padding="zeros", align_corners=True)
    # Per point and axis: 3 for the coordinate, 2 * (floor + add) for places, 2 * 3 for weights; then 4 neighbours.
    assert found == 35 * (2 * 3 + 2 * 2 * 2 + 2 * 2 * 3 + 3 * 4 * 3)
    nearest = flops("GridSample", [x, grid], mode="nearest", padding="zeros", align_corners=True)
    assert nearest == 35 * 2 * (3 + 1 + 1)
    rois, batch = TensorType(F32, (6, 4)), TensorType(I64, (6,))
    roi_attrs: dict[str, Attr] = {"scale": 1.0, "ratio": 2, "shape": (7, 7), "mode": "avg", "half_pixel": False}
    small = flops("RoiAlign", [x, rois, batch], **roi_attrs)
    large = flops("RoiAlign", [TensorType(F32, (1, 6, 8, 8)), rois, batch], **roi_attrs)
    assert isinstance(small, int) and isinstance(large, int)
    # Each further channel costs, for each of 49 bins, 4 samples of 4 neighbours (two products, one sum) and a division.
    assert large - small == 6 * 3 * 49 * (16 * 3 + 1)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        ("GridSample", [(1, 1, 2, 2), (1, 3, 3, 3)], {}, "does not fit"),
        ("GridSample", [(1, 1, 2, 2), (2, 3, 3, 2)], {}, "batch"),
        ("GridSample", [(1, 1, 0, 2), (1, 3, 3, 2)], {}, "nothing to sample"),
        ("DeformConv", [(1, 2, 4, 4), (1, 3, 1, 1), (1, 2, 4, 4)], {}, "do not divide"),
        ("DeformConv", [(1, 2, 4, 4), (1, 2, 1, 1), (1, 3, 4, 4)], {}, "the offset"),
        ("DeformConv", [(1, 2, 4, 4), (1, 2, 1, 1), (1, 2, 4, 4), None, (1, 2, 4, 4)], {}, "the mask"),
        ("DeformConv", [(1, 2, 4), (1, 2, 1, 1), (1, 2, 4)], {}, "one rank"),
        ("RoiAlign", [(1, 2, 4, 4), (3, 5), (3,)], {}, "regions of 4"),
        ("RoiAlign", [(1, 2, 4, 4), (3, 4), (3, 1)], {}, "batch indices"),
        ("MaxRoiPool", [(1, 2, 4, 4), (3, 4)], {}, "regions of 5"),
        ("MaxRoiPool", [(1, 2, 4, 4), (3, 5)], {"shape": (0, 1)}, "pooled to"),
    ],
)
def test_operands_that_do_not_fit(
    op: str, shapes: list[tuple[int, ...] | None], attrs: dict[str, Attr], message: str
) -> None:
    ones, zeros = (1, 1), (0, 0)
    defaults: dict[str, Attr] = {"strides": ones, "dilations": ones, "before": zeros, "after": zeros, "shape": ones}
    operands = tuple(None if shape is None else TensorType(F32, shape) for shape in shapes)
    with pytest.raises(ValueError, match=message):
        OPS[op].infer(operands, {**defaults, "group": 1, "offset_group": 1, **attrs})
