"""ONNX operators that sample an image at computed places."""

from __future__ import annotations

from foretell.frontend.onnx_node import OnnxNode
from foretell.frontend.operators.importer import Importer
from foretell.frontend.operators.windows import LARGEST_WINDOW_NUMBER, conv_window
from foretell.graph.nodes import Value
from foretell.ir.tensor_expr import TensorType

_GRID_MODES = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}
"""Operator set 20 renamed them."""


def _grid_sample(node: OnnxNode) -> Value | None:
    x, grid = node.input(0), node.input(1)
    mode = _GRID_MODES.get(node.text("mode", "linear"))
    padding = node.text("padding_mode", "zeros")
    if mode is None or padding not in ("zeros", "border", "reflection"):
        raise ValueError(f"unknown mode {node.text('mode', '')!r} or padding_mode {padding!r}")
    if mode != "nearest" and not x.dtype.is_float:
        return None
    return node.build.op(
        "GridSample", x, grid, mode=mode, padding=padding, align_corners=bool(node.int("align_corners", 0))
    )


def _deform_conv(node: OnnxNode) -> Value:
    x, w, offset = node.input(0), node.input(1), node.input(2)
    if x.type.rank < 3 or node.int("offset_group", 1) < 1:
        raise ValueError(f"DeformConv of {x.type} in {node.int('offset_group', 1)} offset group(s)")
    window = conv_window(node, x, w.shape[2:])
    return node.build.op(
        "DeformConv",
        x,
        w,
        offset,
        node.optional(3),
        node.optional(4),
        strides=window.strides,
        dilations=window.dilations,
        before=window.before,
        after=window.after,
        group=window.group,
        offset_group=node.int("offset_group", 1),
    )


def _roi_align(node: OnnxNode) -> Value | None:
    """Without a sampling_ratio the data decides how many samples a bin takes: the reference serves."""
    x, rois, batch = node.input(0), node.input(1), node.input(2)
    mode, transform = node.text("mode", "avg"), node.text("coordinate_transformation_mode", "output_half_pixel")
    if mode not in ("avg", "max") or transform not in ("half_pixel", "output_half_pixel"):
        raise ValueError(f"unknown mode {mode!r} or coordinate_transformation_mode {transform!r}")
    shape, ratio = (node.int("output_height", 1), node.int("output_width", 1)), node.int("sampling_ratio", 0)
    if not 0 <= ratio < LARGEST_WINDOW_NUMBER or not all(0 < extent < LARGEST_WINDOW_NUMBER for extent in shape):
        raise ValueError(f"bins {shape} with a sampling_ratio of {ratio}")
    if ratio == 0:
        return None
    samples = (*rois.shape[:1], max(shape) * ratio)
    node.scope.check_type(TensorType(rois.dtype, samples), node.location)
    return node.build.op(
        "RoiAlign",
        x,
        rois,
        batch,
        scale=node.float("spatial_scale", 1.0),
        ratio=ratio,
        shape=shape,
        mode=mode,
        half_pixel=transform == "half_pixel",
    )


def _max_roi_pool(node: OnnxNode) -> Value:
    shape = node.ints("pooled_shape") or ()
    if len(shape) != 2 or not all(0 < extent < LARGEST_WINDOW_NUMBER for extent in shape):
        raise ValueError(f"pooled_shape {shape} is not a height and a width")
    return node.build.op("MaxRoiPool", *node.present_inputs, scale=node.float("spatial_scale", 1.0), shape=shape)


SAMPLE_IMPORTERS: dict[str, Importer] = {
    "GridSample": _grid_sample,
    "DeformConv": _deform_conv,
    "RoiAlign": _roi_align,
    "MaxRoiPool": _max_roi_pool,
}
