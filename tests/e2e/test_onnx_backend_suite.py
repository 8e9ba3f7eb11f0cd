"""ONNX's own node tests, all of them, through the backend: what fails is listed, and the list is tight."""

from __future__ import annotations

import warnings

import onnx
import pytest
from onnx.backend.test import BackendTest

from docs.generate_operators import expected_version, load_cases, read_expected_failures, run_case
from foretell.integrations import onnx_backend

SHARDS = 8
"""So that pytest-xdist spreads the suite over cores."""
MAX_FAILING_SHARE = 0.07
"""What may fail of a suite that the list is not for: 1,750 of 1,884 cases must pass."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_node_suite(shard: int) -> None:
    cases = list(load_cases().values())[shard::SHARDS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed = {outcome.name: outcome.reason for outcome in map(run_case, cases) if not outcome.passed}
    if onnx.__version__ != expected_version():
        assert len(failed) <= MAX_FAILING_SHARE * len(cases), failed
        return
    expected = read_expected_failures().keys() & {case.name for case in cases}
    assert {name: reason for name, reason in failed.items() if name not in expected} == {}
    assert expected - failed.keys() == set(), "these pass now: run docs/generate_operators.py --expected-failures"


def test_the_runner_of_onnx_takes_the_backend() -> None:
    """The way backends are held to the suite elsewhere, on a few cases."""
    load_cases()
    suite = BackendTest(onnx_backend.ForetellBackend, __name__)
    suite.include("test_(relu|softmax_axis_0|gemm_default_no_bias|lstm_defaults)_cpu")
    cases = suite.test_cases["OnnxBackendNodeModelTest"]
    names = [name for name in dir(cases) if name.endswith("_cpu") and not _is_skipped(getattr(cases, name))]
    assert len(names) == 4
    for name in names:
        getattr(cases(name), name)()


def _is_skipped(test: object) -> bool:
    return bool(getattr(test, "__unittest_skip__", False))
