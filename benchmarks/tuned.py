"""What was measured of choosing and tuning at equal compile time; the figures that are made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import Machine

AS_GOOD = 0.98
"""Code that is this part as fast as other code counts as equal."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Code that is the best one known of from some moment on."""

    at_s: float
    """Since compilation began."""
    takes_s: float
    """A call of it, timed once more when all is over: who measures many picks some by luck."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """One nest: what each way to find a schedule would deliver, and when."""

    name: str
    nest: str
    title: str
    is_unseen: bool
    space: int
    budget_s: float
    plain_s: float
    """A call of the code without any search, which is there at once."""
    random_s: float
    """Of a schedule of the space, in the median."""
    chosen: Delivery
    """Without measuring anything."""
    guided: tuple[Delivery, ...]
    """`foretell tune`: from there on, in the order of prediction."""
    guided_tried: int
    blind: tuple[Delivery, ...]
    """The same measuring, in random order."""
    blind_tried: int

    @property
    def best_s(self) -> float:
        found = (self.chosen, *self.guided, *self.blind)
        return min(self.plain_s, *(delivery.takes_s for delivery in found))

    def quality(self, deliveries: Sequence[Delivery], at_s: float) -> float:
        """Of what is delivered at a moment: the time of the best code that anybody found over its own."""
        takes_s = [delivery.takes_s for delivery in deliveries if delivery.at_s <= at_s]
        return self.best_s / (takes_s[-1] if takes_s else self.plain_s)

    @property
    def chosen_quality(self) -> float:
        return self.best_s / self.chosen.takes_s

    @property
    def ratio(self) -> float:
        """How many times as fast as blind measuring's the chosen code is, at equal time."""
        return self.chosen_quality / self.quality(self.blind, self.chosen.at_s)

    @property
    def random_ratio(self) -> float:
        """And as a schedule that is drawn and not measured."""
        return self.random_s / self.chosen.takes_s

    @property
    def equal_s(self) -> float | None:
        """When blind measuring has code as good as the chosen one; None if never in its time."""
        deliveries = (Delivery(0.0, self.plain_s), *self.blind)
        enough_s = self.chosen.takes_s / AS_GOOD
        return next((delivery.at_s for delivery in deliveries if delivery.takes_s <= enough_s), None)

    @property
    def share(self) -> float:
        """The time that choosing takes, of that; at most this if it never comes."""
        equal_s = self.budget_s if self.equal_s is None else self.equal_s
        return self.chosen.at_s / equal_s if equal_s else inf


@dataclass(frozen=True, slots=True)
class TuningResults:
    machine: Machine
    commit: str
    date: str
    tuned: tuple[Tuned, ...]


def try_read_tuning(path: Path) -> TuningResults | None:
    """None for a file of other results."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    if "tuned" not in stored:
        return None
    return TuningResults(stored["machine"], stored["commit"], stored["date"], tuple(map(_tuned, stored["tuned"])))


def _tuned(stored: dict[str, Any]) -> Tuned:
    stored["chosen"] = Delivery(**stored["chosen"])
    stored |= {name: tuple(Delivery(**each) for each in stored[name]) for name in ("guided", "blind")}
    return Tuned(**stored)


def write_tuning(path: Path, results: TuningResults) -> None:
    """One nest to a line, so that files compare well."""
    lines = ",\n".join("  " + json.dumps(asdict(each)) for each in results.tuned)
    head = "".join(f'"{name}": {json.dumps(getattr(results, name))},\n' for name in ("machine", "commit", "date"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{\n{head}"tuned": [\n{lines}\n]\n}}\n', encoding="utf-8")


def line(found: Tuned) -> str:
    end_s = found.budget_s
    return (
        f"{found.name:32} chosen in {found.chosen.at_s:.2f} s: {found.chosen_quality:4.0%}"
        f"  {found.ratio:5.2f}x blind, {found.random_ratio:5.2f}x random"
        f"  equal after {equal_text(found):>5} s ({share_text(found)})"
        f"  at the end: blind {found.quality(found.blind, end_s):4.0%} of {found.blind_tried}"
        f", guided {found.quality(found.guided, end_s):4.0%} of {found.guided_tried}"
    )


def equal_text(found: Tuned) -> str:
    return f">{found.budget_s:.0f}" if found.equal_s is None else f"{found.equal_s:.1f}"


def share_text(found: Tuned) -> str:
    sign = "<" if found.equal_s is None else ""
    return f"{sign}{found.share:.1%}" if found.share < inf else "-"


def summary(every: Iterable[Tuned]) -> str:
    """In words, all figures being medians over nests."""
    found = list(every)
    equal_s = median(inf if each.equal_s is None else each.equal_s for each in found)
    never = sum(each.equal_s is None for each in found)
    blind = median(each.quality(each.blind, each.budget_s) for each in found)
    guided = median(each.quality(each.guided, each.budget_s) for each in found)
    return (
        f"{len(found)} nests, {sum(each.is_unseen for each in found)} of them unseen when numbers of the model were "
        f"set. In the median choosing takes {median(each.chosen.at_s for each in found):.2f} s and gives "
        f"{median(each.chosen_quality for each in found):.1%} of the quality of the best code that anybody found. At "
        f"equal time that is {median(each.ratio for each in found):.2f} times as fast as what blind measuring has, and "
        f"{median(each.random_ratio for each in found):.2f} times as fast as a random schedule. Blind measuring is as "
        f"good {_after(equal_s, found)} ({never} of {len(found)} nests not in its time), of which choosing takes at "
        f"most {median(each.share for each in found):.2%}. At the end blind measuring gives {blind:.1%}, and "
        f"`foretell tune`, which begins with the choice, {guided:.1%}."
    )


def _after(equal_s: float, found: Sequence[Tuned]) -> str:
    return f"after {equal_s:.1f} s" if equal_s < inf else f"after more than {median(t.budget_s for t in found):.0f} s"
