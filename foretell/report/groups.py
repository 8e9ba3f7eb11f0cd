"""Which nests of a model are one kernel, which neighbours are not, and why."""

from __future__ import annotations

from rich.table import Table

from foretell.partition.choose_groups import Decision
from foretell.report.tables import table


def groups_table(decisions: tuple[Decision, ...]) -> Table:
    """Those that are fused first; equal lines once."""
    rows: list[tuple[object, ...]] = [
        (
            " + ".join(decision.names),
            "one kernel" if decision.is_fused else "apart",
            _microseconds(decision.alone_s),
            _microseconds(decision.fused_s),
            decision.reason,
        )
        for decision in decisions
    ]
    return table("nests", "", "apart, us", "fused, us", "why", rows=list(dict.fromkeys(rows)))


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"
