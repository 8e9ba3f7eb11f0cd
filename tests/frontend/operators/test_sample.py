"""Sampling operators against onnx's reference and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.support.errors import ForetellError
from tests.frontend.operators.single_node import Numbers, assert_near, single_node

quick = settings(max_examples=25, deadline=None)


def numbers(*shape: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@quick
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    points=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    align=st.integers(0, 1),
    seed=st.integers(0, 1000),
)
def test_grid_sample(shape: Any, points: Any, mode: str, padding: str, align: int, seed: int) -> None:
    if align and padding == "reflection" and 1 in shape:
        return  # the reference divides by zero
    x, grid = numbers(1, 2, *shape, seed=seed), numbers(1, *points, 2, seed=seed + 1)
    node = single_node("GridSample", [x, grid], opset=20, mode=mode, padding_mode=padding, align_corners=align)
    assert_near(node.run(), node.by_reference(), 1e-3)


@pytest.mark.parametrize(("opset", "mode"), [(16, "bilinear"), (16, "bicubic"), (16, "nearest"), (20, "linear")])
def test_names_of_grid_modes(opset: int, mode: str) -> None:
    node = single_node("GridSample", [numbers(2, 3, 4, 5), numbers(2, 3, 2, 2, seed=1)], opset=opset, mode=mode)
    assert_near(node.run(), node.by_onnxruntime(), 1e-3)


def test_a_volume_of_symbolic_shape() -> None:
    arrays = [numbers(2, 2, 3, 2, 4), numbers(2, 2, 3, 2, 3, seed=1)]
    for padding in ("zeros", "border", "reflection"):
        node = single_node("GridSample", arrays, opset=20, symbolic=True, padding_mode=padding)
        assert_near(node.run(), node.by_reference(), 1e-3)


def test_symbolic_shapes() -> None:
    arrays = [numbers(1, 2, 4, 5), numbers(2, 2, 1, 1), numbers(1, 2, 4, 5)]
    node = single_node("DeformConv", arrays, opset=19, symbolic=True, constants=[1])
    assert_near(node.run(), node.by_reference())
    rois = np.array([[0, 1, 3, 4], [0.5, 0, 2, 2]], np.float32)
    node = single_node("RoiAlign", [arrays[0], rois, np.array([0, 0])], opset=16, symbolic=True, sampling_ratio=2)
    assert_near(node.run(), node.by_reference())
    rois = np.concatenate([np.zeros((2, 1), np.float32), rois], axis=1)
    node = single_node("MaxRoiPool", [arrays[0], rois], opset=11, symbolic=True, pooled_shape=[2, 2])
    assert_near(node.run(), node.by_onnxruntime())


def test_an_interpolation_of_integers_is_left_to_the_reference() -> None:
    graph = single_node("GridSample", [np.ones((1, 1, 2, 2), np.int32), numbers(1, 2, 2, 2)], opset=20).graph()
    assert [node.op for node in graph.nodes] == ["Onnx"]


@quick
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
    group=st.integers(1, 2),
    offset_group=st.integers(1, 2),
    optional=st.booleans(),
)
def test_deform_conv(
    kernel: Any, strides: Any, dilations: Any, pads: Any, group: int, offset_group: int, optional: bool
) -> None:
    space = [5, 6]
    out = [(space[k] + pads[k] + pads[k + 2] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1 for k in (0, 1)]
    taps = offset_group * kernel[0] * kernel[1]
    arrays = [numbers(2, 2 * group, *space), numbers(2 * group, 2, *kernel, seed=1), numbers(2, taps * 2, *out, seed=2)]
    arrays += [numbers(2 * group, seed=3), numbers(2, taps, *out, seed=4)] if optional else []
    node = single_node(
        "DeformConv",
        arrays,
        opset=19,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=group,
        offset_group=offset_group,
    )
    assert_near(node.run(), node.by_onnxruntime(), 1e-4)


@quick
@given(
    mode=st.sampled_from(["avg", "max"]),
    transform=st.sampled_from(["half_pixel", "output_half_pixel"]),
    bins=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ratio=st.integers(1, 3),
    scale=st.sampled_from([1.0, 0.5]),
    seed=st.integers(0, 1000),
)
def test_roi_align(mode: str, transform: str, bins: Any, ratio: int, scale: float, seed: int) -> None:
    corners = np.random.default_rng(seed).uniform(-3, 9, (3, 4)).astype(np.float32)
    node = single_node(
        "RoiAlign",
        [numbers(2, 2, 5, 4), corners, np.array([1, 0, 1])],
        opset=16,
        mode=mode,
        coordinate_transformation_mode=transform,
        output_height=bins[0],
        output_width=bins[1],
        sampling_ratio=ratio,
        spatial_scale=scale,
    )
    assert_near(node.run(), node.by_reference(), 1e-4)


def test_the_oldest_roi_align_does_not_shift_by_half_a_pixel() -> None:
    arrays = [numbers(1, 1, 5, 5), np.array([[0, 1, 3, 4]], np.float32), np.array([0])]
    node = single_node("RoiAlign", arrays, opset=10, output_height=2, output_width=2, sampling_ratio=2)
    assert_near(node.run(), node.by_onnxruntime())


def test_an_adaptive_roi_align_is_left_to_the_reference() -> None:
    arrays = [numbers(1, 1, 5, 5), np.array([[0, 1, 3, 4]], np.float32), np.array([0])]
    assert [node.op for node in single_node("RoiAlign", arrays, opset=16).graph().nodes] == ["Onnx"]


@quick
@given(
    bins=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    scale=st.sampled_from([1.0, 0.5, 0.7]),
    seed=st.integers(0, 1000),
)
def test_max_roi_pool(bins: Any, scale: float, seed: int) -> None:
    """onnx has no reference for it."""
    corners = np.random.default_rng(seed).uniform(-2, 9, (3, 5)).astype(np.float32)
    corners[:, 0] = [1, 0, 1]
    node = single_node("MaxRoiPool", [numbers(2, 2, 5, 4), corners], opset=11, pooled_shape=bins, spatial_scale=scale)
    assert_near(node.run(), node.by_onnxruntime(), 0)


IMAGE, ROIS, BATCH = numbers(1, 1, 4, 4), np.zeros((1, 4), np.float32), np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "message"),
    [
        ("GridSample", [IMAGE, numbers(1, 2, 2, 2)], {"mode": "area"}, "mode"),
        ("GridSample", [IMAGE, numbers(1, 2, 2, 2)], {"padding_mode": "wrap"}, "padding_mode"),
        ("GridSample", [IMAGE, numbers(1, 2, 2, 3)], {}, "does not fit"),
        ("DeformConv", [IMAGE, numbers(1, 1, 1, 1), numbers(1, 2, 4, 4)], {"offset_group": 0}, "offset group"),
        ("DeformConv", [IMAGE, numbers(1, 1, 1, 1), numbers(1, 2, 4, 4)], {"kernel_shape": [2, 2]}, "kernel_shape"),
        ("RoiAlign", [IMAGE, ROIS, BATCH], {"mode": "min", "sampling_ratio": 1}, "mode"),
        ("RoiAlign", [IMAGE, ROIS, BATCH], {"output_height": 0, "sampling_ratio": 1}, "bins"),
        ("RoiAlign", [IMAGE, ROIS, BATCH], {"sampling_ratio": 1 << 30, "output_width": 1 << 30}, "too large"),
        ("MaxRoiPool", [IMAGE, numbers(1, 5)], {"pooled_shape": [0, 1]}, "pooled_shape"),
        ("MaxRoiPool", [IMAGE, numbers(1, 5)], {"pooled_shape": [1 << 30, 1 << 30]}, "too large"),
    ],
)
def test_broken_nodes(op: str, arrays: list[Numbers], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ForetellError, match=message):
        single_node(op, arrays, opset=20, **attributes).graph()
