"""The suites by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.ablations import ABLATIONS, ablation_cases
from benchmarks.cases import Case
from benchmarks.contestants import DEFAULT_PEERS, REFERENCE
from benchmarks.memory_operators import memory_cases
from benchmarks.models.model_cases import model_cases
from benchmarks.operators import operator_cases


@dataclass(frozen=True, slots=True)
class Suite:
    about: str
    cases: Callable[[], list[Case]]
    seconds: float
    """About what a case takes with one number of threads and these peers, on two cores."""
    quick_seconds: float
    peers: tuple[str, ...] = DEFAULT_PEERS
    """Who takes part unless the command line says so."""
    when_empty: str = "nothing of that name"

    def estimate_s(self, is_quick: bool) -> float:
        return self.quick_seconds if is_quick else self.seconds


COMPILE = "compile"
SUITES = {
    "ops": Suite("operators and small blocks, in the shapes that models have", operator_cases, 9, 3),
    "models": Suite("whole models at batch one", model_cases, 35, 8),
    "memory": Suite("operators that move memory, on 1, 8 and 32 MB", memory_cases, 5, 2.5, (REFERENCE,)),
    "dynamic": Suite("shapes that change from call to call", list, 0, 0, when_empty="filled by a later version"),
    COMPILE: Suite("time and memory to compile a model in a fresh process", model_cases, 25, 10),
    ABLATIONS: Suite("models by a compiler without one of its parts", ablation_cases, 30, 20, (REFERENCE,)),
}
