"""A contestant's process, seen from the race: started, asked for turns, stopped in between, and killed at the end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import StoredCase
from benchmarks.cpu_time import foreign_cpus, read_cpu_time
from benchmarks.worker import OUTPUTS

ROOT = Path(__file__).parents[1]
THREAD_VARIABLES = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS TVM_NUM_THREADS HL_NUM_THREADS".split()
CACHE_VARIABLE = "FORETELL_CACHE_DIR"


class Failed(Exception):
    """A contestant cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all contestants of a run share."""

    folder: Path
    """Where each gets a folder of its own."""
    pythons: Mapping[str, str] = field(default_factory=dict)
    """The interpreters of contestants that live in an environment of their own."""
    cache: str = "off"
    """Where foretell keeps machine code from one race to the next."""


class ContestantProcess:
    """A worker and the pipes to it. It is stopped whenever it is not asked for something: idle threads may spin."""

    def __init__(
        self, contestant: str, case: StoredCase, threads: int, around: Surroundings, *, save: bool = False
    ) -> None:
        self._scratch = around.folder / f"{contestant}-{threads}"
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._cpus = race_cpus(threads)
        order = {
            "contestant": contestant,
            "model": str(case.model_of(contestant)),
            "feeds": str(case.feeds),
            "threads": threads,
            "cpus": self._cpus,
            "scratch": str(self._scratch),
            "save": save,
        }
        environment = dict.fromkeys(THREAD_VARIABLES, str(threads)) | {CACHE_VARIABLE: around.cache}
        with (self._scratch / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [around.pythons.get(contestant, sys.executable), "-m", "benchmarks.worker", json.dumps(order)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=os.environ | environment,
                start_new_session=True,  # a group of its own, so that signals reach what it starts, and Ctrl-C does not
            )  # fmt: skip
        self._buffer = b""

    def wait_until_ready(self, limit_s: float) -> dict[str, Any]:
        """What it says of itself: its version, and what getting ready took."""
        about = self._answer(limit_s)
        self._signal(signal.SIGSTOP)
        return about

    def turn(self, warm_s: float, turn_s: float, calls: int, limit_s: float) -> tuple[list[float], float]:
        """Seconds of each call, and how many of its CPUs others kept busy meanwhile."""
        before = read_cpu_time(self._cpus, self._process.pid)
        times_s = self._ask_for_turn(warm_s, turn_s, calls, limit_s)
        return times_s, foreign_cpus(before, read_cpu_time(self._cpus, self._process.pid))

    def _ask_for_turn(self, warm_s: float, turn_s: float, calls: int, limit_s: float) -> list[float]:
        assert self._process.stdin is not None
        question = json.dumps({"warm_s": warm_s, "turn_s": turn_s, "calls": calls})
        self._signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):  # it died: there will be no answer
            self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        times_s = self._answer(limit_s)["times_s"]
        self._signal(signal.SIGSTOP)
        return times_s

    def outputs(self) -> list[np.ndarray]:
        """What it computed when it got ready."""
        with np.load(self._scratch / OUTPUTS) as file:
            return [file[f"arr_{index}"] for index in range(len(file.files))]

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise Failed(f"no answer in {limit_s:.0f} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise Failed(self._last_words())
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = (self._scratch / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return how + (f": {lines[-1][:200]}" if lines else "")


def race_cpus(threads: int) -> list[int]:
    """The last CPUs that this process may use: the first ones tend to serve the system."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(threads))
    return sorted(os.sched_getaffinity(0))[-threads:]
