"""What the figures mean, on numbers that were made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.foretold import Workload, read_workloads, summaries, summary, write_workloads


def workload(
    predicted: tuple[float, ...],
    measured: tuple[float, ...],
    is_unseen: bool = False,
    again: dict[int, float] | None = None,
) -> Workload:
    counts, caution = {"tiles": predicted}, (1.0,) * len(predicted)
    return Workload("conv", "k", is_unseen, 500, predicted, measured, counts, caution, 1.5, again or {})


def test_a_perfect_prediction() -> None:
    found = workload((1.0, 2.0, 3.0), (1.0, 2.0, 3.0))
    assert (found.regret, found.pairs_in_order, found.error) == (1.0, 1.0, 0.0)
    assert found.rank_correlation == pytest.approx(1.0)


def test_what_was_measured_again_counts() -> None:
    """The third one was lucky the first time."""
    found = workload((1.0, 2.0, 4.0), (1.5, 1.4, 1.0), again={0: 1.5, 1: 1.4, 2: 1.6})
    assert found.regret == pytest.approx(1.5 / 1.4)


def test_the_first_is_the_one_that_is_chosen() -> None:
    found = workload((1.0, 2.0, 4.0), (1.5, 1.0, 5.0))
    assert found.regret == 1.5
    assert found.pairs_in_order == pytest.approx(2 / 3)
    assert found.error == pytest.approx(1 / 3)


def test_pairs_that_are_too_close_do_not_count() -> None:
    assert workload((1.0, 2.0, 3.0), (1.01, 1.0, 2.0)).pairs_in_order == 1.0


def test_intervals_reach_as_far_down_as_up() -> None:
    assert workload((1.0, 1.0, 1.0, 1.0), (1.49, 1.51, 0.67, 0.66)).covered == 0.5


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    found = workload((1.0, 2.0), (1.0, 2.0), is_unseen=True)
    write_workloads(file, [found])
    assert list(read_workloads(file)) == [found]
    assert "regret 1.000 in the median" in summary([found])


def test_seen_and_unseen_are_told_apart() -> None:
    seen, unseen = workload((1.0, 2.0), (1.0, 2.0)), workload((1.0, 2.0), (1.0, 2.0), is_unseen=True)
    assert [line.split(":")[0] for line in summaries([unseen, seen])] == ["seen", "unseen"]
    assert len(list(summaries([seen]))) == 1


@pytest.mark.slow
def test_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    arguments = ["--only", "pointwise_192_32_28", "--workloads", "1", "--schedules", "3", "--json", str(file)]
    assert main(["foretell", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "seen: 1 nests" in printed and "candidates a second" in printed
    (found,) = read_workloads(file)
    assert found.regret >= 1.0 and len(found.measured_s) >= 2
    assert all(len(amounts) == len(found.measured_s) for amounts in found.counts.values())
