"""How far apart two arrays are.

An error counts in parts of the output's scale, its largest finite number: a result that cancels to nearly nothing is
not held to more digits than its operands had. NaN and infinities must be where the reference has them; what is not a
float must be equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.graph.nodes import Array
from foretell.ir.dtypes import BF16, F16, F32, F64, DType, from_numpy

TOLERANCES = {F64: 1e-9, F32: 1e-4, F16: 1e-2, BF16: 5e-2}
"""Of the output's scale, for whole models; narrower floats are held to the last."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One array against another."""

    name: str
    reference: str
    """Whose result it is compared with."""
    max_abs: float
    max_rel: float
    """Where the reference is not zero."""
    needed: float
    """The tolerance that would just do: the largest error in parts of the output's scale."""
    tolerance: float
    problem: str = ""
    """What no tolerance would forgive."""

    @property
    def ok(self) -> bool:
        return not self.problem and self.needed <= self.tolerance

    def to_json(self) -> dict[str, object]:
        numbers = {"max_abs": self.max_abs, "max_rel": self.max_rel, "needed": self.needed}
        finite: dict[str, object] = {key: value if np.isfinite(value) else str(value) for key, value in numbers.items()}
        facts = {"output": self.name, "reference": self.reference, "ok": self.ok, "tolerance": self.tolerance}
        return facts | finite | {"problem": self.problem}


def compare(name: str, found: Array, expected: Array, reference: str, tolerance: float | None = None) -> Comparison:
    """How far apart two arrays are; `tolerance` defaults to that of the element type."""
    dtype = from_numpy(found.dtype)
    allowed = default_tolerance(dtype) if tolerance is None else tolerance
    if found.dtype != expected.dtype or found.shape != expected.shape:
        problem = f"{found.dtype}{list(found.shape)} where {expected.dtype}{list(expected.shape)} is expected"
        return Comparison(name, reference, np.inf, np.inf, np.inf, allowed, problem)
    left, right = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(right)
    same = np.array_equal(left[~finite], right[~finite], equal_nan=True) and bool(np.isfinite(left[finite]).all())
    if not same:
        problem = "NaN or infinity where the reference has none, or the reverse"
        return Comparison(name, reference, np.inf, np.inf, np.inf, allowed, problem)
    left, right = left[finite], right[finite]
    error, size = np.abs(left - right), np.abs(right)
    max_abs = float(error.max(initial=0.0))
    max_rel = float((error[size > 0] / size[size > 0]).max(initial=0.0))
    scale = float(size.max(initial=0.0)) or 1.0
    return Comparison(name, reference, max_abs, max_rel, max_abs / scale, allowed)


def default_tolerance(dtype: DType) -> float:
    return TOLERANCES.get(dtype, TOLERANCES[BF16]) if dtype.is_float else 0.0
