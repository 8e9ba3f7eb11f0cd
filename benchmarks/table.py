"""Rows of a race as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.table import Table

from benchmarks.contestants import OURS
from benchmarks.statistics import ERROR_LIMIT, Row

LEGEND = (
    "ms: median (fastest call) · ratio: the best peer's median / this one's, above 1 is faster than the best peer, "
    "with its 95 % interval; tie: the interval holds 1 · peak: share of the measured multiply-add peak of so many "
    f"threads · !: outputs differ from onnxruntime's by more than {ERROR_LIMIT:g} of their scale · ~: others were busy "
    "in most of its turns"
)


def make_table(rows: Sequence[Row]) -> Table:
    """One line for each contestant, grouped by case and number of threads."""
    table = Table("name", "threads", "contestant", "ms", "(min)", "ratio", "interval", "peak %", "error", box=None)
    for column in (1, 3, 4, 5, 6, 7, 8):
        table.columns[column].justify = "right"
    for (name, threads), group in races(rows):
        for place, row in enumerate(group):
            table.add_row(name if not place else "", str(threads) if not place else "", *cells(row), style=_style(row))
    return table


def races(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, int], list[Row]]]:
    """Rows that ran against each other, which lie next to each other."""
    for key, group in groupby(rows, key=lambda row: (row.name, row.threads)):
        yield key, list(group)


def cells(row: Row) -> list[str]:
    if row.error is not None:
        return [row.contestant, "-", "", "", "", "", row.error[:40]]
    return [
        row.contestant,
        time_text(row),
        f"({number_text(row.min_ms)})",
        ratio_text(row),
        "" if row.interval is None else f"{row.interval[0]:.2f}-{row.interval[1]:.2f}",
        "" if row.percent_of_peak is None else f"{row.percent_of_peak:.0f}",
        error_text(row),
    ]


def ratio_text(row: Row) -> str:
    """A peer that is the best has ratio one by definition: that is no tie."""
    if row.ratio_to_best_peer is None:
        return ""
    is_best = row.interval == (1.0, 1.0)
    return "best peer" if is_best else f"{row.ratio_to_best_peer:.2f}" + (" tie" if row.is_tie else "")


def error_text(row: Row) -> str:
    if row.max_relative_error is None:
        return ""
    return f"{row.max_relative_error:.0e}" + (" !" if row.is_wrong else "")


def time_text(row: Row) -> str:
    return number_text(row.median_ms) + (" ~" if row.is_disturbed else "")


def number_text(number: float | None) -> str:
    """Three digits."""
    if number is None:
        return "-"
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _style(row: Row) -> str | None:
    if row.error is not None:
        return "dim"
    return "bold" if row.contestant == OURS else None
