"""One race: all contestants of a case and a number of threads take turns, so that what disturbs one disturbs all.

One that refuses, crashes or hangs has an error for a result; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.cases import StoredCase
from benchmarks.contestant_process import ContestantProcess, Failed, Surroundings
from benchmarks.contestants import REFERENCE
from benchmarks.statistics import Measured, relative_error

SLOW_CALL_S = 0.2
"""From here on a call is its own warm-up."""
DISTURBED_CPUS = 0.25
"""A turn is disturbed if others keep more than so many of its CPUs busy; it is taken again after a pause."""
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a race takes."""

    heats: int = 2
    """Each has fresh processes: one that is lucky with its memory stays so."""
    rounds: int = 5
    """Of each heat."""
    fewest_rounds: int = 2
    warm_s: float = 0.01
    turn_s: float = 0.06
    calls: int = 2000
    contestant_s: float = 3.0
    """A contestant whose turns in a heat have taken this long takes no more of them, once it had the fewest."""
    prepare_limit_s: float = 240.0
    turn_limit_s: float = 90.0


QUICK_PACE = Pace(
    heats=1, rounds=7, fewest_rounds=5, turn_s=0.05, contestant_s=2.0, prepare_limit_s=60.0, turn_limit_s=30.0
)


class Racer:
    """A contestant's process, and what it has measured so far."""

    def __init__(self, contestant: str, process: ContestantProcess) -> None:
        self.result = Measured(contestant)
        self.process = process
        self._spent_s = 0.0
        self._call_s = 0.0
        self._repeats = 0

    def has_finished(self, pace: Pace) -> bool:
        has_enough = self._spent_s > pace.contestant_s and len(self.result.turns_ms) >= pace.fewest_rounds
        return self.result.error is not None or has_enough

    def get_ready(self, pace: Pace) -> None:
        try:
            about = self.process.wait_until_ready(pace.prepare_limit_s)
            self.result = replace(self.result, version=about["version"])
        except Failed as failure:
            self._fail(failure)

    def turn(self, pace: Pace) -> None:
        """Take a turn, and take it again while others disturb it, but not for ever."""
        try:
            times_s, foreign = self._timed_turn(pace)
            while foreign > DISTURBED_CPUS and self._repeats < pace.rounds and not self.has_finished(pace):
                self._repeats += 1
                time.sleep(PAUSE_S)
                again_s, foreign_again = self._timed_turn(pace)
                if foreign_again < foreign:
                    times_s, foreign = again_s, foreign_again
        except Failed as failure:
            self._fail(failure)
            return
        self._record(times_s, is_disturbed=foreign > DISTURBED_CPUS)

    def _timed_turn(self, pace: Pace) -> tuple[list[float], float]:
        warm_s = 0.0 if self._call_s > SLOW_CALL_S else pace.warm_s
        start = time.monotonic()
        found = self.process.turn(warm_s, pace.turn_s, pace.calls, pace.turn_limit_s)
        self._spent_s += time.monotonic() - start
        return found

    def _record(self, times_s: list[float], *, is_disturbed: bool) -> None:
        self._call_s = float(np.median(times_s))
        disturbed = self.result.details.get("disturbed_turns", 0) + is_disturbed
        self.result = replace(
            self.result,
            heats_ms=((*self.result.turns_ms, 1e3 * self._call_s),),
            min_ms=min(1e3 * min(times_s), self.result.min_ms or float("inf")),
            details={"disturbed_turns": disturbed},
        )

    def _fail(self, failure: Failed) -> None:
        """Nothing that was measured before counts."""
        self.result = Measured(self.result.contestant, version=self.result.version, error=str(failure))
        self.process.close()


def race(
    case: StoredCase, contestants: Sequence[str], threads: int, pace: Pace, around: Surroundings
) -> list[Measured]:
    """What each contestant measured, in the order given."""
    results = {name: Measured(name) for name in contestants}
    for _ in range(pace.heats):
        left = [name for name, result in results.items() if result.error is None]
        for found in _heat(case, left, threads, pace, around):
            results[found.contestant] = _merged(results[found.contestant], found)
    return list(results.values())


def _heat(
    case: StoredCase, contestants: Sequence[str], threads: int, pace: Pace, around: Surroundings
) -> list[Measured]:
    racers: list[Racer] = []
    try:
        for name in contestants:
            racers.append(Racer(name, ContestantProcess(name, case, threads, around)))
        for racer in racers:
            racer.get_ready(pace)
        for number in range(pace.rounds):
            first = number % max(1, len(racers))  # nobody always follows the same one
            for racer in (*racers[first:], *racers[:first]):
                if not racer.has_finished(pace):
                    racer.turn(pace)
    finally:
        for racer in racers:
            racer.process.close()
    return _with_errors(racers)


def _merged(before: Measured, heat: Measured) -> Measured:
    """All heats so far; after a failure nothing that was measured before counts."""
    if heat.error is not None or not before.heats_ms:
        return heat
    disturbed = before.details["disturbed_turns"] + heat.details["disturbed_turns"]
    return replace(
        heat,
        heats_ms=before.heats_ms + heat.heats_ms,
        min_ms=min(before.min_ms or float("inf"), heat.min_ms or float("inf")),
        max_relative_error=_larger(before.max_relative_error, heat.max_relative_error),
        details={"disturbed_turns": disturbed},
    )


def _larger(first: float | None, second: float | None) -> float | None:
    known = [error for error in (first, second) if error is not None]
    return max(known, default=None)


def _with_errors(racers: Sequence[Racer]) -> list[Measured]:
    """Results with their distance from the reference's outputs, where it took part."""
    results = [racer.result for racer in racers]
    outputs = {racer.result.contestant: racer.process.outputs() for racer in racers if racer.result.turns_ms}
    if REFERENCE not in outputs:
        return results
    return [
        replace(result, max_relative_error=relative_error(outputs[result.contestant], outputs[REFERENCE]))
        if result.contestant in outputs
        else result
        for result in results
    ]
