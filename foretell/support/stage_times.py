"""Where the time of a compilation goes, stage by stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping


class StageTimes:
    """Seconds per stage, in the order of first use; a stage that runs again adds to its time, and one that runs within
    another is no part of that.

    times = StageTimes()
    with times.measure("import"):
        graph = import_model("model.onnx")
    times.seconds["import"]
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._within_s = 0.0

    @property
    def seconds(self) -> Mapping[str, float]:
        return dict(self._seconds)

    @property
    def total_s(self) -> float:
        return sum(self._seconds.values())

    @contextlib.contextmanager
    def measure(self, stage: str) -> Generator[None]:
        start_s, before_s, self._within_s = time.perf_counter(), self._within_s, 0.0
        self._seconds.setdefault(stage, 0.0)
        try:
            yield
        finally:
            took_s = time.perf_counter() - start_s
            self._seconds[stage] += took_s - self._within_s
            self._within_s = before_s + took_s
