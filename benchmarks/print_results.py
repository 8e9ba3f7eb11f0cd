"""Results in a terminal, suite by suite."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks import ablation_table, table
from benchmarks.ablations import ABLATIONS
from benchmarks.results import Results


def print_results(results: Results, console: Console) -> None:
    """A table for each suite, and what its columns mean."""
    for suite in results.suites():
        console.print(f"\n{suite}", style="bold")
        console.print(_table(results, suite), highlight=False)
        if suite == ABLATIONS:
            console.print(f"\n{ablation_table.LEGEND}", style="dim", highlight=False)
    if any(suite != ABLATIONS for suite in results.suites()):
        console.print(f"\n{table.LEGEND}", style="dim", highlight=False)


def _table(results: Results, suite: str) -> Table:
    rows = results.of(suite)
    return ablation_table.make_table(rows) if suite == ABLATIONS else table.make_table(rows)
