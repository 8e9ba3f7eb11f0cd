"""What the figures of choosing and tuning mean, on numbers that were made up; and what is delivered when."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import tuning
from benchmarks.__main__ import main
from benchmarks.foretelling import products, spread
from benchmarks.fresh_cache import fresh_cache
from benchmarks.line_chart import Line, line_chart
from benchmarks.page import write_page
from benchmarks.results import Results, write_results
from benchmarks.time_to_choose import seconds_to_choose
from benchmarks.tuned import Delivery, Tuned, TuningResults, line, summary, try_read_tuning, write_tuning
from benchmarks.tuning import Search, plain_schedule, search
from benchmarks.tuning_section import plot
from foretell.graph.build import Builder
from foretell.ir.dtypes import F32
from foretell.ir.tensor_expr import TensorType
from foretell.link_program import lower_program
from foretell.schedule.steps import Schedule, Unroll
from foretell.search.schedule_contraction import distinct_schedules, rank_plans
from foretell.search.schedule_nests import Nest
from foretell.support.cache_folder import VARIABLE
from foretell.target.hardware_spec import with_cores
from foretell.target.resolve import Target, resolve_target
from foretell.tune.measure_batch import Batch

TARGET = Target(with_cores(resolve_target("native").spec, 1))
TUNED = Tuned(
    "matmul", "k1", "f32[8] -> f32[8]", False, 500, 60.0, plain_s=8.0, random_s=4.0, chosen=Delivery(0.2, 1.0),
    guided=(Delivery(0.2, 1.0), Delivery(9.0, 0.8)), guided_tried=70,
    blind=(Delivery(2.0, 1.6), Delivery(20.0, 1.01)), blind_tried=80,
)  # fmt: skip
"""Measuring blindly is as good after 20 s; `foretell tune` finds what nobody else does after 9 s."""


@pytest.fixture(scope="module")
def nest() -> Nest:
    builder = Builder("product")
    left, right = builder.input("left", TensorType(F32, (24, 32))), builder.input("right", TensorType(F32, (32, 40)))
    graph = builder.finish([builder.op("MatMul", left, right)], ["product"])
    ((found, _),) = lower_program(graph, TARGET).nests
    return found


def test_the_best_code_is_anybodys() -> None:
    assert TUNED.best_s == 0.8
    assert TUNED.chosen_quality == 0.8


def test_who_has_nothing_yet_delivers_plain_code() -> None:
    assert TUNED.quality(TUNED.blind, 1.9) == pytest.approx(0.1)
    assert TUNED.quality(TUNED.blind, 2.0) == pytest.approx(0.5)
    assert TUNED.quality(TUNED.guided, 60.0) == 1.0


def test_ratios_at_equal_time() -> None:
    assert TUNED.ratio == pytest.approx(8.0)
    assert TUNED.random_ratio == 4.0
    assert replace(TUNED, chosen=Delivery(3.0, 1.0)).ratio == pytest.approx(1.6)


def test_nearly_as_fast_is_equal() -> None:
    assert TUNED.equal_s == 20.0
    assert TUNED.share == pytest.approx(0.01)


def test_what_never_comes_takes_more_than_the_budget() -> None:
    never = replace(TUNED, blind=TUNED.blind[:1])
    assert never.equal_s is None
    assert never.share == pytest.approx(0.2 / 60)
    assert ">60 s (<0.3%)" in line(never)


def test_plain_code_may_be_equal_at_once() -> None:
    at_once = replace(TUNED, plain_s=1.0)
    assert (at_once.equal_s, at_once.share) == (0.0, inf)
    assert "0.0 s (-)" in line(at_once)


def test_figures_are_medians() -> None:
    never = replace(TUNED, blind=(), is_unseen=True)
    text = summary([TUNED, never, never])
    assert "3 nests, 2 of them unseen" in text
    assert "after more than 60 s (2 of 3 nests not in its time)" in text
    assert "8.00 times as fast as what blind measuring has, and 4.00 times as fast as a random schedule" in text
    assert "after 20.0 s (1 of 3 nests" in summary([TUNED, TUNED, never])


def test_what_was_measured_is_kept(tmp_path: Path, results: Results) -> None:
    found = TuningResults(results.machine, "abc123", "2026-11-16", (TUNED, replace(TUNED, name="*conv")))
    write_tuning(tmp_path / "deep/tuning.json", found)
    assert try_read_tuning(tmp_path / "deep/tuning.json") == found
    write_results(tmp_path / "ops.json", results)
    assert try_read_tuning(tmp_path / "ops.json") is None


def test_the_page_has_a_section_beside_those_of_races(tmp_path: Path, results: Results) -> None:
    folder = tmp_path / "benchmarks"
    write_results(folder / "ops.json", results)
    write_tuning(folder / "tuning.json", TuningResults(results.machine, "abc123", "2026-11-16", (TUNED,)))
    write_page([], tmp_path / "benchmarks.md", folder)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "## ops:" in text and "## tuning:" in text and "![tuning](benchmarks/tuning.svg)" in text
    row = "| matmul | `f32[8] -> f32[8]` | 500 | 0.20 | 80% | 10% | 8.00 | 4.00 | 20.0 | 1.0% | 79% | 100% |"
    assert row in text
    assert (folder / "tuning.svg").exists() and (folder / "ops-ratio.svg").exists()


def test_the_plot_has_three_lines_and_two_bands() -> None:
    root = ElementTree.fromstring(plot([TUNED, replace(TUNED, plain_s=4.0)]))
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 3
    assert len(root.findall("{http://www.w3.org/2000/svg}polygon")) == 2


def test_seconds_are_drawn_by_their_powers() -> None:
    root = ElementTree.fromstring(line_chart("a < b", "s", [0.1, 1.0, 10.0], [Line("one", (0.0, 0.5, 1.0))]))
    (polyline,) = root.findall("{http://www.w3.org/2000/svg}polyline")
    points = np.array([point.split(",") for point in polyline.get("points", "").split()], float)
    assert np.allclose(np.diff(points, axis=0), np.diff(points, axis=0)[0])
    texts = [text.text for text in root.findall("{http://www.w3.org/2000/svg}text")]
    assert {"0.1", "1", "10", "0%", "100%", "a < b"} <= set(texts)


def test_nests_are_spread_over_seen_and_unseen(nest: Nest) -> None:
    every = [(str(number), nest, number % 2 == 1) for number in range(20)]
    assert [name for name, _, _ in spread(every, 4)] == ["0", "10", "1", "11"]
    assert [name for name, _, _ in spread(every[::2], 2)] == ["0", "10"]
    assert [name for name, _, _ in spread(every[1::2], 2)] == ["1", "11"]
    assert len(spread(every[:3], 12)) == 3


def test_plain_code_is_a_schedule_of_one_row_and_one_vector(nest: Nest) -> None:
    ranked = rank_plans(nest.kernel, TARGET.spec, nest.constants)
    assert ranked is not None
    schedules = distinct_schedules(ranked, nest.constants)
    plan = ranked.plans[schedules[plain_schedule(ranked, nest.constants)]]
    assert plan.shape.rows == 1 and plan.shape.width <= ranked.problem.lanes
    assert (plan.block_loop, plan.sum_block, plan.copies) == (None, 0, False)


def named(name: str) -> Schedule:
    return (Unroll(name),)


def measuring(ratios: dict[str, float], clock: list[float]) -> Callable[[Batch], list[list[float]]]:
    """Batches that take a second each; who has no ratio fails."""

    def measured(batch: Batch) -> list[list[float]]:
        clock[0] += 1.0
        names = [step.loop for schedule in batch.schedules for step in schedule if isinstance(step, Unroll)]
        return [[ratios[name]] * 3 if name in ratios else [] for name in names]

    return measured


def test_searching_notes_when_something_better_is_found(nest: Nest, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, names = [100.0], [f"s{number}" for number in range(30)]
    ratios = {"shared": 2.0, "s1": 6.0, "s2": 5.0, "s8": 7.0, "s15": 3.0, "s22": 1.0}
    monkeypatch.setattr(tuning, "measured_times", measuring(ratios, clock))
    monkeypatch.setattr(tuning, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    found = search(nest, named("shared"), list(map(named, names)), TARGET, budget_s=3.0)
    assert found.incumbents == [(1.0, named("s2")), (3.0, named("s15"))]
    assert (found.tried, found.ratios) == (21, [3.0, 2.5, 3.5, 1.5])
    assert found.deliveries({named("s15"): 0.5}) == (Delivery(3.0, 0.5),)


def test_a_guided_search_begins_with_the_choice(nest: Nest, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(tuning, "measured_times", measuring({"shared": 2.0, "s1": 3.0, "s2": 1.0}, clock))
    monkeypatch.setattr(tuning, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    begun = Search(0.25, [(0.25, named("shared"))], 0.98)
    found = search(nest, named("shared"), [named("s1"), named("s2")], TARGET, 60.0, begun)
    assert found.incumbents == [(0.25, named("shared")), (1.25, named("s2"))]


def test_all_ways_are_timed_side_by_side(nest: Nest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "time_to_choose", lambda nest, target: 0.2)
    monkeypatch.setattr(tuning, "measured_times", lambda batch: [[2.0], *([3.0] for _ in batch.schedules[1:])])
    monkeypatch.setattr(
        tuning, "time_again", lambda nest, sample, target: {each: 1.0 + n for n, each in enumerate(sample)}
    )
    found = tuning.tune("matmul", nest, False, TARGET, 60.0)
    assert found is not None
    assert found.chosen == Delivery(0.2, 1.0) and found.guided == (found.chosen,)
    assert (found.plain_s, found.random_s) == (2.0, 1.5)
    assert [delivery.takes_s for delivery in found.blind] == [2.0]


def test_what_was_delivered_is_timed_in_several_processes(nest: Nest, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = iter([[3.0, 2.0], [1.0, 9.0], [4.0], [2.0], []])

    def measured(batch: Batch) -> list[list[float]]:
        times = next(processes)
        return [times if schedule == named("a") else [] for schedule in batch.schedules]

    monkeypatch.setattr(tuning, "measured_times", measured)
    assert tuning.time_again(nest, [named("a"), named("b")], TARGET) == {named("a"): 2.0}


def test_small_nests_take_no_part(
    nest: Nest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert products(nest) == 24 * 32 * 40
    monkeypatch.setattr(tuning, "LEAST_PRODUCTS", 24 * 32 * 40 + 1)
    monkeypatch.setattr(tuning, "workloads", lambda target, only: [("small", nest, False)])
    assert tuning.main([]) == 0 and "there is nothing to choose" in capsys.readouterr().out


def test_a_fresh_cache_is_there_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "before")
    with fresh_cache(TARGET):
        files = [path for path in Path(os.environ[VARIABLE]).rglob("*") if path.is_file()]
        assert len(files) == 1  # the thread pool's code
    assert os.environ[VARIABLE] == "before"
    monkeypatch.delenv(VARIABLE)
    with fresh_cache(TARGET):
        assert VARIABLE in os.environ
    assert VARIABLE not in os.environ


def test_choosing_ends_in_machine_code(nest: Nest) -> None:
    assert seconds_to_choose(nest, TARGET) > 0


@pytest.mark.slow
def test_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tuning.json"
    arguments = ["--only", "pointwise_192_32_28", "--workloads", "1", "--budget", "2", "--json", str(file)]
    assert main(["tuning", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "1 nests, 0 of them unseen" in printed
    results = try_read_tuning(file)
    assert results is not None
    (found,) = results.tuned
    assert found.blind and found.guided and 0 < found.chosen_quality <= 1
    assert main(["tuning", *arguments]) == 0
    assert capsys.readouterr().out == printed
