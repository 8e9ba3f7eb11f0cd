"""How many plans a second are made and compared, with nothing measured."""

from __future__ import annotations

import time
from collections.abc import Iterable

from foretell.search.contraction import try_contraction, try_problem
from foretell.search.plan_terms import plan_terms
from foretell.search.plans import every_plan
from foretell.search.schedule_nests import Nest
from foretell.target.hardware_spec import HardwareSpec

ROUNDS = 3
"""The fastest counts: others may use the machine."""


def candidates_per_second(nests: Iterable[Nest], spec: HardwareSpec) -> float:
    """Over nests of products: making all of their plans, their terms, and finding the best."""
    contractions = [(try_contraction(nest.kernel), nest.constants) for nest in nests]
    found = [try_problem(contraction, spec, constants) for contraction, constants in contractions if contraction]
    problems = [problem for problem in found if problem is not None]
    best_s, count = float("inf"), 0
    for _ in range(ROUNDS):
        start, count = time.perf_counter(), 0
        for problem in problems:
            plans = every_plan(problem, spec)
            plan_terms(problem, spec, plans).cycles.argmin()
            count += len(plans)
        best_s = min(best_s, time.perf_counter() - start)
    return count / best_s
