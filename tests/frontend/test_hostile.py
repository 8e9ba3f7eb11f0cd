"""Models made to do harm are refused by the error that is published for it, in no time and without memory."""

from __future__ import annotations

import sys

import pytest

from foretell.support import errors
from foretell.support.errors import ForetellError, InvalidModel, LimitExceeded, UnsupportedModel
from tests.frontend.hostile_models import CASES
from tests.frontend.hostile_process import Outcome, run_hostile

BATCHES = 8
MAX_SECONDS, MAX_GROWTH_BYTES = 1.0, 200 << 20
ATTEMPTS = 3
"""Who shares a core with others takes longer, by its own clock too: a model that takes too long is read again."""


def _fault(outcome: Outcome) -> str | None:
    """What is wrong with an outcome, if anything."""
    expected = CASES[outcome.case][1]
    for _ in range(ATTEMPTS - 1):
        if outcome.result != expected or outcome.seconds <= MAX_SECONDS:
            break
        (outcome,) = run_hostile("named", [outcome.case])
    if outcome.result != expected:
        return f"{outcome.case}: {outcome.result}, where {expected} was expected"
    if outcome.seconds > MAX_SECONDS or outcome.growth_bytes > MAX_GROWTH_BYTES:
        return f"{outcome.case}: took {outcome.seconds:.2f} s and {outcome.growth_bytes >> 20} MiB"
    return None


@pytest.mark.skipif(sys.platform == "win32", reason="memory is measured as Unix does")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_hostile_models_are_refused_quickly(batch: int) -> None:
    outcomes = list(run_hostile("named", list(CASES)[batch::BATCHES]))
    assert [outcome.case for outcome in outcomes] == list(CASES)[batch::BATCHES]
    assert [fault for fault in map(_fault, outcomes) if fault] == []


def test_every_error_of_the_front_end_is_provoked() -> None:
    """Each published limit and each rule has a case here; the roots of the tree are for code to catch, not to raise."""
    kinds = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ForetellError)}
    wanted = {kind for kind in kinds if issubclass(kind, (LimitExceeded, InvalidModel, UnsupportedModel))}
    wanted -= {LimitExceeded, UnsupportedModel, errors.NotNative}
    assert {kind.__name__ for kind in wanted} <= {error for _, error in CASES.values()}
