"""The suite `compile`: how long a model takes to become ready in a fresh process, with nothing in any cache.

A row's milliseconds are those of preparing the model: for foretell, `foretell.compile`. Its details are the
milliseconds of the first inference, the megabytes the process needed at most, and those of the saved model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.cases import StoredCase
from benchmarks.contestant_process import ContestantProcess, Failed, Surroundings
from benchmarks.statistics import Measured

DETAILS = ("first_ms", "peak_mb", "saved_mb")


@dataclass(frozen=True, slots=True)
class CompilePace:
    repeats: int = 3
    limit_s: float = 600.0


QUICK_COMPILE_PACE = CompilePace(repeats=1, limit_s=60.0)


def race_to_compile(
    case: StoredCase, contestants: Sequence[str], threads: int, pace: CompilePace, around: Surroundings
) -> list[Measured]:
    """The contestants one after the other, and that a few times."""
    results = {name: Measured(name) for name in contestants}
    for _ in range(pace.repeats):
        for name, result in results.items():
            if result.error is None:
                results[name] = _add_repeat(result, case, threads, pace, around)
    return list(results.values())


def _add_repeat(result: Measured, case: StoredCase, threads: int, pace: CompilePace, around: Surroundings) -> Measured:
    process = ContestantProcess(result.contestant, case, threads, around, save=True)
    try:
        about = process.wait_until_ready(pace.limit_s)
    except Failed as failure:
        return Measured(result.contestant, error=str(failure))
    finally:
        process.close()
    turns_ms = (*result.turns_ms, about["prepare_ms"])
    details = {name: about[name] for name in DETAILS if name in about}
    smallest = {name: min(number, result.details.get(name, number)) for name, number in details.items()}
    return replace(result, version=about["version"], turns_ms=turns_ms, min_ms=min(turns_ms), details=smallest)
