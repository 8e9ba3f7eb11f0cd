"""`python -m benchmarks tuning`: the schedule that is chosen without measuring, against measuring for as long.

For each nest of products, three ways to find a schedule, and what each would deliver at any moment of its compile time:
choosing by prediction alone; `foretell tune`, which measures in the order of prediction; and the same measuring in
random order, which knows nothing of predictions. Who has nothing yet delivers one vector at a time, without tiles. What
was delivered is timed again at the end, all side by side, in several processes. One thread.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.foretelling import products, spread, workloads
from benchmarks.fresh_cache import fresh_cache
from benchmarks.machine import describe_commit, describe_machine
from benchmarks.time_to_choose import time_to_choose
from benchmarks.tuned import Delivery, Tuned, TuningResults, line, summary, try_read_tuning, write_tuning
from foretell.schedule.steps import Schedule
from foretell.search.records import CLEAR_GAIN
from foretell.search.schedule_contraction import RankedPlans, build_schedule, distinct_schedules, rank_plans
from foretell.search.schedule_nests import Nest
from foretell.target.hardware_spec import with_cores
from foretell.target.resolve import Target, resolve_target
from foretell.tune.measure_batch import Batch
from foretell.tune.tune_nests import BATCH_SIZE, measured_times

LEAST_PRODUCTS = 1 << 17
"""Nests with fewer take a few microseconds, of which the call itself is too large a part."""
PROCESSES = 5
"""In which delivered code is timed: each keeps the luck that it has with its memory."""


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    target = Target(with_cores(resolve_target("native").spec, 1))
    before = try_read_tuning(options.json) if options.json is not None and options.json.exists() else None
    done = {each.nest: each for each in (() if before is None else before.tuned) if each.budget_s == options.budget}
    machine = describe_machine((1,)) if options.json is not None else {}
    every = [found for found in workloads(target, options.only) if products(found[1]) >= LEAST_PRODUCTS]
    for name, nest, is_unseen in spread(every, options.workloads):
        tuned = done.get(nest.workload) or tune(name, nest, is_unseen, target, options.budget)
        if tuned is None:
            continue
        done[nest.workload] = tuned
        sys.stdout.write(line(tuned) + "\n")
        sys.stdout.flush()
        if options.json is not None:
            date = datetime.now(UTC).strftime("%Y-%m-%d")
            write_tuning(options.json, TuningResults(machine, describe_commit(), date, tuple(done.values())))
    sys.stdout.write(f"{summary(done.values())}\n" if done else "there is nothing to choose\n")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m benchmarks tuning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", default="", metavar="NAME", help="the cases whose names contain this")
    made.add_argument("--workloads", type=int, default=12, metavar="N", help="so many nests, from among all")
    made.add_argument("--budget", type=float, default=60.0, metavar="S", help="seconds of measuring, each way")
    made.add_argument("--json", type=Path, metavar="FILE", help="keep what was measured there, and go on from it")
    return made


def tune(name: str, nest: Nest, is_unseen: bool, target: Target, budget_s: float) -> Tuned | None:
    """All three ways; None where there is nothing to choose, or nothing could be measured."""
    ranked = rank_plans(nest.kernel, target.spec, nest.constants)
    every = [] if ranked is None else list(distinct_schedules(ranked, nest.constants))
    if ranked is None or len(every) < 2:
        return None
    chosen, plain = every[0], plain_schedule(ranked, nest.constants)
    drawn = random.Random(nest.workload).sample(every, len(every))
    choosing_s = time_to_choose(nest, target)
    blind = search(nest, chosen, [plain, *drawn], target, budget_s)
    guided = search(nest, chosen, every[1:], target, budget_s, Search(choosing_s, [(choosing_s, chosen)], CLEAR_GAIN))
    delivered = [schedule for each in (guided, blind) for _, schedule in each.incumbents]
    seconds = time_again(nest, list(dict.fromkeys([chosen, plain, *delivered])), target)
    if chosen not in seconds or plain not in seconds:
        return None
    return Tuned(
        name,
        nest.workload,
        nest.title,
        is_unseen,
        len(every),
        budget_s,
        seconds[plain],
        seconds[chosen] * median(blind.ratios[1:] or [1.0]),
        Delivery(choosing_s, seconds[chosen]),
        guided.deliveries(seconds),
        guided.tried,
        blind.deliveries(seconds),
        blind.tried,
    )


def plain_schedule(ranked: RankedPlans, constants: frozenset[str]) -> Schedule:
    """One row and one vector at a time, and no blocks: about what a nest becomes that nobody schedules."""
    plans = ranked.plans
    is_plain = (plans.rows == 1) & (plans.block + plans.block_rows + plans.sum_block == 0) & ~plans.copies
    off = np.where(is_plain, abs(plans.width - ranked.problem.lanes), np.iinfo(np.int64).max)
    return build_schedule(ranked.problem, plans[int(off.argmin())], constants)


def time_again(nest: Nest, schedules: Sequence[Schedule], target: Target) -> dict[Schedule, float]:
    """Seconds of a call, in the median over processes, of the fastest turn in each; orders differ."""
    found: dict[Schedule, list[float]] = {schedule: [] for schedule in schedules}
    for number in range(PROCESSES):
        order = tuple(random.Random(number).sample(schedules, len(schedules)))
        for schedule, times in zip(order, measured_times(Batch(nest.kernel, order, target, threads=1)), strict=True):
            found[schedule] += [min(times)] if times else []
    return {schedule: median(times) for schedule, times in found.items() if times}


@dataclass(slots=True)
class Search:
    """What measuring has found so far."""

    elapsed_s: float = 0.0
    incumbents: list[tuple[float, Schedule]] = field(default_factory=list)
    """The best schedules so far, and from when on."""
    best_ratio: float = inf
    """Of the last one's time to that of the schedule which all batches share."""
    ratios: list[float] = field(default_factory=list)
    tried: int = 0

    def note(self, batch: Sequence[Schedule], times: Sequence[Sequence[float]]) -> None:
        """The first of a batch is the one that all share; medians over turns are compared, as `foretell tune` does."""
        self.tried += len(batch) - 1
        for schedule, seconds in zip(batch[1:], times[1:], strict=True):
            if seconds and times[0]:
                self.ratios.append(median(seconds) / median(times[0]))
                if self.ratios[-1] < self.best_ratio:
                    self.best_ratio = self.ratios[-1]
                    self.incumbents = [each for each in self.incumbents if each[0] < self.elapsed_s]
                    self.incumbents.append((self.elapsed_s, schedule))

    def deliveries(self, seconds: dict[Schedule, float]) -> tuple[Delivery, ...]:
        """With the time of each schedule as it was measured at the end."""
        return tuple(Delivery(at_s, seconds[schedule]) for at_s, schedule in self.incumbents if schedule in seconds)


def search(
    nest: Nest,
    shared: Schedule,
    order: Sequence[Schedule],
    target: Target,
    budget_s: float,
    found: Search | None = None,
) -> Search:
    """Batch after batch until the time is over: processes, compiling and measuring count, listing schedules not."""
    found = Search() if found is None else found
    with fresh_cache(target):
        start_s = time.perf_counter() - found.elapsed_s
        for first in range(0, len(order), BATCH_SIZE - 1):
            if found.elapsed_s >= budget_s:
                break
            batch = (shared, *order[first : first + BATCH_SIZE - 1])
            times = measured_times(Batch(nest.kernel, batch, target, threads=1))
            found.elapsed_s = time.perf_counter() - start_s
            found.note(batch, times)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
