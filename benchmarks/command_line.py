"""What may be written after `python -m benchmarks`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.baseline import parse_percentage
from benchmarks.contestants import CONTESTANTS, OURS
from benchmarks.suites import SUITES

PAGE = "page"
"""In place of a suite: write the page from stored results."""
PYTHON = "run a peer in an environment of its own, by that environment's interpreter"
FORETELL = "foretell"
"""In place of a suite: judge predictions."""
TUNING = "tuning"
"""In place of a suite: compare choosing with measuring for as long."""
FAIL_IF = (
    "exit code 1 if a ratio of foretell is lower than the baseline's by more than this (5%% by default) and their "
    "intervals do not overlap"
)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=_description(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    peers = ", ".join(name for name in CONTESTANTS if name != OURS)
    add("suites", nargs="+", choices=SUITES, metavar="SUITE", help="one or more")
    add("--only", type=_names, default=(), metavar="NAME,...", help="the cases whose names contain one of these")
    add("--threads", type=_counts, default=(1, 2), metavar="N,...", help="1,2 by default")
    add("--peers", type=_peers, metavar="NAME,...", help=f"some of {peers}; the first three by default")
    add("--python", type=_interpreter, action="append", default=[], metavar="PEER=PYTHON", help=PYTHON)
    add("--quick", action="store_true", help="few cases and rounds: about three minutes for ops and models")
    add("--json", type=Path, metavar="FILE", help="store the results")
    add("--baseline", type=Path, metavar="FILE", help="compare with stored results")
    add("--fail-if", type=_percentage, default=0.05, metavar="PERCENT", help=FAIL_IF)
    return parser


def make_page_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {PAGE}", description="Write docs/benchmarks.md and its plots."
    )
    parser.add_argument(
        "results", nargs="*", type=Path, metavar="FILE", help="result files; docs/benchmarks/*.json by default"
    )
    return parser


def _description() -> str:
    suites = "\n".join(f"  {name:9}{suite.about}" for name, suite in SUITES.items())
    return (
        f"Race foretell against the engines that users would pick instead.\n\nsuites:\n{suites}\n\n"
        f"{FORETELL} instead of suites compares predicted with measured times of schedules ({FORETELL} --help).\n"
        f"{TUNING} instead of suites compares the choice without measuring with tuning ({TUNING} --help).\n"
        f"{PAGE} [FILE ...] instead of suites writes docs/benchmarks.md from stored results."
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(int(word) for word in _names(text))
    if not counts or min(counts) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers of threads such as 1,2, got {text}")
    return counts


def _peers(text: str) -> tuple[str, ...]:
    for name in _names(text):
        _check_peer(name)
    return _names(text)


def _interpreter(text: str) -> tuple[str, str]:
    peer, _, python = text.partition("=")
    _check_peer(peer)
    return peer, python


def _percentage(text: str) -> float:
    try:
        return parse_percentage(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a percentage such as 5%, got {text}") from error


def _check_peer(name: str) -> None:
    if name not in CONTESTANTS or name == OURS:
        known = ", ".join(peer for peer in CONTESTANTS if peer != OURS)
        raise argparse.ArgumentTypeError(f"there is no peer {name}; there are {known}")
