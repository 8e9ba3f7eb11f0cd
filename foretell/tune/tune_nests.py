"""Measured search: schedules of a model's nests in the order in which they were predicted to be good."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from foretell.schedule.steps import Schedule
from foretell.search.records import Record, Records
from foretell.search.schedule_contraction import schedules
from foretell.search.schedule_nests import Nest
from foretell.support.progress import Steps
from foretell.target.resolve import Target
from foretell.tune.measure_batch import Batch

BATCH_SIZE = 8
"""Schedules that are timed together, the best so far among them."""
BATCH_LIMIT_S = 60.0
"""A batch that takes longer hangs."""


@dataclass(slots=True)
class Tuned:
    """A nest, what is left to try of it, and what was found."""

    nest: Nest
    count: int
    """How often the model runs it."""
    predicted: Schedule
    best: Schedule
    waiting: list[Schedule]
    best_ratio: float = 1.0
    """Of the best schedule's time to that of the predicted one."""
    predicted_s: float = 0.0
    """Of the schedule that was predicted to be best, when it was last measured."""
    space: int = 0
    """Schedules in all."""
    tried: int = 0
    failed: int = 0
    batches: int = field(default=0, repr=False)

    @property
    def priority(self) -> float:
        """Nests that take long come first, and wait longer the more was tried in vain; those never measured lead."""
        return float("inf") if not self.batches else self.count * self.predicted_s * self.best_ratio / self.batches


def tune_nests(
    nests: Iterable[tuple[Nest, int]],
    target: Target,
    threads: int,
    budget_s: float,
    records: Records,
    progress: Steps | None = None,
) -> list[Tuned]:
    """Measure until the time is over, there is nothing left, or the user interrupts; every batch is recorded at once.

    What the records hold already is not measured again.
    """
    found = [tuned for nest, count in nests if (tuned := _try_start(nest, count, target, records)) is not None]
    end = time.monotonic() + budget_s
    try:
        while time.monotonic() < end:
            current = max((tuned for tuned in found if tuned.waiting), key=lambda tuned: tuned.priority, default=None)
            if current is None:
                break
            _measure_next(current, target, threads, records)
            if progress is not None:
                progress.step("tune", _line(found, end - time.monotonic()))
    except KeyboardInterrupt:
        if progress is not None:
            progress.step("tune", "interrupted; what was measured is kept")
    return found


def _line(found: Sequence[Tuned], left_s: float) -> str:
    tried, space = sum(tuned.tried for tuned in found), sum(tuned.space for tuned in found)
    measured = [tuned for tuned in found if tuned.batches]
    before = sum(tuned.count * tuned.predicted_s for tuned in measured)
    after = sum(tuned.count * tuned.predicted_s * tuned.best_ratio for tuned in measured)
    ratio = before / after if after else 1.0
    return (
        f"{max(0.0, left_s):.0f} s left, {tried} of {space} schedules, {after * 1e3:.3g} ms, {ratio:.3f}x as predicted"
    )


def _try_start(nest: Nest, count: int, target: Target, records: Records) -> Tuned | None:
    """The schedules of a nest, less those in the records; None if it has none."""
    every = schedules(nest.kernel, target.spec, nest.constants)
    if not every:
        return None
    tuned = Tuned(nest, count, every[0], every[0], every[1:], space=len(every))
    for record in reversed(records.of(nest.workload)):
        _note(tuned, record)
    return tuned


def _note(tuned: Tuned, record: Record) -> None:
    if record.schedule in tuned.waiting:
        tuned.waiting.remove(record.schedule)
    tuned.tried += 1
    if record.ratio is None:
        tuned.failed += 1
    elif record.ratio < tuned.best_ratio:
        tuned.best, tuned.best_ratio = record.schedule, record.ratio


def _measure_next(tuned: Tuned, target: Target, threads: int, records: Records) -> None:
    """One batch: the predicted schedule, against which all are compared, and the next that nobody has tried."""
    batch, tuned.waiting = tuned.waiting[: BATCH_SIZE - 1], tuned.waiting[BATCH_SIZE - 1 :]
    times = measured_times(Batch(tuned.nest.kernel, (tuned.predicted, *batch), target, threads))
    tuned.batches += 1
    reference = median(times[0]) if times[0] else 0.0
    tuned.predicted_s = reference or tuned.predicted_s
    new: list[Record] = []
    for schedule, seconds in zip((tuned.predicted, *batch), times, strict=True):
        ratio = median(seconds) / reference if seconds and reference else None
        new.append(Record(tuned.nest.workload, schedule, tuple(seconds), ratio))
        if schedule is not tuned.predicted or tuned.tried == 0:
            _note(tuned, new[-1])
    records.add(new)


def measured_times(batch: Batch) -> list[list[float]]:
    """What a process of its own measures; nothing if it crashes or hangs."""
    nothing: list[list[float]] = [[] for _ in batch.schedules]
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from foretell.tune.measure_batch import main; main()"],
            input=pickle.dumps(batch),
            capture_output=True,
            timeout=BATCH_LIMIT_S,
            check=False,
        )
        found = json.loads(done.stdout) if done.returncode == 0 else nothing
    except (subprocess.TimeoutExpired, ValueError):
        return nothing
    return found if len(found) == len(nothing) else nothing
