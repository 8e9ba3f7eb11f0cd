"""Least squares without negative numbers, by active sets.

C. L. Lawson and R. J. Hanson, "Solving Least Squares Problems", 1974, chapter 23.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

TOLERANCE = 1e-10
"""Of a slope, relative to the greatest at zero."""


def solve_non_negative(matrix: Floats, values: Floats) -> Floats:
    """The x >= 0 for which matrix @ x is nearest to the values."""
    count = matrix.shape[1]
    found, is_free = np.zeros(count), np.zeros(count, bool)
    least = TOLERANCE * float(np.abs(matrix.T @ values).max(initial=0.0))
    for _ in range(3 * count):
        slopes = np.where(is_free, -np.inf, matrix.T @ (values - matrix @ found))
        if slopes.max(initial=-np.inf) <= least:
            break
        is_free[int(slopes.argmax())] = True
        found = _without_negative(matrix, values, found, is_free)
    return found


def _without_negative(matrix: Floats, values: Floats, before: Floats, is_free: npt.NDArray[np.bool_]) -> Floats:
    """Go from a solution towards the best of the free columns; those that would turn negative are free no longer."""
    found = before
    while True:
        best = np.zeros_like(found)
        best[is_free] = np.linalg.lstsq(matrix[:, is_free], values, rcond=None)[0]
        is_negative = is_free & (best <= 0)
        if not is_negative.any():
            return best
        part = float((found[is_negative] / (found[is_negative] - best[is_negative])).min())
        found = found + part * (best - found)
        is_free &= found > 0
        found = np.where(is_free, found, 0.0)
