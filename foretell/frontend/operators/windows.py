"""The window attributes that convolutions and pools share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.frontend.onnx_node import OnnxNode
from foretell.graph.nodes import Value
from foretell.ir import expr
from foretell.ir.expr import Dim

LARGEST_WINDOW_NUMBER = 1 << 31
"""Strides, pads, dilations and kernels beyond this make no sense and would overflow onnx's own inference."""


@dataclass(frozen=True, slots=True)
class Window:
    """One number per spatial axis each."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    group: int


def conv_window(node: OnnxNode, x: Value, weights: Sequence[Dim]) -> Window:
    """The window of a Conv, whose kernel is that of its weights."""
    kernel = node.ints("kernel_shape") or tuple(dim if isinstance(dim, int) else -1 for dim in weights)
    if any(isinstance(dim, int) and dim != size for dim, size in zip(weights, kernel, strict=False)):
        raise ValueError(f"kernel_shape {kernel} disagrees with the weights {tuple(weights)}")
    return window_of(node, x, kernel)


def window_of(node: OnnxNode, x: Value, kernel: tuple[int, ...]) -> Window:
    """Read and check strides, dilations, pads and auto_pad for the spatial axes of x."""
    count = x.type.rank - 2
    strides = numbers_of(node, "strides", count, least=1)
    dilations = numbers_of(node, "dilations", count, least=1)
    group = node.int("group", 1) if "group" in node.schema.attributes else 1
    if len(kernel) != count or any(not 1 <= size < LARGEST_WINDOW_NUMBER for size in kernel) or group < 1:
        raise ValueError(f"kernel {kernel} in {group} group(s) does not fit {x.type}")
    mode = node.text("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before, after = _same_pads(x, kernel, strides, dilations, upper=mode == "SAME_UPPER")
    else:
        before, after = explicit_pads(node, count)
    return Window(kernel, strides, dilations, before, after, group)


def explicit_pads(node: OnnxNode, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(before, after) where auto_pad does not choose them; VALID means none."""
    mode = node.text("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", ""):
        raise ValueError(f"unknown auto_pad {mode!r}")
    pads = (0,) * (2 * count) if mode == "VALID" else node.ints("pads") or (0,) * (2 * count)
    if len(pads) != 2 * count or any(not 0 <= pad < LARGEST_WINDOW_NUMBER for pad in pads):
        raise ValueError(f"pads {pads} do not fit {count} spatial axes")
    return pads[:count], pads[count:]


def numbers_of(node: OnnxNode, name: str, count: int, least: int) -> tuple[int, ...]:
    """An attribute with one number per spatial axis, all `least` if it is not given."""
    if name not in node.schema.attributes:
        return (least,) * count
    numbers = node.ints(name) or (least,) * count
    if len(numbers) != count or any(not least <= number < LARGEST_WINDOW_NUMBER for number in numbers):
        raise ValueError(f"{name} {numbers} do not fit {count} spatial axes")
    return numbers


def _same_pads(
    x: Value, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], upper: bool
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Pads that make the result ceil(extent / stride) long; the odd one goes to the end for SAME_UPPER.

    The last window starts at ceil(extent / stride) * stride - stride, which is extent + (-extent) % stride - stride.
    """
    before: list[Dim] = []
    after: list[Dim] = []
    for extent, size, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        reach = dilation * (size - 1) + 1
        total = expr.maximum(0, expr.mod(-extent, stride) + reach - stride)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return tuple(before), tuple(after)
