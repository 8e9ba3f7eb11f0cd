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
    repeats: int = 2
    limit_s: float = 600.0


QUICK_COMPILE_PACE = CompilePace(repeats=1, limit_s=60.0)


def race_to_compile(
    case: StoredCase, contestants: Sequence[str], threads: int, pace: CompilePace, around: Surroundings
) -> list[Measured]:
    """The contestants one after the other, and that a few times."""
    results = {name: Measured(name) for name in contestants}
    for number in range(pace.repeats):
        fresh = replace(around, folder=around.folder / f"repeat-{number}")
        for name, result in results.items():
            if result.error is None:
                results[name] = _add_repeat(result, case, threads, pace, fresh)
    return list(results.values())


def _add_repeat(result: Measured, case: StoredCase, threads: int, pace: CompilePace, around: Surroundings) -> Measured:
    process = ContestantProcess(result.contestant, case, threads, around, save=True)
    try:
        about = process.wait_until_ready(pace.limit_s)
    except Failed as failure:
        return Measured(result.contestant, error=str(failure))
    finally:
        process.close()
    heats_ms = (*result.heats_ms, (about["prepare_ms"],))
    min_ms = min(about["prepare_ms"], result.min_ms or float("inf"))
    details = {name: about[name] for name in DETAILS if name in about}
    smallest = {name: min(number, result.details.get(name, number)) for name, number in details.items()}
    return replace(result, version=about["version"], heats_ms=heats_ms, min_ms=min_ms, details=smallest)
