"""What the passes of a trace did, one line for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from foretell.graph.nodes import Graph
from foretell.support.trace import PassRecord


@dataclass(frozen=True, slots=True)
class PassSummary:
    """All runs of one pass: how many of them changed the graph, and by how many nodes it grew."""

    name: str
    runs: int
    changed: int
    nodes_added: int
    time_ms: float


def summarise_passes(records: Sequence[PassRecord[Graph]]) -> tuple[PassSummary, ...]:
    """One summary per pass in the order of first runs; the trace must have kept its graphs."""
    added = list(_nodes_added(records))
    names = dict.fromkeys(record.name for record in records)
    return tuple(_summary(name, [pair for pair in added if pair[0].name == name]) for name in names)


def _summary(name: str, runs: Sequence[tuple[PassRecord[Graph], int]]) -> PassSummary:
    return PassSummary(
        name=name,
        runs=len(runs),
        changed=sum(record.changed for record, _ in runs),
        nodes_added=sum(added for _, added in runs),
        time_ms=sum(record.time_ms for record, _ in runs),
    )


def _nodes_added(records: Sequence[PassRecord[Graph]]) -> Iterator[tuple[PassRecord[Graph], int]]:
    before = 0
    for record in records:
        assert record.after is not None, "the trace kept no graphs"
        yield record, len(record.after.nodes) - before
        before = len(record.after.nodes)


def passes_json(records: Sequence[PassRecord[Graph]]) -> list[dict[str, object]]:
    """Every run of every pass."""
    return [
        {"name": record.name, "time_ms": record.time_ms, "changed": record.changed, "nodes": len(record.after.nodes)}
        for record in records
        if record.after is not None
    ]


def passes_table(summaries: Sequence[PassSummary]) -> Table:
    """Passes that changed nothing are there, but dim."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("pass")
    for column in ("runs", "changed", "nodes", "ms"):
        made.add_column(column, justify="right", no_wrap=True)
    for summary in summaries:
        nodes = f"{summary.nodes_added:+,}" if summary.nodes_added else ""
        cells = (summary.name, str(summary.runs), str(summary.changed), nodes, f"{summary.time_ms:.1f}")
        made.add_row(*map(Text, cells), style="" if summary.changed else "dim")
    nodes = sum(summary.nodes_added for summary in summaries)
    runs, time_ms = sum(summary.runs for summary in summaries), sum(summary.time_ms for summary in summaries)
    made.add_row("all", str(runs), "", f"{nodes:,}", f"{time_ms:.1f}", style="bold")
    return made
