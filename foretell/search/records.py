"""Measured schedules on disk: what `foretell tune` found out, and `compile` uses.

One SQLite file in the cache's folder. A row is a workload (a plain nest, and which of its operands are constant), the
CPU and number of threads it was measured on, a schedule, the seconds of its turns, and their ratio to the schedule that
was predicted to be best, taken in turns with it. A schedule that failed has no ratio.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from foretell.loops.nodes import Kernel
from foretell.schedule.schedule_json import from_json, to_json
from foretell.schedule.steps import Schedule
from foretell.support.cache_folder import try_cache_folder
from foretell.support.errors import UsageError
from foretell.target.resolve import Target

SCHEMA = 1
"""Of the table; files of another one are not read."""
FILE_NAME = "tuned.sqlite"
CLEAR_GAIN = 0.98
"""A schedule must have taken less than this share of the predicted one's time to be used instead."""
_CREATE = """create table if not exists measured (
    workload text not null, target text not null, threads integer not null, schedule text not null,
    times_s text not null, ratio real, primary key (workload, target, threads, schedule)
)"""


@dataclass(frozen=True, slots=True)
class Record:
    """One schedule of a workload."""

    workload: str
    schedule: Schedule
    times_s: tuple[float, ...]
    ratio: float | None
    """Of its time to that of the schedule that was predicted to be best; None if it failed."""


def workload_name(nest: Kernel, are_constant: tuple[bool, ...]) -> str:
    """A name for nests that print alike once their operands are named by place."""
    return hashlib.sha256(f"{nest}\n{are_constant}".encode()).hexdigest()[:32]


def machine_name(target: Target) -> str:
    return f"{target.triple} {target.cpu} {target.llvm_features} {target.spec.cores} cores"


class Records:
    """The rows of one CPU and number of threads."""

    def __init__(self, path: Path, target: Target, threads: int) -> None:
        self._key = (machine_name(target), threads)
        try:
            self._database = sqlite3.connect(path, timeout=10.0)
            version = self._database.execute("pragma user_version").fetchone()[0]
            if version not in (0, SCHEMA):
                raise sqlite3.DatabaseError(f"schema {version}")
            with self._database:
                self._database.execute(_CREATE)
                self._database.execute(f"pragma user_version = {SCHEMA}")
        except sqlite3.Error as error:
            raise UsageError(
                "the records of measured schedules cannot be read",
                where=str(path),
                expected=f"an SQLite file of schema {SCHEMA}",
                got=str(error),
                hint="move the file away: `foretell tune` starts a new one",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._database.close()

    def add(self, records: Iterable[Record]) -> None:
        """Keep records, the last one of a schedule."""
        rows = [
            (record.workload, *self._key, _text(record.schedule), json.dumps(record.times_s), record.ratio)
            for record in records
        ]
        with self._database:
            self._database.executemany("insert or replace into measured values (?, ?, ?, ?, ?, ?)", rows)

    def of(self, workload: str) -> list[Record]:
        """What was measured of a workload, the fastest first and failures last."""
        found = self._database.execute(
            "select schedule, times_s, ratio from measured where workload = ? and target = ? and threads = ?"
            " order by ratio is null, ratio, schedule",
            (workload, *self._key),
        )
        return [Record(workload, from_json(json.loads(s)), tuple(json.loads(t)), r) for s, t, r in found]

    def try_best(self, workload: str) -> Schedule | None:
        """The fastest schedule, if it was clearly faster than the one that was predicted to be."""
        best = next(iter(self.of(workload)), None)
        return best.schedule if best and best.ratio is not None and best.ratio < CLEAR_GAIN else None

    def export(self) -> Iterator[str]:
        """Every row of any CPU as a line of JSON."""
        names = ("workload", "target", "threads", "schedule", "times_s", "ratio")
        for row in self._database.execute(f"select {', '.join(names)} from measured order by {', '.join(names[:4])}"):
            fields = dict(zip(names, row, strict=True))
            yield json.dumps({**fields, "schedule": json.loads(row[3]), "times_s": json.loads(row[4])})


def _text(schedule: Schedule) -> str:
    return json.dumps(to_json(schedule))


def records_path() -> Path | None:
    """Where the records are, or would be; None if the cache is off."""
    folder = try_cache_folder("tuned")
    return None if folder is None else folder / FILE_NAME


def try_records(target: Target, threads: int) -> Records | None:
    """The records for a target, if there are any that can be read: a compilation does not fail for their sake."""
    path = records_path()
    if path is None or not path.exists():
        return None
    try:
        return Records(path, target, threads)
    except UsageError:
        return None
