"""When foretell has become slower."""

from __future__ import annotations

import pytest

from benchmarks.baseline import find_regressions, parse_percentage


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ((1.0, 0.01), (0.9, 0.01), 1),
        ((1.0, 0.01), (0.96, 0.01), 0),  # less than 5 %
        ((1.0, 0.1), (0.9, 0.1), 0),  # the intervals overlap
        ((1.0, 0.01), (1.2, 0.01), 0),  # faster
        ((None, 0.0), (0.5, 0.01), 0),  # nothing to compare with
    ],
)
def test_what_is_a_regression(row, before, after, count) -> None:
    assert len(find_regressions([row(*before)], [row(*after)], 0.05)) == count


def test_one_that_fails_now_is_a_regression(row) -> None:
    (found,) = find_regressions([row(1.0)], [row(None, median_ms=None, error="crashed")], 0.05)
    assert str(found) == "ops conv, 1 threads: crashed"


def test_only_the_same_race_and_only_foretell_is_compared(row) -> None:
    slower = [row(0.5, name="other"), row(0.5, threads=2), row(0.5, suite="models"), row(0.5, contestant="openvino")]
    assert not find_regressions([row(1.0), row(1.0, contestant="openvino")], slower, 0.05)


def test_a_regression_shows_both_ratios(row) -> None:
    (found,) = find_regressions([row(1.0)], [row(0.5)], 0.05)
    assert str(found) == "ops conv, 1 threads: ratio 1.00 (0.98-1.02) -> 0.50 (0.48-0.52)"


def test_percentages() -> None:
    assert parse_percentage("5%") == 0.05
    for text in ("5", "x%", "101%", "-1%"):
        with pytest.raises(ValueError):
            parse_percentage(text)
