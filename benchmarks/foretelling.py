"""`python -m benchmarks.foretelling`: how good predictions are, and what choosing by them costs.

For each nest of products, a sample of its schedules is predicted and measured, all of them. What counts is the regret:
how much longer the schedule that is chosen without measuring takes than the best one measured. Nests of the `ops` suite
have been looked at while numbers of the model were set; those of models that no operator of that suite stems from,
marked with a star, have not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.candidate_rate import candidates_per_second
from benchmarks.cases import Case
from benchmarks.models.model_cases import model_cases
from benchmarks.operators import operator_cases
from foretell.compiler import choose_algorithms, import_model, lower_program, simplify
from foretell.schedule.steps import Schedule
from foretell.search.schedule_contraction import predicted_schedules
from foretell.search.schedule_nests import Nest
from foretell.target.hardware_spec import with_cores
from foretell.target.resolve import Target, resolve_target
from foretell.tune.measure_batch import Batch
from foretell.tune.tune_nests import BATCH_SIZE, measured_times

UNSEEN_MODELS = ("densenet121", "inception_v1", "shufflenet_v2", "efficientnet_b0", "mobilevit_small", "convnext_tiny")
LEADERS = 40
"""Schedules predicted to be fastest that are always in the sample; the others are drawn from the whole space."""
TOO_CLOSE = 0.02
"""Pairs whose times differ by less are not asked for."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One nest: seconds predicted and measured, by schedule, the one that is chosen first."""

    name: str
    nest: str
    is_unseen: bool
    space: int
    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...]

    @property
    def regret(self) -> float:
        return self.measured_s[0] / min(self.measured_s)

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
        pairs = zip(self.predicted_s, self.measured_s, strict=True)
        return median(abs(predicted / measured - 1) for predicted, measured in pairs)


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    target = Target(with_cores(resolve_target(options.target).spec, 1))
    done = {found.nest: found for found in stored(options.json)}
    every = list(workloads(target, options.only))
    rate = candidates_per_second((nest for _, nest, _ in every), target.spec)
    for name, nest, is_unseen in every:
        if nest.workload in done or len(done) >= options.workloads:
            continue
        found = judge(name, nest, is_unseen, target, options.schedules)
        if found is not None:
            done[nest.workload] = found
            sys.stdout.write(line(found) + "\n")
            sys.stdout.flush()
            if options.json is not None:
                options.json.write_text(json.dumps([asdict(each) for each in done.values()]), encoding="utf-8")
    for heading, is_unseen in (("seen", False), ("unseen", True)):
        chosen = [found for found in done.values() if found.is_unseen is is_unseen]
        if chosen:
            sys.stdout.write(f"{heading}: {summary(chosen)}\n")
    sys.stdout.write(f"{rate:,.0f} candidates a second\n")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m benchmarks.foretelling", description=__doc__)
    made.add_argument("--only", default="", metavar="NAME", help="the cases whose names contain this")
    made.add_argument("--workloads", type=int, default=60, metavar="N", help="at most so many nests")
    made.add_argument("--schedules", type=int, default=200, metavar="N", help="so many of each")
    made.add_argument("--target", default="native", help="whose numbers predict; `foretell calibrate` writes a file")
    made.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured there, and go on from it")
    return made


def stored(path: Path | None) -> Iterator[Workload]:
    if path is not None and path.exists():
        for each in json.loads(path.read_text(encoding="utf-8")):
            predicted, measured = tuple(each.pop("predicted_s")), tuple(each.pop("measured_s"))
            yield Workload(**each, predicted_s=predicted, measured_s=measured)


def workloads(target: Target, only: str) -> Iterator[tuple[str, Nest, bool]]:
    """Distinct nests: those of operators, and as many of models, in turns."""
    seen = {nest.workload: (name, nest, False) for name, nest in _nests(operator_cases(), target, only)}
    models = [case for case in model_cases() if case.name in UNSEEN_MODELS]
    unseen = {nest.workload: (f"*{name}", nest, True) for name, nest in _nests(models, target, only)}
    fresh = [found for workload, found in unseen.items() if workload not in seen]
    random.Random(0).shuffle(fresh)
    known = list(seen.values())
    for number in range(max(len(known), len(fresh))):
        yield from known[number : number + 1]
        yield from fresh[number : number + 1]


def _nests(cases: Sequence[Case], target: Target, only: str) -> Iterator[tuple[str, Nest]]:
    for case in cases:
        if only in case.name:
            graph = choose_algorithms(simplify(import_model(case.build().model())), target.spec)
            for nest, _ in lower_program(graph, target).nests:
                yield case.name, nest


def judge(name: str, nest: Nest, is_unseen: bool, target: Target, count: int) -> Workload | None:
    """Predict and measure a sample of a nest's schedules; None where there is nothing to choose."""
    predicted = predicted_schedules(nest.kernel, target.spec, nest.constants)
    every = list(predicted)
    if len(every) < 2:
        return None
    drawn = random.Random(0).sample(every[LEADERS:], max(0, min(count, len(every)) - LEADERS))
    sample = every[:LEADERS] + drawn
    measured = _measure(nest, sample, target)
    kept = [schedule for schedule in sample if schedule in measured]
    if sample[0] not in measured or len(kept) < 2:
        return None
    return Workload(
        name,
        nest.workload,
        is_unseen,
        len(every),
        tuple(predicted[schedule] for schedule in kept),
        tuple(measured[schedule] for schedule in kept),
    )


def _measure(nest: Nest, sample: Sequence[Schedule], target: Target) -> dict[Schedule, float]:
    """Seconds on one thread; those of each batch are scaled so that the schedule all batches share takes the same."""
    chosen, *others = sample
    found: dict[Schedule, float] = {}
    reference: list[float] = []
    for start in range(0, len(others), BATCH_SIZE - 1):
        batch = (chosen, *others[start : start + BATCH_SIZE - 1])
        times = measured_times(Batch(nest.kernel, batch, target, threads=1))
        if times[0]:
            base = median(times[0])
            reference.append(base)
            found |= {schedule: median(each) / base for schedule, each in zip(batch, times, strict=True) if each}
    return {schedule: ratio * median(reference) for schedule, ratio in found.items()}


def line(found: Workload) -> str:
    return (
        f"{found.name:32} {len(found.measured_s):4} of {found.space:5}  regret {found.regret:.3f}"
        f"  rank {found.rank_correlation:.2f}  pairs {found.pairs_in_order:.1%}  error {found.error:.1%}"
    )


def summary(found: Sequence[Workload]) -> str:
    regrets = sorted(each.regret for each in found)
    return (
        f"{len(found)} nests, {sum(len(each.measured_s) for each in found)} schedules: "
        f"regret {median(regrets):.3f} in the median, {float(np.percentile(regrets, 90)):.3f} at 90 %; "
        f"pairs in order {median(each.pairs_in_order for each in found):.1%}; "
        f"rank correlation {median(each.rank_correlation for each in found):.2f}; "
        f"error {median(each.error for each in found):.1%}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
