"""What a contestant's process says of itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import benchmarks
from benchmarks.worker import read_peak_mb

ROOT = Path(benchmarks.__file__).parents[1]


def test_the_peak_is_read_in_kib(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nVmPeak:\t  409600 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    assert read_peak_mb(tmp_path / "status") == 2.0


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tpython\n")
    assert read_peak_mb(tmp_path / "status") > 1
    assert read_peak_mb(tmp_path / "missing") > 1


def test_a_peak_is_not_inherited() -> None:
    """A large process starts a small one."""
    held = np.ones(256 << 17)
    words = [sys.executable, "-c", "from benchmarks.worker import read_peak_mb; print(read_peak_mb())"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 1 < float(found.stdout) < held.nbytes / 2**20
