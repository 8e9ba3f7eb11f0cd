"""Where the time of a compilation goes, stage by stage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping


class StageTimes:
    """Seconds per stage, in the order of first use; a stage that runs again adds to its time.

    times = StageTimes()
    with times.measure("import"):
        graph = import_model("model.onnx")
    times.seconds["import"]
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        return dict(self._seconds)

    @property
    def total_s(self) -> float:
        return sum(self._seconds.values())

    @contextlib.contextmanager
    def measure(self, stage: str) -> Generator[None]:
        start_s = time.perf_counter()
        self._seconds.setdefault(stage, 0.0)
        try:
            yield
        finally:
            self._seconds[stage] += time.perf_counter() - start_s
