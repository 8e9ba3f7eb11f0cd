"""Suites, case by case: what is printed while they run, and the rows they give."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.markup import escape

from benchmarks.ablation_table import slowdown_text
from benchmarks.ablations import ABLATIONS, VARIANTS, ablate, with_ablations
from benchmarks.cases import Case, StoredCase, select, store
from benchmarks.compile_times import QUICK_COMPILE_PACE, CompilePace, race_to_compile
from benchmarks.contestant_process import Surroundings
from benchmarks.contestants import CONTESTANTS, OURS
from benchmarks.machine import Machine
from benchmarks.race import QUICK_PACE, Pace, race
from benchmarks.statistics import Measured, Row, make_rows
from benchmarks.suites import COMPILE, SUITES
from benchmarks.table import number_text, ratio_text

INSTALL_HINT = "pip install -e '.[bench]', or benchmarks/README.md"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for."""

    suites: tuple[str, ...]
    only: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1, 2)
    peers: tuple[str, ...] | None = None
    """None for those of each suite."""
    is_quick: bool = False
    pythons: Mapping[str, str] = field(default_factory=dict)

    def contestants(self, suite: str) -> list[str]:
        """foretell, and the peers that are there."""
        return [OURS, *(name for name in self._peers(suite) if not self._missing(name))]

    def absent(self) -> dict[str, list[str]]:
        """Peers that take no part, and what would have to be installed for them."""
        wanted = dict.fromkeys(name for suite in self.suites for name in self._peers(suite))
        return {name: missing for name in wanted if (missing := self._missing(name))}

    def cases(self, suite: str) -> list[Case]:
        return select(SUITES[suite].cases(), self.only, quick=self.is_quick)

    def threads_of(self, suite: str) -> tuple[int, ...]:
        """Compiling is timed once: it does not depend on how many threads the result will use."""
        return self.threads[-1:] if suite == COMPILE else self.threads

    def estimate_s(self) -> float:
        """About how long it all takes."""
        return sum(
            SUITES[suite].estimate_s(self.is_quick)
            * len(self.threads_of(suite))
            * len(self.cases(suite))
            * len(self.contestants(suite))
            / (1 + len(SUITES[suite].peers))
            for suite in self.suites
        )

    def _peers(self, suite: str) -> tuple[str, ...]:
        return SUITES[suite].peers if self.peers is None else self.peers

    def _missing(self, peer: str) -> list[str]:
        """Another interpreter is taken at its word."""
        return [] if peer in self.pythons else CONTESTANTS[peer].missing()


def run_suites(plan: Plan, machine: Machine, console: Console) -> Iterator[Row]:
    """Rows as they are measured."""
    for peer, missing in plan.absent().items():
        console.print(f"{peer} takes no part: {', '.join(missing)} not installed ({INSTALL_HINT})", markup=False)
    for suite in plan.suites:
        cases = plan.cases(suite)
        if not cases:
            console.print(f"{suite}: {SUITES[suite].when_empty}")
        for number, case in enumerate(cases, 1):
            yield from _run_case(plan, suite, case, f"{suite} {number}/{len(cases)}", machine, console)


def _run_case(plan: Plan, suite: str, case: Case, place: str, machine: Machine, console: Console) -> Iterator[Row]:
    with TemporaryDirectory(prefix="benchmarks-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        start = time.monotonic()
        stored, traffic = store(case, folder), None
        if suite == ABLATIONS:
            stored, traffic = ablate(stored, folder)
        for threads in plan.threads_of(suite):
            measured = _race(plan, suite, stored, threads, folder)
            peak = machine["peak_gflops"].get(str(threads))
            flops = 0.0 if suite == COMPILE else stored.flops
            rows = make_rows(suite, case.name, threads, measured, flops, peak)
            if traffic is not None:
                rows = with_ablations(rows, measured, traffic)
            found = outcome(rows) if traffic is None else ablation_outcome(rows)
            took_s, start = time.monotonic() - start, time.monotonic()
            console.print(f"{place} {case.name}, {threads} threads: {found} [dim]({took_s:.0f} s)", highlight=False)
            yield from rows


def _race(plan: Plan, suite: str, stored: StoredCase, threads: int, folder: Path) -> list[Measured]:
    if suite == COMPILE:
        pace = QUICK_COMPILE_PACE if plan.is_quick else CompilePace()
        return race_to_compile(stored, plan.contestants(suite), threads, pace, Surroundings(folder, plan.pythons))
    around = Surroundings(folder, plan.pythons, cache=str(folder / "cache"))
    contestants = stored.contestants(plan.contestants(suite))
    return race(stored, contestants, threads, QUICK_PACE if plan.is_quick else Pace(), around)


def outcome(rows: Sequence[Row]) -> str:
    """foretell's time, and the ratio to the best peer."""
    ours = next(row for row in rows if row.contestant == OURS)
    best = min(
        (row for row in rows if row.contestant != OURS and row.median_ms is not None),
        key=lambda row: row.median_ms or 0.0,
        default=None,
    )
    if ours.median_ms is None:
        return f"foretell failed: {ours.error}"
    against = "" if best is None else f", {ratio_text(ours)} against {best.contestant}'s {best.median_ms:.3g} ms"
    return f"{ours.median_ms:.3g} ms{against}"


def ablation_outcome(rows: Sequence[Row]) -> str:
    """How many times as long each variant takes."""
    found = {row.contestant: row for row in rows}
    times = [f"{each.title} {slowdown_text(found.get(each.contestant))}" for each in VARIANTS]
    return escape(", ".join([number_text(found[OURS].median_ms) + " ms", *times]))
