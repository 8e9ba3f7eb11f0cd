"""ONNX's own node tests through compiled code alone: nothing on the reference, and nothing wrong."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest
from onnx.backend.test.case.test_case import TestCase

from docs.generate_operators import load_cases, read_expected_failures, try_native_failure

SHARDS = 8
"""So that pytest-xdist spreads a run over cores."""
SAMPLED = 6
"""One case out of so many is run by default."""
MIN_NATIVE_SHARE = 1500 / 1884


def native_share(cases: Sequence[TestCase]) -> float:
    """The share of cases that compiled code passes, having checked that it gets none of the others wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {case.name: try_native_failure(case) for case in cases}
    expected = read_expected_failures()
    assert {name: reason for name, reason in found.items() if reason and name not in expected} == {}
    return sum(reason == "" for reason in found.values()) / len(cases)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_sample(shard: int) -> None:
    cases = list(load_cases().values())[::SAMPLED][shard::SHARDS]
    assert native_share(cases) >= 0.6


@pytest.mark.slow
def test_all_cases() -> None:
    assert native_share(list(load_cases().values())) >= MIN_NATIVE_SHARE
