"""Every part of the compiler can be left out, and what that is worth is told in rows, tables and on the page."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from rich.console import Console

import foretell
from benchmarks.ablation_table import mean_slowdown
from benchmarks.ablations import ABLATIONS, MODELS, UNFUSED, VARIANTS, ablate, ablation_cases, with_ablations
from benchmarks.cases import Case, StoredCase, store
from benchmarks.contestant_process import Surroundings
from benchmarks.contestants import CONTESTANTS, find_contestant
from benchmarks.intermediate_traffic import Traffic, intermediate_bytes, traffic_saved
from benchmarks.network import Network
from benchmarks.page import write_page
from benchmarks.print_results import print_results
from benchmarks.race import Pace, race
from benchmarks.results import Results, write_results
from benchmarks.run_suites import Plan, ablation_outcome
from benchmarks.statistics import Measured, make_rows
from foretell.ir.dtypes import F32
from foretell.runtime.program import Program, Slot, Step
from foretell.support.parts import Part
from tests.tolerances import assert_close

PACE = Pace(heats=1, rounds=2, warm_s=0.001, turn_s=0.002, calls=2, prepare_limit_s=60.0, turn_limit_s=10.0)
UNDIVIDED, DIRECT, AS_GIVEN = VARIANTS[1:]


def images() -> Network:
    """An inverted residual, and convolutions that Winograd's filtering may make faster."""
    net = Network("images")
    x = net.conv(net.input("x", 1, 3, 56, 56), 32, 3, 2, activation="Relu")
    y = net.conv(net.conv(x, 128, 1, activation="Relu"), 128, 3, groups=128, activation="Relu")
    y = net.map("Relu", net.combine("Add", net.conv(y, 32, 1), x))
    return net.output(net.conv(net.conv(y, 64, 3, activation="Relu"), 64, 3))


def single() -> Network:
    """One product with a vector: nothing to fuse, to permute, or to compute in another way."""
    net = Network("single")
    return net.output(net.linear(net.input("x", 1, 32), 256))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredCase, Traffic]:
    folder = tmp_path_factory.mktemp("images")
    return ablate(store(Case("images", images), folder), folder)


# --- variants --------------------------------------------------------------------------------------------------


def test_results_are_the_same_without_any_part(compiled: tuple[StoredCase, Traffic]) -> None:
    case, _ = compiled
    assert {"foretell", UNFUSED.contestant, UNDIVIDED.contestant, AS_GIVEN.contestant} <= case.compiled.keys()
    with np.load(case.feeds) as stored:
        feeds = dict(stored)
    (expected,) = ReferenceEvaluator(onnx.load(case.model)).run(None, feeds)  # pyright: ignore[reportGeneralTypeIssues]
    for path in case.compiled.values():
        for threads in (1, 2):
            (found,) = foretell.load(path, threads=threads).run(feeds).values()
            assert_close(found, np.asarray(expected), F32, terms=4 * 9 * 64)


def test_fusing_saves_traffic(compiled: tuple[StoredCase, Traffic]) -> None:
    _, traffic = compiled
    assert 0 < traffic.saved_bytes <= traffic.apart_bytes


def test_what_makes_no_difference_is_not_raced(tmp_path: Path) -> None:
    case, traffic = ablate(store(Case("single", single), tmp_path), tmp_path)
    assert list(case.compiled) == ["foretell"]
    assert traffic == Traffic(0, 0)
    assert case.contestants(["foretell", "onnxruntime"]) == ["foretell", "onnxruntime"]


def test_variants_are_of_foretell_and_no_peers() -> None:
    assert [each.title for each in VARIANTS] == ["no fusion", "no divide and conquer", "no Winograd", "no layouts"]
    assert {part for each in VARIANTS for part in each.without} == set(Part)
    for each in VARIANTS:
        assert find_contestant(each.contestant) is CONTESTANTS["foretell"]
        assert each.contestant not in CONTESTANTS


def test_models_are_those_of_the_suite() -> None:
    assert [case.name for case in ablation_cases()] == MODELS
    assert [case.name for case in Plan((ABLATIONS,), only=("resnet",)).cases(ABLATIONS)] == ["resnet18", "resnet50"]


def test_variants_race_by_their_own_files(compiled: tuple[StoredCase, Traffic], tmp_path: Path) -> None:
    case, traffic = compiled
    contestants = ["foretell", UNFUSED.contestant, "onnxruntime"]
    measured = race(case, contestants, 1, PACE, Surroundings(tmp_path))
    assert all(one.error is None and one.max_relative_error is not None for one in measured)
    ours, unfused, reference = with_ablations(make_rows(ABLATIONS, "images", 1, measured, 0.0, None), measured, traffic)
    assert ours.details["saved_mb"] == traffic.saved_bytes / 1e6
    assert unfused.details["slowdown_low"] < unfused.details["slowdown"] < unfused.details["slowdown_high"]
    assert "slowdown" not in reference.details
    assert reference.ratio_to_best_peer == 1.0


