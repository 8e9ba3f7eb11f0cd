"""`python -m benchmarks`: race, print the table, store the results, compare them with earlier ones."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

from benchmarks import foretelling, tuning
from benchmarks.baseline import find_regressions
from benchmarks.command_line import FORETELL, PAGE, TUNING, make_page_parser, make_parser
from benchmarks.machine import describe_commit, describe_machine, summary
from benchmarks.page import write_page
from benchmarks.print_results import print_results
from benchmarks.results import Results, read_results, write_results
from benchmarks.run_suites import Plan, run_suites
from benchmarks.statistics import Row
from foretell.target.detect_host import usable_cpus

NARROWEST = 150
"""Columns that the table needs: what is not a terminal has 80 by default."""


def main(arguments: Sequence[str]) -> int:
    console = Console()
    console = console if console.is_terminal else Console(width=max(NARROWEST, console.width))
    if arguments[:1] == [PAGE]:
        write_page(make_page_parser().parse_args(arguments[1:]).results)
        return 0
    if arguments[:1] == [FORETELL]:
        return foretelling.main(arguments[1:])
    if arguments[:1] == [TUNING]:
        return tuning.main(arguments[1:])
    parser = make_parser()
    options = parser.parse_args(arguments)
    if max(options.threads) > len(usable_cpus()):
        parser.error(f"argument --threads: there are {len(usable_cpus())} CPUs for {max(options.threads)} threads")
    plan = Plan(
        tuple(options.suites), options.only, options.threads, options.peers, options.quick, dict(options.python)
    )
    baseline = None if options.baseline is None else read_results(options.baseline)
    results = measure(plan, console)
    print_results(results, console)
    if options.json is not None:
        write_results(options.json, results)
    return 0 if baseline is None else judge(baseline, results, options.fail_if, console)


def measure(plan: Plan, console: Console) -> Results:
    """All rows, or those that there are when we are told to stop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the contestants must not outlive us
    machine = describe_machine(plan.threads)
    console.print(summary(machine), highlight=False)
    console.print(f"about {max(1, round(plan.estimate_s() / 60))} minutes\n", highlight=False)
    rows: list[Row] = []
    try:
        for row in run_suites(plan, machine, console):
            rows.append(row)
    except KeyboardInterrupt:
        console.print("\ninterrupted: this is what was measured so far")
    return Results(machine, describe_commit(), datetime.now(UTC).strftime("%Y-%m-%d"), tuple(rows))


def judge(before: Results, after: Results, tolerance: float, console: Console) -> int:
    """The exit code: 1 if foretell has become slower."""
    found = find_regressions(before.rows, after.rows, tolerance)
    for regression in found:
        console.print(str(regression), highlight=False)
    console.print(f"{len(found)} regressions of more than {tolerance:.0%} since {before.commit}", highlight=False)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
