"""`python -m benchmarks foretell`: how good predictions are, and what choosing by them costs.

For each nest of products, a sample of its schedules is predicted and measured, all of them. What counts is the regret:
how much longer the schedule that is chosen without measuring takes than the best one measured; for that, the fastest
few are measured again, side by side with it. Nests of the `ops` suite have been looked at while numbers of the model
were set; those of models that no operator of that suite stems from, marked with a star, have not.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np

from benchmarks.candidate_rate import candidates_per_second
from benchmarks.cases import Case
from benchmarks.foretold import Workload, line, read_workloads, summaries, write_workloads
from benchmarks.models.model_cases import model_cases
from benchmarks.operators import operator_cases
from foretell.compiler import choose_algorithms, import_model, lower_program, simplify
from foretell.schedule.steps import Schedule
from foretell.search.contraction import try_contraction
from foretell.search.plan_terms import TIMES, plan_terms
from foretell.search.plans import Plans
from foretell.search.schedule_contraction import RankedPlans, distinct_schedules, rank_plans
from foretell.search.schedule_nests import Nest
from foretell.target.hardware_spec import Coefficients, HardwareSpec, with_cores
from foretell.target.resolve import Target, resolve_target
from foretell.tune.measure_batch import Batch
from foretell.tune.tune_nests import measured_times

UNSEEN_MODELS = ("densenet121", "inception_v1", "shufflenet_v2", "efficientnet_b0", "mobilevit_small", "convnext_tiny")
LEADERS = 40
"""Schedules predicted to be fastest that are always in the sample; the others are drawn from the whole space."""
AT_A_TIME = 25
"""Schedules that are measured by one process, the one that all share among them."""
ATTEMPTS = 3
"""How often a batch is measured in which the schedule that all batches share took longer than in another."""
DISTURBED = 1.05
FINALISTS = 8
"""Fastest schedules that are measured again together with the chosen one: among hundreds, some were just lucky."""
FINALS = 3
LEAST_PRODUCTS = 1 << 15
"""Nests with fewer take less than a microsecond, as long as it takes to call them."""
Found: TypeAlias = tuple[str, Nest, bool]
"""A case, a nest of it, and whether the nest is unseen."""
UNITS = Coefficients(**{field.name: 1.0 for field in fields(Coefficients)})


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    target = Target(with_cores(resolve_target(options.target).spec, 1))
    found = read_workloads(options.json) if options.json is not None and options.json.exists() else ()
    done = {each.nest: each for each in found}
    every = [found for found in workloads(target, options.only) if products(found[1]) >= LEAST_PRODUCTS]
    every = [found for found in every if not (options.seen and found[2])]
    rate = candidates_per_second((nest for _, nest, _ in every), target.spec)
    for name, nest, is_unseen in spread(every, options.workloads):
        if nest.workload in done:
            continue
        judged = judge(name, nest, is_unseen, target, options.schedules)
        if judged is not None:
            done[nest.workload] = judged
            sys.stdout.write(line(judged) + "\n")
            sys.stdout.flush()
            if options.json is not None:
                write_workloads(options.json, done.values())
    sys.stdout.write("".join(f"{each}\n" for each in summaries(done.values())))
    sys.stdout.write(f"{rate:,.0f} candidates a second\n")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m benchmarks foretell", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", default="", metavar="NAME", help="the cases whose names contain this")
    made.add_argument("--seen", action="store_true", help="only nests of the suite `ops`")
    made.add_argument("--workloads", type=int, default=60, metavar="N", help="so many nests, from among all")
    made.add_argument("--schedules", type=int, default=200, metavar="N", help="so many of each")
    made.add_argument("--target", default="native", help="whose numbers predict; `foretell calibrate` writes a file")
    made.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured there, and go on from it")
    return made


def workloads(target: Target, only: str) -> Iterator[Found]:
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


def products(nest: Nest) -> int:
    """Multiplications of a nest."""
    contraction = try_contraction(nest.kernel)
    return 0 if contraction is None else contraction.points


def spread(every: Sequence[Found], count: int) -> list[Found]:
    """Some of many, evenly; half of them unseen where there are as many."""
    halves = [[found for found in every if found[2] is is_unseen] for is_unseen in (False, True)]
    unseen = min(max(count // 2, count - len(halves[0])), len(halves[1]))
    return [found for half, some in zip(halves, (count - unseen, unseen), strict=True) for found in _evenly(half, some)]


def _evenly(every: Sequence[Found], count: int) -> list[Found]:
    return [every[number * len(every) // count] for number in range(min(count, len(every)))] if every else []


def _nests(cases: Sequence[Case], target: Target, only: str) -> Iterator[tuple[str, Nest]]:
    for case in cases:
        if only in case.name:
            graph = choose_algorithms(simplify(import_model(case.build().model())), target.spec)
            for nest, _ in lower_program(graph, target).nests:
                yield case.name, nest


def judge(name: str, nest: Nest, is_unseen: bool, target: Target, count: int) -> Workload | None:
    """Predict and measure a sample of a nest's schedules; None where there is nothing to choose."""
    spec, ranked = target.spec, rank_plans(nest.kernel, target.spec, nest.constants)
    numbers = {} if ranked is None else distinct_schedules(ranked, nest.constants)
    if ranked is None or len(numbers) < 2:
        return None
    every = list(numbers)
    drawn = random.Random(0).sample(every[LEADERS:], max(0, min(count, len(every)) - LEADERS))
    sample = every[:LEADERS] + drawn
    measured = _measure(nest, sample, target)
    kept = [schedule for schedule in sample if schedule in measured]
    if sample[0] not in measured or len(kept) < 2:
        return None
    plans = ranked.plans.take(np.array([numbers[schedule] for schedule in kept]))
    terms = plan_terms(ranked.problem, spec, plans)
    return Workload(
        name,
        nest.workload,
        is_unseen,
        len(every),
        tuple((terms.cycles * spec.cycle_s / spec.cores).tolist()),
        tuple(measured[schedule] for schedule in kept),
        counts(ranked, spec, plans),
        tuple(terms.caution.tolist()),
        spec.coefficients.uncertainty,
        {kept.index(schedule): seconds for schedule, seconds in _measure_again(nest, measured, sample[0], target)},
    )


