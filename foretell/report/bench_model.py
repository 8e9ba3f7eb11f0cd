"""How long a model takes: percentiles over many calls, warm-up excluded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foretell.runtime.session import CompiledModel


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Milliseconds of one call."""

    runs: int
    warmup_runs: int
    threads: int
    min_ms: float
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def bench_model(
    model: CompiledModel,
    feeds: Mapping[str, Any],
    *,
    runs: int | None = None,
    seconds: float = 2.0,
    warmup_seconds: float = 0.3,
) -> BenchReport:
    """Call the model again and again: `runs` times, or for `seconds` and at least ten times."""
    warmup_runs = len(_times_s(model, feeds, 2, warmup_seconds))
    times_ms = 1e3 * np.array(_times_s(model, feeds, 10 if runs is None else runs, seconds if runs is None else 0.0))
    p50, p90, p99 = (float(np.percentile(times_ms, share)) for share in (50, 90, 99))
    return BenchReport(
        len(times_ms), warmup_runs, model.threads, float(times_ms.min()), float(times_ms.mean()), p50, p90, p99
    )


def _times_s(model: CompiledModel, feeds: Mapping[str, Any], least: int, seconds: float) -> list[float]:
    """At least so many calls, and more while there is time."""
    found: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(found) < least or time.perf_counter() < end_s:
        start_s = time.perf_counter()
        model.run(feeds)
        found.append(time.perf_counter() - start_s)
    return found
