"""The part of docs/benchmarks.md about tuning, and its plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, log10
from pathlib import Path

import numpy as np

from benchmarks.line_chart import Line, line_chart
from benchmarks.machine import summary as machine_summary
from benchmarks.tuned import Delivery, Tuned, TuningResults, equal_text, share_text, summary

PLOT = "tuning.svg"
PLOT_POINTS = 160
QUARTILES = (25, 50, 75)
HEADS = (
    "case", "nest", "schedules", "chosen after s", "quality", "blind then", "ratio", "to random", "blind equal after s",
    "share", "blind at the end", "tuned at the end",
)  # fmt: skip
ABOUT = """\
Quality is the time of the best code that anybody found for a nest over the time of the code in question, on one
thread. Without measuring, a schedule is chosen and compiled; blind measuring compiles and times schedules of the same
space in random order; `foretell tune` does so in the order of prediction. Before it has measured anything, blind
measuring has one vector at a time, without tiles; "to random" compares with a schedule that is drawn and not measured
instead. Share is the time of choosing over that after which blind measuring is as good. A star marks nests unseen when
numbers of the model were set. No other tuner took part."""


def tuning_section(results: TuningResults, folder: Path) -> str:
    (folder / PLOT).write_text(plot(results.tuned), encoding="utf-8")
    parts = [
        "## tuning: choosing without measuring, against measuring for as long",
        f"Commit `{results.commit}`, {results.date}. {machine_summary(results.machine)}.",
        ABOUT,
        summary(results.tuned),
        f"![tuning]({folder.name}/{PLOT})",
        _table(results.tuned),
    ]
    return "\n\n".join(parts) + "\n"


def plot(tuned: Sequence[Tuned]) -> str:
    """Medians over nests; bands reach from one quartile to the other."""
    first_s = 10.0 ** floor(log10(min(each.chosen.at_s for each in tuned)))
    seconds = np.geomspace(first_s, min(each.budget_s for each in tuned), PLOT_POINTS).tolist()
    lines = (
        _line("chosen without measuring", tuned, lambda each: (each.chosen,), seconds, has_band=False),
        _line("measured blindly", tuned, lambda each: each.blind, seconds),
        _line("foretell tune", tuned, lambda each: each.guided, seconds),
    )
    title = f"quality of the code over compile time, {len(tuned)} nests: median and quartiles"
    return line_chart(title, "seconds since compilation began", seconds, lines)


def _line(
    name: str,
    tuned: Sequence[Tuned],
    deliveries: Callable[[Tuned], Sequence[Delivery]],
    seconds: Sequence[float],
    has_band: bool = True,
) -> Line:
    qualities = [[each.quality(deliveries(each), second) for each in tuned] for second in seconds]
    low, middle, high = np.percentile(qualities, QUARTILES, axis=1).tolist()
    return Line(name, tuple(middle), tuple(zip(low, high, strict=True)) if has_band else ())


def _table(tuned: Sequence[Tuned]) -> str:
    lines = [_row(HEADS), _row(["---"] * len(HEADS))]
    return "\n".join([*lines, *(_row(_cells(each)) for each in tuned)])


def _cells(tuned: Tuned) -> Sequence[str]:
    return (
        tuned.name,
        f"`{tuned.title}`",
        str(tuned.space),
        f"{tuned.chosen.at_s:.2f}",
        f"{tuned.chosen_quality:.0%}",
        f"{tuned.quality(tuned.blind, tuned.chosen.at_s):.0%}",
        f"{tuned.ratio:.2f}",
        f"{tuned.random_ratio:.2f}",
        equal_text(tuned),
        share_text(tuned),
        f"{tuned.quality(tuned.blind, tuned.budget_s):.0%}",
        f"{tuned.quality(tuned.guided, tuned.budget_s):.0%}",
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