# --- traffic ---------------------------------------------------------------------------------------------------


def program(temporaries: dict[str, int], kernels: list[tuple[str, str]]) -> Program:
    """Kernels as what they write and read, of tensors of so many floats."""
    roles = {"x": "input", "w": "constant", "y": "output"}
    sizes = temporaries | dict.fromkeys(roles, 1000)
    slots = tuple(Slot(name, F32, (size,), roles.get(name, "temporary")) for name, size in sizes.items())
    numbers = {name: number for number, name in enumerate(sizes)}
    uses = tuple((tuple(numbers[n] for n in writes), tuple(numbers[n] for n in reads)) for writes, reads in kernels)
    return Program("example", slots, (), (Step(0, None, (), (), uses),), (), (), ())


def test_tensors_move_when_they_are_filled_and_whenever_they_are_read() -> None:
    apart = program({"s": 10, "t": 100}, [("s", "x"), ("t", "sw"), ("y", "st")])
    assert intermediate_bytes(apart) == {"s": 4 * 10 * 3, "t": 4 * 100 * 2}
    fused = program({"s": 10}, [("s", "x"), ("y", "sw")])
    assert traffic_saved(fused, apart) == Traffic(120 + 800, 800)


def test_a_tensor_that_several_kernels_fill_is_written_once() -> None:
    """The border of a padded tensor is a kernel of its own."""
    assert intermediate_bytes(program({"s": 10}, [("s", "x"), ("s", ""), ("y", "s")])) == {"s": 80}


# --- what is shown ---------------------------------------------------------------------------------------------


@pytest.fixture
def ablations(results: Results) -> Results:
    """One model in all variants but one, whose code is the same, and one of which fails."""
    steady = Measured("foretell", ((1.0, 1.0, 1.0),), 0.9, 1e-7, "0")
    slow = Measured(UNFUSED.contestant, ((1.5, 1.5, 1.5),), 1.4, 1e-7, "0")
    slower = Measured(UNDIVIDED.contestant, ((6.0, 6.0, 6.0),), 5.9, 1e-3, "0")
    broken = Measured(AS_GIVEN.contestant, error="killed by SIGSEGV")
    measured = [steady, slow, slower, broken, Measured("onnxruntime", ((2.0, 2.0, 2.0),), 1.9, 0.0, "1")]
    rows = make_rows(ABLATIONS, "net", 1, measured, 1e8, 100.0)
    return Results(
        results.machine, "abc123", "2026-11-16", tuple(with_ablations(rows, measured, Traffic(20_000_000, 5_000_000)))
    )


def test_slowdowns_are_printed(ablations: Results) -> None:
    output = io.StringIO()
    print_results(ablations, Console(file=output, width=150))
    lines = [" ".join(line.split()) for line in output.getvalue().splitlines()]
    assert "net 1 1 1.50 [1.41, 1.60] 6.00 [5.63, 6.39] ! same failed 20 5 25" in lines
    assert "same: the code is the same without it" in " ".join(output.getvalue().split())
    assert "the best peer's median" not in output.getvalue()
    assert ablation_outcome(ablations.rows).startswith("1 ms, no fusion 1.50")


def test_means_count_what_makes_no_difference_as_one(ablations: Results, row) -> None:
    same = row(suite=ABLATIONS, name="other")
    assert mean_slowdown((*ablations.rows, same), UNFUSED, 1) == pytest.approx(1.5**0.5)
    assert mean_slowdown((*ablations.rows, same), DIRECT, 1) == 1.0
    assert mean_slowdown(ablations.rows, AS_GIVEN, 1) is None


def test_the_page_has_a_section(ablations: Results, tmp_path: Path) -> None:
    write_results(tmp_path / "benchmarks/ablations.json", ablations)
    write_page([], tmp_path / "benchmarks.md", tmp_path / "benchmarks")
    text = (tmp_path / "benchmarks.md").read_text()
    assert "## ablations: models by a compiler without one of its parts" in text
    assert (
        "1 thread, geometric means over the models: no fusion 1.50; no divide and conquer 6.00; no Winograd 1.00."
        in text
    )
    assert "| net | 1 | 1 | 1.50 [1.41, 1.60] | 6.00 [5.63, 6.39] ! | same | failed | 20 | 5 | 25 |" in text
    assert f"- net, 1 thread, {AS_GIVEN.contestant}: killed by SIGSEGV" in text
    assert "best peer in" not in text
