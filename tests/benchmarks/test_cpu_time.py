"""Who else was busy, from what the system says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.cpu_time import CpuTime, foreign_cpus, read_cpu_time


def test_reading(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "7").mkdir()
    (tmp_path / "stat").write_text(
        "cpu 9 9 9 9 9 9 9 9\ncpu0 100 0 0 0 0 0 0 0\ncpu1 1 2 4 8 16 32 64 128 9 9\nintr 5\n"
    )
    (tmp_path / "7/stat").write_text("7 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 30 12 0 0\n")
    found = read_cpu_time([1], 7, tmp_path)
    assert found is not None
    assert (found.busy_s, found.own_s) == pytest.approx(((1 + 2 + 4 + 32 + 64 + 128) / ticks, 42 / ticks))


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert read_cpu_time([0], 7, tmp_path) is None
    assert foreign_cpus(None, CpuTime(1, 1, 1)) == 0


def test_foreign_work_is_what_is_not_ours() -> None:
    assert foreign_cpus(CpuTime(0, 10, 5), CpuTime(2, 13, 6)) == 1.0
    assert foreign_cpus(CpuTime(0, 10, 5), CpuTime(2, 12, 7.5)) == 0.0
