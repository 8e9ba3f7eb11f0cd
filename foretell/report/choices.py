"""How each sum of products is computed, what that is predicted to take, and why not otherwise."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rich.table import Table

from foretell.compiler import Lowered
from foretell.report.tables import table
from foretell.search.plans import Plan, PlanTerms
from foretell.search.schedule_contraction import ranked_plans
from foretell.search.schedule_nests import Nest
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.resolve import Target

AS_FAST = 1.005
REJECTED = 3
"""Other tiles that are told about."""
REASONS = {
    "tiles": "its tiles take longer",
    "partial_sums": "sums are put aside more often",
    "copies": "an operand lies apart",
    "pieces": "rows of the result begin more often",
    "slabs": "the operand in vectors is read more often",
    "rows": "the operand in rows is read more often",
    "others": "results are written in more pieces",
    "waiting": "slabs do not fit twice, and are waited for",
    "idle": "cores stay idle",
    "": "as good",
}
"""Terms of a plan, and what is wrong with one that has more of it."""


TIMES = tuple(field.name for field in fields(PlanTerms) if field.name != "idle")


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
    binds: str
    terms_s: dict[str, float]
    """What it would take on its own, by term."""
    rejected: tuple[Rejected, ...]


def describe_choices(lowered: Lowered, target: Target) -> tuple[Choice, ...]:
    """The sums of products of a model; other nests have no choice."""
    found = (_describe(nest, count, target.spec) for nest, count in lowered.nests)
    return tuple(choice for choice in found if choice is not None)


def _describe(nest: Nest, count: int, spec: HardwareSpec) -> Choice | None:
    ranked = ranked_plans(nest.kernel, spec, nest.constants)
    if not ranked:
        return None
    (chosen, terms), *others = ranked
    best_of: dict[str, tuple[Plan, PlanTerms]] = {}
    for plan, found in others:
        if plan.shape != chosen.shape:
            best_of.setdefault(_tile(plan), (plan, found))
    rejected = tuple(
        Rejected(in_words(plan), found.cycles / terms.cycles, REASONS[_worst(terms, found)])
        for plan, found in list(best_of.values())[:REJECTED]
    )
    second = spec.cycle_s / spec.cores
    return Choice(
        nest.title,
        count,
        len(ranked),
        in_words(chosen),
        terms.cycles * second,
        _binds(terms),
        {name: getattr(terms, name) * second for name in TIMES},
        rejected,
    )


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
        return ""
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
