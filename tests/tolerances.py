"""How far results may be apart, in one place: by element type and by how many terms were summed."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from foretell.ir.dtypes import BF16, F16, F32, F64, DType, from_numpy

RELATIVE = {F64: 1e-11, F32: 2e-5, F16: 4e-3, BF16: 3e-2}
"""Two orders of the same arithmetic: a graph before and after a rewrite, compiled code and the evaluator."""
SINGLE_OPERATION = {F64: 2e-15, F32: 1e-6, F16: 2e-3, BF16: 1.6e-2}
"""One primitive on the same operands, computed once and rounded once: about 8 units in the last place of float32."""


def tolerance(dtype: DType, terms: int = 1) -> float:
    """Relative to the largest result. Rounding errors of a sum grow like a random walk."""
    return RELATIVE.get(dtype, 3e-2) * max(1.0, sqrt(terms / 1024))


def coarsest(types: Iterable[DType]) -> DType | None:
    """The float type with the largest tolerance; a result is no better than the worst of what it came through."""
    return max((dtype for dtype in types if dtype.is_float), key=tolerance, default=None)


def assert_close(
    found: npt.NDArray[Any], expected: npt.NDArray[Any], dtype: DType, terms: int = 1, scale: float = 1e-3
) -> None:
    """Same type and shape, integers equal, floats within tolerance of the largest; NaN and infinities in place.

    `dtype` is the type computed in; `scale` the size of operands, where results may cancel to less.
    """
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if from_numpy(found.dtype).is_float:
        left, right = found.astype(np.float64), expected.astype(np.float64)
        finite = np.abs(right[np.isfinite(right)])
        bound = tolerance(dtype, terms)
        np.testing.assert_allclose(left, right, rtol=bound, atol=bound * max(finite.max(initial=0.0), scale))
    else:
        np.testing.assert_array_equal(found, expected)


def assert_same_function(found: npt.NDArray[Any], expected: npt.NDArray[Any], dtype: DType) -> None:
    """One primitive, element by element: small results count as much as large ones."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if not dtype.is_float:
        np.testing.assert_array_equal(found, expected)
        return
    smallest = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)  # pyright: ignore[reportUnknownMemberType]
    left, right = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(left, right, rtol=SINGLE_OPERATION[dtype], atol=2 * smallest)
