"""Mutated models: whatever is done to a valid file, only a ForetellError may come out."""

from __future__ import annotations

import pytest

from tests.frontend.hostile_process import run_hostile
from tests.frontend.mutate_model import function_model, load_seeds, make_case, nested_model, shape_model

QUICK_CASES, SLOW_CASES = 1200, 5000


def _check(kind: str, first: int, count: int) -> None:
    outcomes = list(run_hostile(kind, [str(number) for number in range(first, first + count)]))
    assert len(outcomes) == count
    assert [f"{outcome.detail}: {outcome.result}" for outcome in outcomes if outcome.result.startswith("!")] == []
    assert {outcome.result for outcome in outcomes} >= {"ok", "InvalidNode", "UnreadableModel"}


@pytest.mark.parametrize("part", range(2))
def test_only_foretell_errors_come_out(part: int) -> None:
    _check("quick", part * QUICK_CASES, QUICK_CASES)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_only_foretell_errors_come_out_of_many(part: int) -> None:
    _check("all", 1_000_000 + part * SLOW_CASES, SLOW_CASES)


def test_cases_can_be_made_again() -> None:
    models = [nested_model(), function_model(), shape_model()]
    seeds = [seed for seed in load_seeds() if seed.name in {model.graph.name for model in models}]
    assert len(seeds) == len(models)
    assert [make_case(number, seeds) for number in range(50)] == [make_case(number, seeds) for number in range(50)]