def counts(ranked: RankedPlans, spec: HardwareSpec, plans: Plans) -> dict[str, tuple[float, ...]]:
    """What there is of each term, for any coefficients."""
    terms = plan_terms(ranked.problem, replace(spec, coefficients=UNITS), plans)
    return {name: tuple(getattr(terms, name).tolist()) for name in TIMES}


def _measure(nest: Nest, sample: Sequence[Schedule], target: Target) -> dict[Schedule, float]:
    """Seconds on one thread; those of each batch are scaled so that the schedule all batches share takes the same.

    The fastest turn counts: whatever else runs on the machine can only make others slower.
    """
    chosen, *others = sample
    found: dict[Schedule, float] = {}
    references: list[float] = []
    for start in range(0, len(others), AT_A_TIME - 1):
        batch = (chosen, *others[start : start + AT_A_TIME - 1])
        for _ in range(ATTEMPTS):
            times = measured_times(Batch(nest.kernel, batch, target, threads=1))
            if times[0]:
                base = min(times[0])
                references.append(base)
                found |= {schedule: min(each) / base for schedule, each in zip(batch, times, strict=True) if each}
            if not times[0] or min(times[0]) <= DISTURBED * min(references):
                break
    return {schedule: ratio * median(references) for schedule, ratio in found.items()}


def _measure_again(
    nest: Nest, measured: Mapping[Schedule, float], chosen: Schedule, target: Target
) -> Iterator[tuple[Schedule, float]]:
    """The chosen schedule and the fastest others, in several processes, each time all of them in turns."""
    fastest = sorted((each for each in measured if each != chosen), key=lambda each: measured[each])[:FINALISTS]
    batch = Batch(nest.kernel, (chosen, *fastest), target, threads=1)
    runs = [run for run in (measured_times(batch) for _ in range(FINALS)) if all(run)]
    for number, schedule in enumerate(batch.schedules if runs else ()):
        yield schedule, measured[chosen] * median(min(run[number]) / min(run[0]) for run in runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
