"""Measured search: what it finds is kept and used, and a batch that fails loses nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import foretell
from benchmarks.network import Network
from foretell.cli.main import main
from foretell.compiler import import_model, lower_program, simplify
from foretell.search.records import Record, Records, records_path
from foretell.search.schedule_contraction import schedules
from foretell.search.schedule_nests import Nest
from foretell.support.cache_folder import VARIABLE
from foretell.target.resolve import resolve_target
from foretell.tune.measure_batch import Batch, measure_batch
from foretell.tune.tune_nests import BATCH_SIZE, tune_nests
from tests.schedule.nests import matrix_product

TARGET = resolve_target("native")
NEST = Nest("product", matrix_product(24, 48, 16), frozenset({"b"}))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    net = Network("product")
    net.output(net.linear(net.input("x", 16, 32), 48))
    onnx.save(net.model(), tmp_path / "product.onnx")
    return tmp_path / "product.onnx"


def test_schedules_of_a_batch_are_timed_in_turns() -> None:
    space = schedules(NEST.kernel, TARGET.spec, NEST.constants)
    first, second, *_, last = measure_batch(Batch(NEST.kernel, (*space[:3], (*space[0], *space[0])), TARGET, 1))
    assert len(first) == len(second) > 1 and all(seconds > 0 for seconds in first)
    assert last == []  # not a legal schedule


def test_all_is_tried_once_and_not_again(tmp_path: Path) -> None:
    space = len(schedules(NEST.kernel, TARGET.spec, NEST.constants))
    with Records(tmp_path / "r.sqlite", TARGET, 1) as records:
        (some,) = tune_nests([(NEST, 3)], TARGET, 1, 1e-3, records)
        assert some.tried == min(space, BATCH_SIZE) and some.failed == 0 and some.space == space
        (again,) = tune_nests([(NEST, 3)], TARGET, 1, 0.0, records)
        assert (again.tried, again.best, again.best_ratio) == (some.tried, some.best, some.best_ratio)
        assert len(records.of("product")) == some.tried
        (more,) = tune_nests([(NEST, 3)], TARGET, 1, 1e-3, records)
        assert len(records.of("product")) == more.tried == min(space, 2 * BATCH_SIZE - 1)


@pytest.mark.parametrize("failure", ["crash", "hang", "nonsense"])
def test_a_batch_that_fails_is_lost_and_no_more(failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: Any, **_: Any) -> subprocess.CompletedProcess[bytes]:
        if failure == "hang":
            raise subprocess.TimeoutExpired("measure", 1.0)
        return subprocess.CompletedProcess(
            [], -9 if failure == "crash" else 0, b"[[1.0]" if failure == "nonsense" else b""
        )

    monkeypatch.setattr(subprocess, "run", run)
    with Records(tmp_path / "r.sqlite", TARGET, 1) as records:
        (tuned,) = tune_nests([(NEST, 1)], TARGET, 1, 1e-4, records)
        assert tuned.failed == tuned.tried and tuned.best == tuned.predicted and tuned.best_ratio == 1.0


def test_compile_uses_what_was_faster(model: Path) -> None:
    plain = foretell.compile(model, threads=1)
    path = records_path()
    assert path is not None
    assert main(["tune", str(model), "--budget", "0s", "--threads", "1", "--json", "-q"]) == 0
    with Records(path, TARGET, 1) as records:
        assert list(records.export()) == []
    (nest, _), *_ = nests_of(model)
    slowest = schedules(nest.kernel, TARGET.spec, nest.constants)[-1]
    with Records(path, TARGET, 1) as records:
        records.add([Record(nest.workload, slowest, (1.0,), 0.5)])
    tuned = foretell.compile(model, threads=1)
    for name, made in (("plain", plain), ("tuned", tuned)):
        made.save(model.with_name(name))
    assert model.with_name("plain").read_bytes() != model.with_name("tuned").read_bytes()
    x = np.random.default_rng(0).standard_normal((16, 32), np.float32)
    np.testing.assert_allclose(*(next(iter(m.run({"x": x}).values())) for m in (plain, tuned)), rtol=1e-4, atol=1e-4)


def nests_of(model: Path) -> list[tuple[Nest, int]]:
    return list(lower_program(simplify(import_model(model)), TARGET).nests)


def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "records.jsonl"
    words = ["tune", str(model), "--budget", "1s", "--threads", "1", "--export", str(lines)]
    assert main([*words, "--json", "-q"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] and facts["lines"][0]["tried"] >= 2 and facts["best_ms"] <= facts["predicted_ms"]
    assert len(lines.read_text().splitlines()) == facts["lines"][0]["tried"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "ms as predicted" in shown.out and "schedules" in shown.err


@pytest.mark.parametrize("budget", ["", "5x", "m", "-1s"])
def test_a_budget_that_is_no_time(budget: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(model), f"--budget={budget}"]) == 2
    assert "a budget is not a time" in capsys.readouterr().err
