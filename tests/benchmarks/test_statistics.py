"""Medians, ratios, intervals and errors."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.statistics import Measured, best_peer, make_rows, ratio_of_medians, relative_error


@pytest.mark.parametrize(("heats", "process_noise"), [(1, 0.01), (3, 0.01), (3, 0.05)])
def test_the_interval_covers_the_truth(heats: int, process_noise: float) -> None:
    """Noise that hits a round's neighbours alike, noise of turns, and luck that a process keeps: the truth is two."""
    random = np.random.default_rng(0)

    def measure(time: float, disturbances: np.ndarray) -> list[list[float]]:
        luck = 1 + process_noise * random.standard_normal((heats, 1))
        return (time * luck * disturbances * (1 + 0.03 * random.standard_normal((heats, 7)))).tolist()

    covered = 0
    for _ in range(100):
        disturbances = 1 + 0.3 * random.random((heats, 7))
        _, (low, high) = ratio_of_medians(measure(2.0, disturbances), measure(1.0, disturbances))
        covered += low <= 2 <= high
    assert covered >= 90


def test_the_interval_is_no_wider_than_need_be() -> None:
    steady = [[1.0] * 5] * 3
    ratio, (low, high) = ratio_of_medians(steady, steady)
    assert ratio == 1 and 0.97 < low < 1 < high < 1.03


def test_the_ratio_is_of_medians() -> None:
    ratio, (low, high) = ratio_of_medians([[2.0, 2.0, 50.0]], [[1.0, 1.0, 1.0]])
    assert ratio == 2 and low < 2 < high


def test_a_contestant_with_fewer_turns_is_compared_over_those() -> None:
    """The noise of turns is that of rounds that both took part in."""
    _, few = ratio_of_medians([[1.0, 1.0, 9.0, 9.0, 1.0]], [[2.0, 2.0]])
    _, all_of_them = ratio_of_medians([[1.0, 1.0, 9.0, 9.0, 1.0]], [[2.0] * 5])
    assert all_of_them[1] > 2 * few[1]


def test_rows() -> None:
    ours = Measured("foretell", ((2.0, 2.0, 2.0),), 1.9)
    measured = [ours, Measured("slow", ((4.0, 4.0, 4.0),), 4.0), Measured("quick", ((1.0, 1.0, 1.0),), 0.9)]
    rows = make_rows("ops", "conv", 2, measured, flops=1e8, peak_gflops=100.0)
    assert [row.ratio_to_best_peer for row in rows] == [0.5, 0.25, 1.0]
    assert [row.percent_of_peak for row in rows] == [50.0, 25.0, 100.0]
    assert (rows[0].median_ms, rows[0].min_ms, rows[0].rounds, rows[0].threads) == (2.0, 1.9, 3, 2)


def test_a_race_without_peers_has_no_ratio() -> None:
    (row,) = make_rows("ops", "conv", 1, [Measured("foretell", ((2.0,),), 2.0)], 0.0, None)
    assert row.ratio_to_best_peer is row.interval is row.percent_of_peak is None


def test_the_best_peer_is_not_us_and_has_not_failed() -> None:
    measured = [Measured("foretell", ((1.0,),)), Measured("broken", error="crashed"), Measured("there", ((3.0,),))]
    found = best_peer(measured)
    assert found is not None and found.contestant == "there"
    assert best_peer(measured[:2]) is None


def test_ties_disturbances_and_wrong_outputs_are_known(row) -> None:
    assert row(1.01, half_width=0.02).is_tie
    assert not row(1.05, half_width=0.02).is_tie
    assert not row(None).is_tie
    assert row(details={"disturbed_turns": 4}).is_disturbed
    assert not row(details={"disturbed_turns": 3}).is_disturbed
    assert row(max_relative_error=2e-4).is_wrong
    assert row(max_relative_error=float("nan")).is_wrong
    assert not row(max_relative_error=None).is_wrong


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([np.array([1.0, 2.0])], [np.array([1.0, 2.0])], 0.0),
        ([np.array([1.0, 2.5])], [np.array([1.0, -10.0])], 1.25),
        ([np.array([[1.0]]), np.array([3.0])], [np.array([1.0]), np.array([2.0])], 0.5),
        ([np.zeros(3)], [np.zeros(3)], 0.0),
        ([np.ones(3)], [np.zeros(3)], 1.0),
        ([np.zeros(0)], [np.zeros(0)], 0.0),
        ([np.zeros(2)], [np.zeros(3)], float("inf")),
        ([], [np.zeros(3)], float("inf")),
        ([np.array([np.nan])], [np.ones(1)], float("inf")),
    ],
)
def test_relative_error(found, expected, error) -> None:
    assert relative_error(found, expected) == error
