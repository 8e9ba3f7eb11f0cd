"""Races in earnest, on a small case: who fails does not stop the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cases import Case, StoredCase, select, store
from benchmarks.compile_times import CompilePace, race_to_compile
from benchmarks.contestant_process import Surroundings
from benchmarks.network import Network
from benchmarks.race import Pace, race
from benchmarks.worker import take_turn

PACE = Pace(
    heats=2, rounds=3, fewest_rounds=2, warm_s=0.001, turn_s=0.002, calls=5, prepare_limit_s=60.0, turn_limit_s=10.0
)


def small() -> Network:
    net = Network("small")
    return net.output(net.softmax(net.linear(net.input("x", 4, 8), 16)))


@pytest.fixture
def stored(tmp_path: Path) -> StoredCase:
    return store(Case("small", small), tmp_path)


def stand_in(path: Path, script: str) -> str:
    """A program to run in place of a peer's interpreter."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_everyone_takes_turns_and_a_broken_peer_only_fails_itself(stored: StoredCase, tmp_path: Path) -> None:
    broken = {
        "openvino": stand_in(tmp_path / "crash", "echo it hurts >&2; exit 3"),
        "mnn": stand_in(tmp_path / "die-later", 'echo \'{"version": "1"}\'; sleep 0.2; kill -SEGV $$'),
    }
    found = race(stored, ["foretell", "onnxruntime", "openvino", "mnn"], 1, PACE, Surroundings(tmp_path, broken))
    ours, reference, crashed, died = found
    assert [len(one.turns_ms) for one in found] == [6, 6, 0, 0]
    assert ours.error is reference.error is None and ours.version and reference.version
    assert ours.min_ms is not None and 0 < ours.min_ms <= min(ours.turns_ms)
    assert ours.max_relative_error is not None and ours.max_relative_error < 1e-5
    assert reference.max_relative_error == 0.0
    assert crashed.error == "ended with exit code 3: it hurts"
    assert died.error == "killed by SIGSEGV"


def test_one_that_hangs_is_given_up(stored: StoredCase, tmp_path: Path) -> None:
    hanging = {"mnn": stand_in(tmp_path / "hang", "sleep 60")}
    pace = Pace(heats=1, prepare_limit_s=0.2)
    (found,) = race(stored, ["mnn"], 1, pace, Surroundings(tmp_path, hanging))
    assert found.error == "no answer in 0 s"


def test_one_that_refuses_says_why(stored: StoredCase, tmp_path: Path) -> None:
    stored.model.write_bytes(b"not a model")
    (found,) = race(stored, ["onnxruntime"], 1, PACE, Surroundings(tmp_path))
    assert found.error is not None and "model" in found.error and "\n" not in found.error


def test_compiling_is_measured_in_fresh_processes(stored: StoredCase, tmp_path: Path) -> None:
    (ours,) = race_to_compile(stored, ["foretell"], 1, CompilePace(repeats=1), Surroundings(tmp_path))
    assert len(ours.turns_ms) == 1 and ours.turns_ms[0] > 0
    assert ours.details.keys() == {"first_ms", "peak_mb", "saved_mb"}
    assert ours.details["saved_mb"] * 1e6 > 4 * 16 * 8


def test_a_turn_warms_up_then_times_calls() -> None:
    calls = []
    assert len(take_turn(lambda: calls.append(0), warm_s=0.0, turn_s=60.0, calls=7)) == 7
    assert len(calls) == 7
    assert len(take_turn(lambda: calls.append(0), warm_s=0.001, turn_s=0.0, calls=7)) == 1
    assert len(calls) > 8


def test_cases_are_selected_by_name_or_by_pace() -> None:
    cases = [Case("conv_a", small, is_quick=True), Case("conv_b", small), Case("matmul", small)]
    assert [case.name for case in select(cases, ["conv"], quick=True)] == ["conv_a", "conv_b"]
    assert [case.name for case in select(cases, [], quick=True)] == ["conv_a"]
    assert select(cases, [], quick=False) == cases
