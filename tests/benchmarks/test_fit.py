"""Coefficients are found again from times that were made with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fit import fit, main, predict_again
from benchmarks.foretold import Workload, write_workloads
from benchmarks.non_negative import solve_non_negative
from foretell.search.plan_terms import TIMES
from foretell.target.hardware_spec import Coefficients

TRUE = Coefficients(tiles=0.8, steps=1.0, conflicts=0.1, scattered=3.0, slabs=2.0, waiting=0.5)


def workload(seed: int, coefficients: Coefficients, is_unseen: bool = False) -> Workload:
    """Made-up counts, and times that the coefficients predict for them to one in a hundred."""
    random = np.random.default_rng(seed)
    counts = {name: tuple((random.exponential(1e5, 200) / getattr(Coefficients(), name)).tolist()) for name in TIMES}
    ones = (1.0,) * 200
    nothing = Workload(f"w{seed}", f"n{seed}", is_unseen, 500, ones, ones, counts, ones, 2.0, {})
    times = np.array(predict_again(nothing, coefficients, 1e9).predicted_s) * random.normal(1.0, 0.01, 200)
    return replace(nothing, measured_s=tuple(times.tolist()))


def test_coefficients_are_found_again() -> None:
    found = fit([workload(seed, TRUE) for seed in range(6)], Coefficients(), 1e9, pull=1e-9)
    assert [getattr(found, name) for name in TIMES] == pytest.approx([getattr(TRUE, name) for name in TIMES], rel=0.1)
    assert 1.0 < found.uncertainty < 1.1


def test_what_never_occurs_stays() -> None:
    without = [replace(each, counts={**each.counts, "pieces": (0.0,) * 200}) for each in (workload(1, TRUE),)]
    assert fit(without, Coefficients(pieces=7.0), 1e9).pieces == pytest.approx(7.0, rel=1e-3)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    write_workloads(file, [workload(1, TRUE), workload(2, TRUE, is_unseen=True)])
    assert main([str(file), "--target", "icelake-server"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == [
        "before, seen",
        "before, unseen",
        "after, seen",
        "after, unseen",
    ]
    assert "[coefficients]" in lines and any(line.startswith("tiles = ") for line in lines)


@pytest.mark.parametrize("seed", range(5))
def test_no_direction_is_better(seed: int) -> None:
    """Karush, Kuhn and Tucker: the slope is zero where a number is positive, and points downwards where it is zero."""
    random = np.random.default_rng(seed)
    matrix, values = random.normal(size=(40, 8)), random.normal(size=40)
    found = solve_non_negative(matrix, values)
    slope = matrix.T @ (values - matrix @ found)
    assert (found >= 0).all() and (slope <= 1e-8).all() and np.abs(slope[found > 0]).max(initial=0.0) <= 1e-8
