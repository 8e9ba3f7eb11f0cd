"""`python -m benchmarks.fit FILE`: the coefficients of a target that suit measured schedules best.

FILE is what `python -m benchmarks foretell --json FILE` stored. Only nests that are marked as seen take part; the
errors of the others tell whether the fit is worth having. The table that is printed belongs into the CPU's file in
`foretell/target/cpus`.

What a plan takes is linear in the coefficients once it is known which of computing and reading takes longer: least
squares without negative numbers, some times over. Errors are relative, and weigh less the slower a schedule is: what is
never chosen need not be exact. Large ones weigh less too, since some runs were disturbed. The uncertainty is that of
nests which a fit to the others has not seen, each in turn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.foretold import STATED_RATE, Workload, read_workloads, summaries
from benchmarks.non_negative import Floats, solve_non_negative
from foretell.search.plan_terms import COMPUTE, MEMORY, TIMES, PlanTerms
from foretell.search.tiles import OVERLAP_LOSS
from foretell.target.hardware_spec import Coefficients
from foretell.target.resolve import resolve_target
from foretell.target.write_spec import coefficient_lines

ROUNDS = 12
FASTEST_PERCENT = 2
"""Schedules faster than this are not worth more than those at it: some were never that fast."""
SLOW_WEIGHT = 2
"""The weight of a schedule goes with this power of its speed."""
USUAL_ERROR = 0.05
"""Errors beyond this weigh less than their square."""
PULL = 0.002
"""How strongly each coefficient is drawn to what it was, of the weight of one nest: for terms that hardly occur."""


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    spec = resolve_target(options.target).spec
    found = list(read_workloads(options.file))
    fitted = fit([each for each in found if not each.is_unseen], spec.coefficients, spec.frequency_hz)
    for heading, coefficients in (("before", spec.coefficients), ("after", fitted)):
        foretold = [predict_again(each, coefficients, spec.frequency_hz) for each in found]
        sys.stdout.write("".join(f"{heading}, {line}\n" for line in summaries(foretold)))
    sys.stdout.write("\n".join(["", *coefficient_lines(fitted)]) + "\n")
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m benchmarks.fit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("file", type=Path, metavar="FILE", help="what `python -m benchmarks foretell --json` stored")
    made.add_argument("--target", default="native", help="the CPU it was measured on")
    return made


def fit(workloads: Sequence[Workload], start: Coefficients, frequency_hz: float, pull: float = PULL) -> Coefficients:
    """The coefficients that suit measured times best, and the uncertainty of what was not fitted to."""
    errors: list[Floats] = []
    for number, each in enumerate(workloads):
        others = [*workloads[:number], *workloads[number + 1 :]]
        errors.append(np.abs(np.log(_ratios(each, _fit(others or workloads, start, frequency_hz, pull), frequency_hz))))
    uncertainty = float(f"{np.exp(_quantile(errors, STATED_RATE)):.3g}")
    return replace(_fit(workloads, start, frequency_hz, pull), uncertainty=uncertainty)


def _fit(workloads: Sequence[Workload], start: Coefficients, frequency_hz: float, pull: float) -> Coefficients:
    found = start
    for _ in range(ROUNDS):
        parts = [_equations(each, found, frequency_hz) for each in workloads]
        matrix, values = (np.concatenate(some) for some in zip(*parts, strict=True))
        before = np.array([getattr(start, name) for name in TIMES])
        drawn = np.sqrt(pull * len(parts)) * np.diag(1 / np.where(before > 0, before, 1.0))
        solved = solve_non_negative(np.concatenate([matrix, drawn]), np.concatenate([values, drawn @ before]))
        found = replace(start, **{name: float(f"{value:.3g}") for name, value in zip(TIMES, solved, strict=True)})
    return found


def predict_again(workload: Workload, coefficients: Coefficients, frequency_hz: float) -> Workload:
    """The same measurements with the times that other coefficients predict."""
    predicted = _terms(workload, coefficients).cycles / frequency_hz
    return replace(workload, predicted_s=tuple(predicted.tolist()), uncertainty=coefficients.uncertainty)


def _terms(workload: Workload, coefficients: Coefficients) -> PlanTerms:
    """On one core, which is never idle."""
    weighted = {name: getattr(coefficients, name) * np.array(workload.counts[name]) for name in TIMES}
    return PlanTerms(**weighted, idle=np.ones(len(workload.measured_s)), caution=np.array(workload.caution))


def _ratios(workload: Workload, coefficients: Coefficients, frequency_hz: float) -> Floats:
    return _terms(workload, coefficients).cycles / frequency_hz / np.array(workload.measured_s)


def _equations(workload: Workload, near: Coefficients, frequency_hz: float) -> tuple[Floats, Floats]:
    """Rows of `matrix @ coefficients = values`: each schedule's time over what was measured should be 1."""
    measured = np.array(workload.measured_s)
    terms = _terms(workload, near)
    is_computing = terms.compute >= terms.memory
    parts = {name: np.where(is_computing, 1.0, OVERLAP_LOSS) for name in COMPUTE}
    parts |= {name: np.where(is_computing, OVERLAP_LOSS, 1.0) for name in MEMORY}
    columns = [parts.get(name, 1.0) * np.array(workload.counts[name]) / frequency_hz / measured for name in TIMES]
    weights = np.minimum(1.0, np.percentile(measured, FASTEST_PERCENT) / measured) ** SLOW_WEIGHT
    weights /= np.maximum(USUAL_ERROR, np.abs(np.log(terms.cycles / frequency_hz / measured)))
    weights = np.sqrt(weights / weights.sum())
    return np.stack(columns, axis=1) * weights[:, None], weights


def _quantile(errors: Sequence[Floats], rate: float) -> float:
    """Of all errors, those of each nest together weighing the same."""
    every = np.concatenate(errors)
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in errors])
    order = np.argsort(every)
    return float(every[order][np.searchsorted(np.cumsum(weights[order]), rate * len(errors))])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
