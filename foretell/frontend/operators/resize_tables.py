"""The tables of a resize: for each element of the result, where along one axis it comes from and with what weights.

Coordinates and weights are computed as onnx's reference computes them, in float64 and from the exact scale, so that
a choice between two neighbours falls as it does there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretell.ir.expr import Dim

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interpolation:
    """What all axes of one Resize share. `transform` and `nearest` name ONNX's modes."""

    mode: str
    transform: str = "asymmetric"
    nearest: str = "floor"
    coefficient: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation: float = 0.0

    @property
    def radius(self) -> int:
        """How far the interpolation kernel reaches."""
        return 2 if self.mode == "cubic" else 1


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """How one axis is resized; `region` is its part of the roi."""

    axis: int
    extent: Dim
    length: Dim
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


def _numbers(axis: ResizedAxis) -> tuple[int, int]:
    assert isinstance(axis.extent, int) and isinstance(axis.length, int)
    return axis.extent, axis.length


def coordinates_of(axis: ResizedAxis, rule: Interpolation) -> Floats:
    """Where in the input each element of the result lies; `width` is its length before it was rounded down."""
    (extent, length), scale = _numbers(axis), axis.scale
    here, width = np.arange(length, dtype=np.float64), scale * extent
    if length == 0:
        return here
    match rule.transform:
        case "half_pixel":
            return (here + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return extent / 2 * (1 - length / width) + (here + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            # As ONNX and onnxruntime say; for a single element the reference has -0.5, which wide kernels can tell.
            return (here + 0.5) / scale - 0.5 if length > 1 else np.zeros(length)
        case "asymmetric":
            return here / scale
        case "tf_half_pixel_for_nn":
            return (here + 0.5) / scale
        case "align_corners":
            return here * (extent - 1) / (width - 1) if length > 1 else np.zeros(length)
        case "tf_crop_and_resize":
            start, end = axis.region
            step = here / (length - 1) if length > 1 else np.full(length, 0.5)
            return (start + step * (end - start)) * (extent - 1)
        case unknown:
            raise ValueError(f"unknown coordinate_transformation_mode {unknown!r}")


def outside_input(axis: ResizedAxis, rule: Interpolation) -> npt.NDArray[np.bool_]:
    """Which elements of the result lie outside of the input, where that is not taken as the edge."""
    extent, length = _numbers(axis)
    if rule.transform != "tf_crop_and_resize":
        return np.zeros(length, np.bool_)
    places = coordinates_of(axis, rule)
    return (places < 0) | (places > extent - 1)


def _neighbourhood(axis: ResizedAxis, rule: Interpolation) -> tuple[Places, Floats]:
    """(the place left of each coordinate, the distance from it): an integer coordinate is at distance 1."""
    # Rounded as the reference rounds, which adds the padding in front: 1.0000000000000002 becomes 1.
    coordinates = coordinates_of(axis, rule) + rule.radius - rule.radius
    left = np.ceil(coordinates) - 1
    return left.astype(np.int64), coordinates - left


def nearest_places(axis: ResizedAxis, rule: Interpolation) -> Places:
    left, distance = _neighbourhood(axis, rule)
    match rule.nearest:
        case "round_prefer_floor":
            right = distance > 0.5
        case "round_prefer_ceil":
            right = distance >= 0.5
        case "floor":
            right = distance == 1
        case "ceil":
            right = np.ones_like(distance, np.bool_)
        case "simple":
            # As onnxruntime has it where operator set 10 does not say.
            right = (distance == 1) | (axis.scale < 1)
        case unknown:
            raise ValueError(f"unknown nearest_mode {unknown!r}")
    return np.clip(left + right, 0, _numbers(axis)[0] - 1)


def _stretch(axis: ResizedAxis, rule: Interpolation) -> float:
    """Antialiasing widens the kernel of a reduction to cover all of the input."""
    return min(axis.scale, 1.0) if rule.antialias else 1.0


def kernel_offsets(axis: ResizedAxis, rule: Interpolation) -> range:
    """Places under the kernel, counted from the one left of the coordinate."""
    if axis.length == 0:
        return range(0)
    first = int(np.floor(-rule.radius / _stretch(axis, rule))) + 1
    return range(first, 2 - first)


def interpolation_tables(axis: ResizedAxis, rule: Interpolation) -> tuple[Places, Floats]:
    """For each element of the result the places it is computed from, and their weights."""
    (extent, _), (left, distance) = _numbers(axis), _neighbourhood(axis, rule)
    offsets = np.asarray(kernel_offsets(axis, rule))
    places = left[:, None] + offsets
    weights = _kernel(np.abs(offsets - distance[:, None]) * _stretch(axis, rule), rule)
    if rule.antialias:
        weights /= weights.sum(axis=1, keepdims=True)
    if rule.exclude_outside:
        weights[(places < 0) | (places >= extent)] = 0
        total = weights.sum(axis=1, keepdims=True)
        weights /= np.where(total == 0, 1, total)
    return np.clip(places, 0, extent - 1), weights


def _kernel(distance: Floats, rule: Interpolation) -> Floats:
    """The weight of an element by its distance: a tent, or cubic convolution (doi 10.1109/TASSP.1981.1163711)."""
    if rule.mode == "linear":
        return np.maximum(0, 1 - distance)
    a, d = rule.coefficient, distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
