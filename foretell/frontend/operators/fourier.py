"""Fourier transforms as products with tables of cosines and sines: DFT is a MatMul, STFT a strided Conv.

Exact and quick for the lengths that models use; longer transforms are left to the reference, which has an FFT.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foretell.frontend.onnx_node import OnnxNode, normal_axis
from foretell.frontend.operators.importer import Importer
from foretell.graph.nodes import Array, Value
from foretell.ir import expr
from foretell.ir.dtypes import F64

LARGEST_TABLE = 1 << 22
"""Elements of a table; a real transform of length 2048 has as many."""


def fourier_table(length: int, used: int, bins: int, parts: int) -> npt.NDArray[np.float64]:
    """[used, parts, bins, 2]: what each sample adds to the real and the imaginary part of each bin.

    (a + ib) e^(-iw) = (a cos w + b sin w) + i (b cos w - a sin w)
    """
    # The product is reduced first: large angles would lose digits.
    angle = 2 * np.pi / length * (np.outer(np.arange(used), np.arange(bins)) % length)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.stack([np.stack([cosine, -sine], axis=-1), np.stack([sine, cosine], axis=-1)][:parts], axis=1)


def real_inverse_table(length: int, used: int) -> npt.NDArray[np.float64]:
    """[used, 2, length, 1]: a real signal from one half of its spectrum; bins that have a mirror image count twice.

    The real part of (a + ib) e^(iw) is that of (a - ib) e^(-iw).
    """
    images = [1 if number in (0, length - number) else 2 for number in range(used)]
    weights = np.outer(images, [1, -1]).reshape(used, 2, 1, 1) / length
    return fourier_table(length, used, length, 2)[..., :1] * weights


def _dft(node: OnnxNode) -> Value | None:
    x, axis = node.input(0), _dft_axis(node)
    inverse, onesided = bool(node.int("inverse", 0)), bool(node.int("onesided", 0))
    # onnx's own test of the two-sided inverse demands the rounding errors of an f32 FFT, so the reference keeps it.
    if axis is None or (inverse and not onesided):
        return None
    extent, parts = x.shape[axis], _complex_parts(x)
    if not isinstance(extent, int) or parts is None or (onesided and inverse != (parts == 2)):
        return None
    length = _number(node, 1, 2 * (extent - 1) if inverse else extent)
    if length is None or length < 1:
        return None
    bins = length // 2 + 1 if onesided and not inverse else length
    used = min(extent, length // 2 + 1 if inverse else length)
    elements = used * parts * bins * 2
    if used < 1 or elements > LARGEST_TABLE:
        return None
    result_parts = 1 if inverse else 2

    def make_matrix() -> Array:
        table = real_inverse_table(length, used) if inverse else fourier_table(length, used, bins, parts)
        return table.reshape(used * parts, bins * result_parts)

    matrix = node.try_table(("DFT", length, used, bins, parts, inverse), elements * 8, make_matrix)
    return None if matrix is None else _transformed(node, axis, matrix, (used, bins, result_parts))


def _complex_parts(x: Value) -> int | None:
    """1 for real numbers, 2 for complex ones, None if that is not known."""
    parts = x.shape[-1]
    if isinstance(parts, int) and parts not in (1, 2):
        raise ValueError(f"the last axis of {x.type} must hold a real part, or a real and an imaginary one")
    return parts if isinstance(parts, int) else None


def _transformed(node: OnnxNode, axis: int, matrix: Array, sizes: tuple[int, int, int]) -> Value:
    """The sum over one axis and the complex parts of x times a matrix; `sizes` are (used, bins, parts of the result).

    Most of a spectrum is what is left when large terms cancel, so the sum is taken in f64.

    before: x[a, n, b, c]     after: Transpose(Reshape(MatMul(x[a * b, n * c], matrix), [a, b, bins, 2]))
    """
    x, build, rank = node.input(0), node.build, node.input(0).type.rank
    used, bins, result_parts = sizes
    shape = tuple(used if number == axis else dim for number, dim in enumerate(x.shape))
    if shape != x.shape:
        x = build.op("Slice", x, starts=(0,) * rank, steps=(1,) * rank, shape=shape)
    others = tuple(number for number in range(rank - 1) if number != axis)
    permutation, rest = (*others, axis, rank - 1), tuple(x.shape[number] for number in others)
    moved = build.cast(build.transpose(x, permutation), F64)
    rows = build.reshape(moved, (expr.product(rest), matrix.shape[0]))
    product = build.op("MatMul", rows, build.constant(matrix, "fourier"))
    y = build.cast(build.reshape(product, (*rest, bins, result_parts)), x.dtype)
    return build.transpose(y, tuple(permutation.index(number) for number in range(rank)))


def _dft_axis(node: OnnxNode) -> int | None:
    """An attribute before opset 20, an input since; never the last axis, which holds the complex parts."""
    rank = node.input(0).type.rank
    wish = node.int("axis", 1) if node.version < 20 else _number(node, 2, -2)
    if wish is None:
        return None
    axis = normal_axis(wish, rank)
    if axis == rank - 1:
        raise ValueError("the last axis holds real and imaginary parts")
    return axis


def _number(node: OnnxNode, number: int, default: int) -> int | None:
    """A scalar input: its value, the default if it is absent, None if it is data."""
    if node.optional(number) is None:
        return default
    known = node.dims(number)
    return known[0] if known is not None and len(known) == 1 and isinstance(known[0], int) else None


def _stft(node: OnnxNode) -> Value | None:
    """Windows of the signal times the table: filters of a convolution whose stride is the frame step."""
    signal, window, build = node.input(0), node.optional(2), node.build
    if signal.type.rank != 3:
        raise ValueError(f"the signal must be [batch, length, 1 or 2], not {signal.type}")
    batch, extent, _ = signal.shape
    default = extent if window is None else window.shape[0]
    step, length = _number(node, 1, 0), _number(node, 3, default if isinstance(default, int) else -1)
    parts, onesided = _complex_parts(signal), bool(node.int("onesided", 1))
    if step is None or length is None or parts is None or (onesided and parts == 2) or length < 1:
        return None
    if step < 1:
        raise ValueError(f"frame_step is {step}")
    bins = length // 2 + 1 if onesided else length
    if length * parts * bins * 2 > LARGEST_TABLE:
        return None
    dtype = signal.dtype.compute

    def make_filters() -> Array:
        table = fourier_table(length, length, bins, parts).astype(dtype.numpy)
        return np.ascontiguousarray(table.transpose(2, 3, 1, 0).reshape(bins * 2, parts, length))

    table = node.try_table(("STFT", length, bins, parts, dtype), length * parts * bins * 2 * 8, make_filters)
    if table is None:
        return None
    filters = build.constant(table, "fourier")
    if window is not None:
        filters = build.op("Mul", filters, build.cast(build.reshape(window, (length,)), dtype))
    channels = build.cast(build.transpose(signal, (0, 2, 1)), dtype)
    y = build.op("Conv", channels, filters, strides=(step,), dilations=(1,), before=(0,), after=(0,), group=1)
    frames = y.shape[2]
    return build.cast(build.reshape(build.transpose(y, (0, 2, 1)), (batch, frames, bins, 2)), signal.dtype)


FOURIER_IMPORTERS: dict[str, Importer] = {"DFT": _dft, "STFT": _stft}
