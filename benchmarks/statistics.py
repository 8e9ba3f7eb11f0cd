"""What the turns say: medians, ratios to the best peer, and how sure of them we are. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.contestants import OURS

RESAMPLES = 2000
CONFIDENCE = 0.95
ERROR_LIMIT = 1e-4
"""A contestant whose outputs are further from the reference than this is marked beside its time."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """One contestant in one race: the median milliseconds of each of its turns, or why there are none."""

    contestant: str
    turns_ms: tuple[float, ...] = ()
    min_ms: float | None = None
    max_relative_error: float | None = None
    version: str | None = None
    error: str | None = None
    details: dict[str, float] = field(default_factory=dict)
    """Other numbers that a suite measures, by name and unit."""

    @property
    def median_ms(self) -> float | None:
        return float(np.median(self.turns_ms)) if self.turns_ms else None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the results: a contestant on one case with a number of threads."""

    suite: str
    name: str
    threads: int
    contestant: str
    median_ms: float | None
    min_ms: float | None
    ratio_to_best_peer: float | None
    """The best peer's median divided by this one's: above 1, this one is faster than the best peer."""
    interval: Interval | None
    percent_of_peak: float | None
    max_relative_error: float | None
    rounds: int
    version: str | None = None
    error: str | None = None
    details: dict[str, float] = field(default_factory=dict)

    @property
    def is_tie(self) -> bool:
        """Whether the race does not tell if this contestant or the best peer is faster."""
        return self.interval is not None and self.interval[0] <= 1.0 <= self.interval[1]

    @property
    def is_disturbed(self) -> bool:
        """Whether others kept the CPUs busy in more than half of the turns, though these were taken again."""
        return 2 * self.details.get("disturbed_turns", 0) > self.rounds

    @property
    def is_wrong(self) -> bool:
        return self.max_relative_error is not None and not self.max_relative_error <= ERROR_LIMIT


def make_rows(
    suite: str, name: str, threads: int, measured: Sequence[Measured], flops: float, peak_gflops: float | None
) -> list[Row]:
    """The rows of one race; percentages are of `peak_gflops`, for so many threads together."""
    best = best_peer(measured)
    return [_row(suite, name, threads, one, best, flops, peak_gflops) for one in measured]


def best_peer(measured: Sequence[Measured]) -> Measured | None:
    """The peer with the lowest median, whether its outputs are exact or not."""
    peers = [one for one in measured if one.contestant != OURS and one.turns_ms]
    return min(peers, key=lambda one: float(np.median(one.turns_ms)), default=None)


def _row(
    suite: str, name: str, threads: int, one: Measured, best: Measured | None, flops: float, peak_gflops: float | None
) -> Row:
    median_ms = one.median_ms
    ratio = interval = percent = None
    if median_ms is not None and best is not None:
        ratio, interval = ratio_of_medians(best.turns_ms, one.turns_ms)
    if median_ms is not None and flops and peak_gflops:
        percent = 100 * flops / (median_ms * 1e-3) / (peak_gflops * 1e9)
    return Row(
        suite, name, threads, one.contestant, median_ms, one.min_ms, ratio, interval, percent, one.max_relative_error,
        len(one.turns_ms), one.version, one.error, one.details,
    )  # fmt: skip


def ratio_of_medians(above: Sequence[float], below: Sequence[float], seed: int = 0) -> tuple[float, Interval]:
    """median(above) / median(below) over the rounds that both took part in, and its interval.

    The interval is the paired bootstrap's: rounds are drawn again with replacement, the same ones for both, because
    what disturbs the machine disturbs neighbours in a round alike.
    """
    count = min(len(above), len(below))
    first, second = np.array(above[:count]), np.array(below[:count])
    drawn = np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))
    ratios = np.median(first[drawn], axis=1) / np.median(second[drawn], axis=1)
    low, high = np.quantile(ratios, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    return float(np.median(first) / np.median(second)), (float(low), float(high))


def relative_error(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference in any output, in units of that output's largest magnitude; infinite if shapes differ."""
    if len(found) != len(expected):
        return float("inf")
    return max((_output_error(*pair) for pair in zip(found, expected, strict=True)), default=0.0)


def _output_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Shapes may differ in dimensions of one: some engines leave them out."""
    if found.size != expected.size:
        return float("inf")
    if not expected.size:
        return 0.0
    reference = expected.astype(np.float64).reshape(-1)
    difference = np.abs(found.astype(np.float64).reshape(-1) - reference).max()
    scale = np.abs(reference).max()
    if not np.isfinite(difference):
        return float("inf")
    return float(difference / scale) if scale else float(difference > 0)
