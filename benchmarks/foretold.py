"""What was foretold of a nest's schedules and what was measured; figures of how well they agree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import numpy as np

TOO_CLOSE = 0.02
"""Pairs whose times differ by less are not asked for."""
STATED_RATE = 0.8
"""How often a time should lie in its interval."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One nest: seconds predicted and measured, by schedule."""

    name: str
    nest: str
    is_unseen: bool
    space: int
    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...]
    counts: Mapping[str, tuple[float, ...]]
    """What there is of each term (`search/plan_terms.py`), before any coefficient."""
    caution: tuple[float, ...]
    """What a schedule has to be faster by to be chosen."""
    uncertainty: float
    """The interval of a prediction reaches from it over this to it times this."""
    again_s: Mapping[int, float]
    """What the fastest ones took when they were measured again, side by side, by their numbers."""

    @property
    def regret(self) -> float:
        """Of the schedule that is chosen without measuring: its time over that of the best."""
        chosen = int(np.argmin(np.multiply(self.predicted_s, self.caution)))
        best = min(self.again_s.values(), default=min(self.measured_s))
        return self.again_s.get(chosen, self.measured_s[chosen]) / best

    @property
    def rank_correlation(self) -> float:
        """Spearman's."""
        predicted, measured = (np.argsort(np.argsort(times)) for times in (self.predicted_s, self.measured_s))
        return float(np.corrcoef(predicted, measured)[0, 1]) if len(self.measured_s) > 2 else 1.0

    @property
    def pairs_in_order(self) -> float:
        found = [
            (self.predicted_s[a] < self.predicted_s[b]) == (self.measured_s[a] < self.measured_s[b])
            for a, b in combinations(range(len(self.measured_s)), 2)
            if abs(self.measured_s[a] - self.measured_s[b]) > TOO_CLOSE * self.measured_s[a]
        ]
        return sum(found) / len(found) if found else 1.0

    @property
    def error(self) -> float:
        """Of the predicted time, in the median over schedules."""
        return median(abs(predicted / measured - 1) for predicted, measured in self._times())

    @property
    def covered(self) -> float:
        """The part of the schedules whose time lies in its interval."""
        return fmean(
            1 / self.uncertainty <= predicted / measured <= self.uncertainty for predicted, measured in self._times()
        )

    def _times(self) -> Iterator[tuple[float, float]]:
        return zip(self.predicted_s, self.measured_s, strict=True)


def read_workloads(path: Path) -> Iterator[Workload]:
    for each in json.loads(path.read_text(encoding="utf-8")):
        each |= {name: tuple(each[name]) for name in ("predicted_s", "measured_s", "caution")}
        each["counts"] = {name: tuple(amounts) for name, amounts in each["counts"].items()}
        each["again_s"] = {int(number): seconds for number, seconds in each["again_s"].items()}
        yield Workload(**each)


def write_workloads(path: Path, workloads: Iterable[Workload]) -> None:
    path.write_text(json.dumps([asdict(each) for each in workloads]), encoding="utf-8")


def line(found: Workload) -> str:
    return (
        f"{found.name:32} {len(found.measured_s):4} of {found.space:5}  regret {found.regret:.3f}"
        f"  rank {found.rank_correlation:.2f}  pairs {found.pairs_in_order:.1%}  error {found.error:.1%}"
        f"  in the interval {found.covered:.0%}"
    )


def summary(found: Sequence[Workload]) -> str:
    regrets = sorted(each.regret for each in found)
    return (
        f"{len(found)} nests, {sum(len(each.measured_s) for each in found)} schedules: "
        f"regret {median(regrets):.3f} in the median, {float(np.percentile(regrets, 90)):.3f} at 90 %; "
        f"pairs in order {median(each.pairs_in_order for each in found):.1%}; "
        f"rank correlation {median(each.rank_correlation for each in found):.2f}; "
        f"error {median(each.error for each in found):.1%}; "
        f"in the interval {fmean(each.covered for each in found):.0%}, stated {STATED_RATE:.0%}"
    )


def summaries(found: Iterable[Workload]) -> Iterator[str]:
    """Of the nests that numbers of the model were set with, and of the others."""
    every = list(found)
    for heading, is_unseen in (("seen", False), ("unseen", True)):
        chosen = [each for each in every if each.is_unseen is is_unseen]
        if chosen:
            yield f"{heading}: {summary(chosen)}"
