"""ONNX Resize and Upsample: along each axis a gather, or an interpolation by tables that are known at import."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import isclose, isfinite

import numpy as np

from foretell.frontend.onnx_node import OnnxNode, normal_axes
from foretell.frontend.operators.importer import Importer
from foretell.frontend.operators.resize_tables import (
    Interpolation,
    ResizedAxis,
    interpolation_tables,
    kernel_offsets,
    nearest_places,
    outside_input,
)
from foretell.graph.build import Builder
from foretell.graph.interpret import highest, lowest
from foretell.graph.nodes import Array, Value
from foretell.ir.dtypes import BOOL, F32, F64, DType
from foretell.ir.tensor_expr import TensorType

MAX_TABLE_ELEMENTS = 1 << 21
"""Larger tables are not made at import: the reference serves."""
MAX_REPEATS = 1 << 12
"""Scale up to which an axis of unknown extent is repeated."""

# --- what the node asks for ----------------------------------------------------------------------------------


def _resize(node: OnnxNode) -> Value | None:
    x, rule = node.input(0), _rule(node)
    axes = _scaled(node, x, tuple(range(x.type.rank)), 1) if node.version < 11 else _requested(node, x, rule)
    return None if axes is None else _resized(node, x, axes, rule)


def _rule(node: OnnxNode) -> Interpolation:
    mode = node.text("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"unknown mode {mode!r}")
    if node.version < 11:
        return Interpolation(mode, nearest="simple")
    rule = Interpolation(
        mode,
        node.text("coordinate_transformation_mode", "half_pixel"),
        node.text("nearest_mode", "round_prefer_floor"),
        node.float("cubic_coeff_a", -0.75),
        bool(node.int("antialias", 0)),
        bool(node.int("exclude_outside", 0)),
        node.float("extrapolation_value", 0.0),
    )
    if rule.antialias and mode == "nearest":
        raise ValueError("antialias has no meaning for mode nearest")
    return rule


def _requested(node: OnnxNode, x: Value, rule: Interpolation) -> list[ResizedAxis] | None:
    """The axes to resize since operator set 11: scales or sizes, for all axes or some."""
    given = node.ints("axes")
    positions = tuple(range(x.type.rank)) if given is None else normal_axes(given, x.type.rank)
    if _is_absent(node, 2) == _is_absent(node, 3):
        raise ValueError("exactly one of scales and sizes must be given")
    axes = _sized(node, x, positions) if _is_absent(node, 2) else _scaled(node, x, positions, 2)
    return axes if axes is None or rule.transform != "tf_crop_and_resize" else _cropped(node, axes)


def _is_absent(node: OnnxNode, number: int) -> bool:
    """Before operator set 13 an empty tensor stands for an input that is not given."""
    value = node.optional(number)
    return value is None or value.type.elements == 0


def _scaled(node: OnnxNode, x: Value, positions: tuple[int, ...], number: int) -> list[ResizedAxis] | None:
    array = node.array(number)
    return None if array is None else _by_scales(x, positions, [float(scale) for scale in array.reshape(-1)])


def _by_scales(x: Value, positions: tuple[int, ...], scales: list[float]) -> list[ResizedAxis] | None:
    """An axis of unknown extent can be kept, or repeated a whole number of times."""
    if len(scales) != len(positions) or not all(isfinite(scale) and scale > 0 for scale in scales):
        raise ValueError(f"scales {scales} do not fit {x.type}")
    axes: list[ResizedAxis] = []
    for axis, scale in zip(positions, scales, strict=True):
        extent = x.shape[axis]
        if isinstance(extent, int):
            axes.append(ResizedAxis(axis, extent, int(extent * scale), scale))
        elif scale.is_integer():
            axes.append(ResizedAxis(axis, extent, extent * int(scale), scale))
        else:
            return None
    return axes


def _sized(node: OnnxNode, x: Value, positions: tuple[int, ...]) -> list[ResizedAxis] | None:
    sizes, policy = node.dims(3), node.text("keep_aspect_ratio_policy", "stretch")
    if sizes is None:
        return None
    if len(sizes) != len(positions) or any(isinstance(size, int) and size < 0 for size in sizes):
        raise ValueError(f"sizes {sizes} do not fit {x.type}")
    axes: list[ResizedAxis] = []
    for axis, size in zip(positions, sizes, strict=True):
        extent, times = x.shape[axis], size // x.shape[axis] if x.shape[axis] != 0 else 1
        if isinstance(extent, int) and isinstance(size, int):
            axes.append(ResizedAxis(axis, extent, size, size / extent if extent else 1.0))
        elif isinstance(times, int) and times * extent == size:
            axes.append(ResizedAxis(axis, extent, size, float(times)))
        else:
            return None
    return axes if policy == "stretch" else _in_proportion(axes, policy)


def _in_proportion(axes: list[ResizedAxis], policy: str) -> list[ResizedAxis] | None:
    """All axes by the smallest or largest of the scales, lengths rounded half up."""
    if policy not in ("not_larger", "not_smaller"):
        raise ValueError(f"unknown keep_aspect_ratio_policy {policy!r}")
    scales = [axis.scale for axis in axes]
    scale = min(scales, default=1.0) if policy == "not_larger" else max(scales, default=1.0)
    kept: list[ResizedAxis] = []
    for axis in axes:
        if not isinstance(axis.extent, int):
            return None
        kept.append(replace(axis, length=int(scale * axis.extent + 0.5), scale=scale))
    return kept


def _cropped(node: OnnxNode, axes: list[ResizedAxis]) -> list[ResizedAxis] | None:
    """The axes with their regions of interest: all starts, then all ends."""
    if _is_absent(node, 1):
        raise ValueError("tf_crop_and_resize needs a roi")
    roi = node.array(1)
    if roi is None:
        return None
    numbers = [float(number) for number in roi.reshape(-1)]
    if len(numbers) != 2 * len(axes) or not all(isfinite(number) for number in numbers):
        raise ValueError(f"roi {numbers} does not fit {len(axes)} axes")
    starts, ends = numbers[: len(axes)], numbers[len(axes) :]
    return [replace(axis, region=(start, end)) for axis, start, end in zip(axes, starts, ends, strict=True)]


def _upsample(node: OnnxNode) -> Value | None:
    x, positions = node.input(0), tuple(range(node.input(0).type.rank))
    scales = node.floats("scales")
    axes = _scaled(node, x, positions, 1) if scales is None else _by_scales(x, positions, list(scales))
    if axes is not None and any(axis.scale < 1 for axis in axes):
        raise ValueError(f"Upsample by scales {[axis.scale for axis in axes]}, which must be 1 or more")
    rule = Interpolation(node.text("mode", "nearest"))
    if rule.mode not in ("nearest", "linear"):
        raise ValueError(f"unknown mode {rule.mode!r}")
    return None if axes is None else _resized(node, x, axes, rule)


# --- the nodes that do it ------------------------------------------------------------------------------------


def _resized(node: OnnxNode, x: Value, axes: list[ResizedAxis], rule: Interpolation) -> Value | None:
    """Nearest moves elements; the other modes compute in a float type that holds the elements, and round once."""
    shape = list(x.shape)
    for axis in axes:
        shape[axis.axis] = axis.length
        if axis.extent == 0 and axis.length != 0:
            raise ValueError(f"axis {axis.axis} of {x.type} is empty and cannot be resized to {axis.length}")
    node.scope.check_type(TensorType(x.dtype, tuple(shape)), node.location)
    work = [axis for axis in axes if not _is_identity(axis, rule)]
    wide = x.dtype if rule.mode == "nearest" else _interpolation_dtype(x.dtype)
    if wide is None or not all(_can_do(axis, rule) for axis in work):
        return None
    tables = [_try_tables(node, axis, rule, wide) for axis in work]
    if None in tables:
        return None
    build = node.build
    y = build.cast(x, wide)
    for axis, arrays in zip(work, tables, strict=True):
        y = _resize_axis(build, y, axis, rule, arrays or ())
    if wide.is_float and x.dtype.is_integer:
        low, high = build.scalar(lowest(x.dtype), wide), build.scalar(highest(x.dtype), wide)
        y = build.op("Min", build.op("Max", build.op("Round", y), low), high)
    return build.cast(y, x.dtype)


def _is_identity(axis: ResizedAxis, rule: Interpolation) -> bool:
    if axis.extent != axis.length:
        return False
    whole = isclose(axis.region[0], 0.0) and isclose(axis.region[1], 1.0)
    return axis.extent == 0 or (isclose(axis.scale, 1.0) and (whole or rule.transform != "tf_crop_and_resize"))


def _interpolation_dtype(dtype: DType) -> DType | None:
    """Integers are rounded to the nearest at the end, so they ask for the reference's float64."""
    if dtype is BOOL or (dtype.is_integer and dtype.bits > 32):
        return None
    return F64 if dtype.bits == 64 or dtype.is_integer else F32


