"""What the turns say: medians, ratios to the best peer, and how sure of them we are. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, sqrt

import numpy as np

from benchmarks.contestants import OURS, base_name

RESAMPLES = 500
CONFIDENCE = 0.95
STUDENT = (0.0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
"""How many standard errors make a 95 % interval, by degrees of freedom; the last serves all above."""
PROCESS_DEVIATION = 0.02
"""How much a ratio is expected to differ between pairs of processes, for where their memory happens to lie."""
PROCESS_WEIGHT = 3
"""The degrees of freedom that this expectation is worth beside what the heats of a race show."""
ERROR_LIMIT = 1e-4
"""A contestant whose outputs are further from the reference than this is marked beside its time."""

Interval = tuple[float, float]
Heats = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One contestant in one race: the median milliseconds of each of its turns, or why there are none."""

    contestant: str
    heats_ms: tuple[tuple[float, ...], ...] = ()
    """The turns of each heat, which has a process of its own."""
    min_ms: float | None = None
    max_relative_error: float | None = None
    version: str | None = None
    error: str | None = None
    details: dict[str, float] = field(default_factory=dict)
    """Other numbers that a suite measures, by name and unit."""

    @property
    def turns_ms(self) -> tuple[float, ...]:
        return tuple(turn for heat in self.heats_ms for turn in heat)

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
    """The peer with the lowest median, whether its outputs are exact or not; variants of foretell are none."""
    peers = [one for one in measured if base_name(one.contestant) != OURS and one.turns_ms]
    return min(peers, key=lambda one: float(np.median(one.turns_ms)), default=None)


def _row(
    suite: str, name: str, threads: int, one: Measured, best: Measured | None, flops: float, peak_gflops: float | None
) -> Row:
    median_ms = one.median_ms
    ratio = interval = percent = None
    if median_ms is not None and best is not None:
        ratio, interval = (1.0, (1.0, 1.0)) if one is best else ratio_of_medians(best.heats_ms, one.heats_ms)
    if median_ms is not None and flops and peak_gflops:
        percent = 100 * flops / (median_ms * 1e-3) / (peak_gflops * 1e9)
    return Row(
        suite, name, threads, one.contestant, median_ms, one.min_ms, ratio, interval, percent, one.max_relative_error,
        len(one.turns_ms), one.version, one.error, one.details,
    )  # fmt: skip


def ratio_of_medians(above: Heats, below: Heats) -> tuple[float, Interval]:
    """median(above) / median(below), and its interval.

    Turns within a heat agree better than heats do, since a process keeps what luck gave it: so the interval comes from
    how the ratios of heats differ. They are few; their variance is moderated by what is expected of any race, the
    deviation between processes and the noise of turns (as in Smyth, 2004).
    """
    pairs = [_paired(*heats) for heats in zip(above, below, strict=False)]
    logs = [float(np.log(np.median(first) / np.median(second))) for first, second in pairs]
    expected = PROCESS_DEVIATION**2 + float(np.mean([_turn_variance(*pair) for pair in pairs]))
    freedom = PROCESS_WEIGHT + len(logs) - 1
    found = float(np.sum((np.array(logs) - np.mean(logs)) ** 2))
    error = sqrt((PROCESS_WEIGHT * expected + found) / freedom / len(logs))
    ratio = float(np.median(_flat(above)) / np.median(_flat(below)))
    reach = STUDENT[min(freedom, len(STUDENT) - 1)] * error
    return ratio, (ratio * exp(-reach), ratio * exp(reach))


def _paired(first: Sequence[float], second: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """The turns of the rounds that both took part in: what disturbs the machine disturbs neighbours alike."""
    count = min(len(first), len(second))
    return np.array(first[:count]), np.array(second[:count])


def _turn_variance(first: np.ndarray, second: np.ndarray) -> float:
    """Of the logarithm of the ratio of medians, by a paired bootstrap over rounds."""
    drawn = np.random.default_rng(0).integers(0, len(first), (RESAMPLES, len(first)))
    return float(np.var(np.log(np.median(first[drawn], axis=1) / np.median(second[drawn], axis=1))))


def _flat(heats: Heats) -> list[float]:
    return [turn for heat in heats for turn in heat]


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
