from __future__ import annotations

import numpy as np
import pytest

from foretell.report.compare import compare

X = np.random.default_rng(0).standard_normal((5, 8), np.float32)


def test_equal_arrays_need_no_tolerance() -> None:
    found = compare("y", X, X, "evaluator")
    assert found.ok and (found.max_abs, found.max_rel, found.needed, found.tolerance) == (0, 0, 0, 1e-4)


def test_errors_count_in_parts_of_the_scale() -> None:
    expected = np.array([1000.0, 0.001, 0.0], np.float32)
    found = compare("y", expected + np.float32(0.01), expected, "evaluator")
    assert found.ok and found.needed == pytest.approx(1e-5, rel=0.1) and found.max_rel == pytest.approx(10, rel=0.1)
    assert not compare("y", expected + np.float32(0.01), expected, "evaluator", tolerance=1e-6).ok


def test_integers_must_be_equal() -> None:
    expected = np.arange(4)
    assert compare("y", expected, expected, "evaluator").ok
    assert not compare("y", expected + 1, expected, "evaluator").ok


def test_nan_and_infinity_must_be_in_place() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert compare("y", expected, expected, "evaluator").ok
    for value in (0, np.nan, -np.inf):
        wrong = np.where(np.isposinf(expected), np.float32(value), expected)
        assert compare("y", wrong, expected, "evaluator").problem
    assert not compare("y", np.full(4, np.nan, np.float32), expected, "evaluator").ok


def test_shape_and_type_are_part_of_the_result() -> None:
    assert compare("y", X[:1], X, "evaluator").problem == "float32[1, 8] where float32[5, 8] is expected"
    assert not compare("y", X.astype(np.float64), X, "evaluator").ok
    assert compare("y", X[:0], X[:0], "evaluator").ok
