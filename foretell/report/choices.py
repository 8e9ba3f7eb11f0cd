"""How each sum of products is computed, what that is predicted to take, and why not otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.table import Table

from foretell.compiler import Lowered
from foretell.report.tables import table
from foretell.search.plan_terms import TIMES, PlanTerms
from foretell.search.plans import Plan, Plans
from foretell.search.schedule_contraction import RankedPlans, rank_plans
from foretell.search.schedule_nests import Nest
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.resolve import Target

AS_FAST = 1.005
REJECTED = 3
"""Other tiles that are told about."""
REASONS = {
    "tiles": "its tiles take longer",
    "hidden": "its tiles load more for each product",
    "steps": "its tiles are smaller, and loops around them run more often",
    "conflicts": "rows push each other out of the first cache",
    "crowded": "an operand lies at too few places of the first cache",
    "partial_sums": "sums are put aside more often",
    "finishing": "more is computed with the sums",
    "scattered": "an operand lies apart",
    "copies": "an operand is copied more often",
    "pieces": "rows of the result begin more often",
    "slabs": "the operand in vectors is read more often",
    "rows": "the operand in rows is read more often",
    "others": "results are written in more pieces",
    "waiting": "slabs do not fit twice, and are waited for",
    "idle": "cores stay idle",
    "caution": "its rows leave a tail",
    "": "as good",
}
"""Terms of a plan, and what is wrong with one that has more of it."""


@dataclass(frozen=True, slots=True)
class Rejected:
    how: str
    slower: float
    """Its predicted time over that of the plan that was chosen."""
    why: str


@dataclass(frozen=True, slots=True)
class Choice:
    """A sum of products of a model, and the plan for it."""

    nest: str
    count: int
    """How often the model runs it."""
    space: int
    """Plans that were compared."""
    how: str
    seconds: float
    """Predicted, with all cores of the target."""
    low_s: float
    high_s: float
    """The interval that it lies in four times in five."""
    binds: str
    terms_s: dict[str, float]
    """What it would take on its own, by term."""
    rejected: tuple[Rejected, ...]


def describe_choices(lowered: Lowered, target: Target) -> tuple[Choice, ...]:
    """The sums of products of a model; other nests have no choice."""
    found = (_describe(nest, count, target.spec) for nest, count in lowered.nests)
    return tuple(choice for choice in found if choice is not None)


def _describe(nest: Nest, count: int, spec: HardwareSpec) -> Choice | None:
    ranked = rank_plans(nest.kernel, spec, nest.constants)
    if ranked is None:
        return None
    terms, seconds = ranked.terms.take(0), spec.cycle_s / spec.cores
    predicted_s, uncertainty = float(terms.cycles) * seconds, spec.coefficients.uncertainty
    return Choice(
        nest.title,
        count,
        len(ranked.plans),
        in_words(ranked.plans[0]),
        predicted_s,
        predicted_s / uncertainty,
        predicted_s * uncertainty,
        _binds(terms),
        {name: float(getattr(terms, name)) * seconds for name in TIMES},
        tuple(_reject(ranked, number) for number in _other_tiles(ranked.plans)[:REJECTED]),
    )


def _other_tiles(plans: Plans) -> list[int]:
    """The first plan of each tile but the first's."""
    _, firsts = np.unique(np.stack([plans.rows, plans.width]), axis=1, return_index=True)
    return sorted(firsts.tolist())[1:]


def _reject(ranked: RankedPlans, number: int) -> Rejected:
    chosen, other = ranked.terms.take(0), ranked.terms.take(number)
    slower = float(other.cycles / chosen.cycles)
    return Rejected(in_words(ranked.plans[number]), slower, REASONS[_worst(chosen, other)])


def in_words(plan: Plan) -> str:
    """A plan as a person would say it."""
    words = [f"tiles of {_tile(plan)}"]
    if plan.block_loop is not None:
        words.append(f"in blocks of {plan.block}")
    if plan.sum_block:
        words.append(f"sums in blocks of {plan.sum_block}")
    if plan.copies:
        words.append("vectors copied side by side")
    return ", ".join(words)


def _tile(plan: Plan) -> str:
    return f"{plan.shape.rows} x {plan.shape.width}"


def _binds(terms: PlanTerms) -> str:
    return "computing" if terms.compute >= terms.memory + terms.waiting else "caches"


def _worst(chosen: PlanTerms, other: PlanTerms) -> str:
    """The term that makes the other plan slower; "" if nothing does."""
    if other.cycles < AS_FAST * chosen.cycles:
        return "caution" if other.caution > chosen.caution else ""
    added = {name: getattr(other, name) - getattr(chosen, name) for name in TIMES}
    added["idle"] = (other.idle - chosen.idle) * (other.compute + other.waiting)
    return max(added, key=lambda name: added[name])


def choices_table(choices: tuple[Choice, ...]) -> Table:
    rows: list[tuple[object, ...]] = [
        (
            choice.nest,
            str(choice.count),
            f"{choice.how}; one of {choice.space}",
            f"{choice.seconds * 1e3:.3f}",
            choice.binds,
            f"{choice.rejected[0].how}: {choice.rejected[0].slower:.2f}x, {choice.rejected[0].why}"
            if choice.rejected
            else "",
        )
        for choice in choices
    ]
    return table("sum of products", "times", "how", "ms", "binds", "best of other tiles", rows=rows)
