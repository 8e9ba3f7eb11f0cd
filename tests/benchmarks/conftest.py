"""Result rows to build tests from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.results import Results
from benchmarks.statistics import Measured, Row, make_rows

MACHINE = {
    "cpu": "Some CPU", "target": "x86-64-v3", "cores": 2, "vector_bits": 256, "caches_bytes": [32 << 10, 1 << 20],
    "system": "Linux", "python": "3.11", "peak_gflops": {"1": 100.0}, "read_gb_per_s": {"1": 10.0},
    "copy_gb_per_s": {"1": 9.0},
}  # fmt: skip


@pytest.fixture
def row() -> Callable[..., Row]:
    def make(ratio: float | None = 1.0, half_width: float = 0.02, **changes: object) -> Row:
        interval = None if ratio is None else (ratio - half_width, ratio + half_width)
        values: dict[str, object] = {
            "suite": "ops", "name": "conv", "threads": 1, "contestant": "foretell", "median_ms": 2.0, "min_ms": 1.9,
            "ratio_to_best_peer": ratio, "interval": interval, "percent_of_peak": 50.0, "max_relative_error": 1e-6,
            "rounds": 7,
        }  # fmt: skip
        return Row(**values | changes)  # pyright: ignore[reportArgumentType]

    return make


@pytest.fixture
def results() -> Results:
    """A race that foretell loses, one that is a tie, and one in which a peer fails and another is inexact."""
    steady = Measured("onnxruntime", ((1.0, 1.01, 0.99, 1.0, 1.0),), 0.98, 0.0, "1")
    slow = Measured("foretell", ((2.0, 2.02, 1.99, 2.0, 2.01),), 1.9, 1e-7, "0")
    close = Measured("foretell", ((1.0, 1.02, 0.98, 1.01, 0.99),), 0.97, 1e-7, "0")
    inexact = Measured("mnn", ((1.5, 1.5, 1.5, 1.5, 1.5),), 1.4, 3e-3, "3")
    broken = Measured("openvino", error="RuntimeError: no such <thing>")
    rows = (
        *make_rows("ops", "conv", 1, [slow, steady], 1e8, 100.0),
        *make_rows("ops", "softmax", 1, [close, steady], 0.0, 100.0),
        *make_rows("models", "resnet", 1, [slow, steady, inexact, broken], 2e8, 100.0),
    )
    return Results(MACHINE, "abc123", "2026-11-16", rows)
