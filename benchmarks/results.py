"""A result file: JSON with `machine`, `commit`, `date` and `rows`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine
from benchmarks.statistics import Row


@dataclass(frozen=True, slots=True)
class Results:
    machine: Machine
    commit: str
    date: str
    rows: tuple[Row, ...]

    def suites(self) -> list[str]:
        return list(dict.fromkeys(row.suite for row in self.rows))

    def of(self, suite: str) -> list[Row]:
        return [row for row in self.rows if row.suite == suite]


def write_results(path: Path, results: Results) -> None:
    """One row to a line, so that files compare well."""
    lines = ",\n".join("  " + json.dumps(_finite(asdict(row))) for row in results.rows)
    head = "".join(f'"{name}": {json.dumps(getattr(results, name))},\n' for name in ("machine", "commit", "date"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{\n{head}"rows": [\n{lines}\n]\n}}\n', encoding="utf-8")


def read_results(path: Path) -> Results:
    """Raises ValueError for a file that is not a result file."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    try:
        return Results(stored["machine"], stored["commit"], stored["date"], _rows(stored["rows"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result file: {error}") from error


def _rows(stored: Sequence[dict[str, Any]]) -> tuple[Row, ...]:
    known = {one.name for one in fields(Row)}
    return tuple(_row({name: value for name, value in row.items() if name in known}) for row in stored)


def _row(values: dict[str, Any]) -> Row:
    interval = values.pop("interval")
    return Row(**values, interval=None if interval is None else (interval[0], interval[1]))


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: outputs of another shape have the largest error there is."""
    return {name: 1e308 if value == float("inf") else value for name, value in row.items()}
