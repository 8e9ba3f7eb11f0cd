"""Ablations as lines of text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log

from rich.markup import escape
from rich.table import Table

from benchmarks.ablations import VARIANTS, Variant
from benchmarks.contestants import OURS
from benchmarks.statistics import Row
from benchmarks.table import number_text, races, time_text

HEADS = ("model", "threads", "ms", *(each.title for each in VARIANTS), "intermediate MB", "saved MB", "saved %")
LEGEND = (
    "How many times as long a model takes that was compiled without a part, with the 95 % interval: above 1 the part "
    "is worth something; same: the code is the same without it. No divide and conquer: nests inside fused kernels run "
    "plain loops instead of schedules of their own. Intermediate MB is what tensors between kernels move through "
    "memory in one call where no kernels are fused, saved MB what of it fusing saves."
)


def make_table(rows: Sequence[Row]) -> Table:
    """For the terminal."""
    table = Table(*HEADS, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for cells in ablation_lines(rows):
        table.add_row(*map(escape, cells))
    return table


def ablation_lines(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Cells under `HEADS`, a line for each model and number of threads."""
    for (name, threads), group in races(rows):
        found = {row.contestant: row for row in group}
        ours = found.get(OURS)
        times = [slowdown_text(found.get(each.contestant)) for each in VARIANTS]
        yield [name, str(threads), _time(ours), *times, *_traffic(ours)]


def mean_slowdown(rows: Sequence[Row], variant: Variant, threads: int) -> float | None:
    """The geometric mean over models; those whose code is the same count as 1."""
    logs: list[float] = []
    for _, group in races(row for row in rows if row.threads == threads):
        found = {row.contestant: row for row in group}
        row = found.get(variant.contestant)
        if found[OURS].error is None and (row is None or "slowdown" in row.details):
            logs.append(0.0 if row is None else log(row.details["slowdown"]))
    return exp(sum(logs) / len(logs)) if logs else None


def slowdown_text(row: Row | None) -> str:
    """Outputs that are too far from onnxruntime's, and times while others were busy, are marked."""
    if row is None:
        return "same"
    if row.error is not None or "slowdown" not in row.details:
        return "failed"
    ratio, low, high = (row.details[name] for name in ("slowdown", "slowdown_low", "slowdown_high"))
    marks = (" !" if row.is_wrong else "") + (" ~" if row.is_disturbed else "")
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]{marks}"


def _time(row: Row | None) -> str:
    return "failed" if row is None or row.median_ms is None else time_text(row) + (" !" if row.is_wrong else "")


def _traffic(row: Row | None) -> list[str]:
    moved, saved = (None if row is None else row.details.get(name) for name in ("intermediate_mb", "saved_mb"))
    if moved is None or saved is None:
        return ["", "", ""]
    return [number_text(moved), number_text(saved), f"{100 * saved / moved:.0f}" if moved else ""]