def _can_do(axis: ResizedAxis, rule: Interpolation) -> bool:
    if isinstance(axis.extent, int) and isinstance(axis.length, int):
        taps = 1 if rule.mode == "nearest" else len(kernel_offsets(axis, rule))
        return axis.length * taps <= MAX_TABLE_ELEMENTS
    return _is_repetition(axis, rule)


def _is_repetition(axis: ResizedAxis, rule: Interpolation) -> bool:
    """Whether y[o] = x[o // scale] for any extent.

    Where x_original(o + scale) = x_original(o) + 1, the places of three periods show it for all.
    """
    if rule.mode != "nearest" or rule.transform in ("align_corners", "tf_crop_and_resize") or axis.scale > MAX_REPEATS:
        return False
    times = int(axis.scale)
    sample = replace(axis, extent=3, length=3 * times)
    return bool(np.array_equal(nearest_places(sample, rule), np.arange(3 * times) // times))


def _try_tables(node: OnnxNode, axis: ResizedAxis, rule: Interpolation, dtype: DType) -> tuple[Array, ...] | None:
    """Where the elements of a resized axis come from, their weights if they are interpolated, and which lie outside;
    nothing for an axis that is repeated, None if there is no room for them.
    """
    if not isinstance(axis.extent, int) or not isinstance(axis.length, int):
        return ()
    moves = rule.mode == "nearest" or axis.length == 0
    elements = axis.length * (1 if moves else len(kernel_offsets(axis, rule)))

    def make(number: int) -> Array:
        if number == 2:
            return outside_input(axis, rule)
        if moves:
            return nearest_places(axis, rule)
        return interpolation_tables(axis, rule)[number].astype((np.int64, dtype.numpy)[number])

    wanted = (0, 2) if moves else (0, 1, 2)
    key = (replace(axis, axis=0), rule, dtype)
    found = [node.try_table(("Resize", number, *key), elements * 8, partial(make, number)) for number in wanted]
    arrays = tuple(array for array in found if array is not None)
    return arrays if len(arrays) == len(found) else None


def _resize_axis(build: Builder, x: Value, axis: ResizedAxis, rule: Interpolation, tables: tuple[Array, ...]) -> Value:
    if not tables:
        return _repeat(build, x, axis.axis, int(axis.scale))
    *places_and_weights, outside = tables
    if len(places_and_weights) == 1:
        y = build.op("Gather", x, build.constant(places_and_weights[0]), axis=axis.axis)
    else:
        y = build.op("Resample", x, *map(build.constant, places_and_weights), axis=axis.axis)
    if not outside.any():
        return y
    mask = build.constant(outside.reshape(-1, *(1,) * (x.type.rank - 1 - axis.axis)))
    return build.op("Where", mask, build.scalar(_representable(rule.extrapolation, x.dtype), x.dtype), y)


def _repeat(build: Builder, x: Value, axis: int, times: int) -> Value:
    """Each element `times` times.

    before: x[a, n, b]     after: Reshape(Broadcast(Reshape(x, [a, n, 1, b]), [a, n, times, b]), [a, times*n, b])
    """
    lead, rest = x.shape[: axis + 1], x.shape[axis + 1 :]
    wide = build.op("Broadcast", build.reshape(x, (*lead, 1, *rest)), shape=(*lead, times, *rest))
    return build.reshape(wide, (*lead[:-1], lead[-1] * times, *rest))


def _representable(value: float, dtype: DType) -> float | int:
    if dtype.is_float or dtype is BOOL:
        return value
    return int(min(max(np.nan_to_num(np.rint(value)), lowest(dtype)), highest(dtype)))


RESIZE_IMPORTERS: dict[str, Importer] = {"Resize": _resize, "Upsample": _upsample}
