"""A contestant's process: prepares a job, then runs it for a turn whenever a line on stdin asks for one.

started with   {"contestant", "model", "feeds", "threads", "cpus", "scratch", "save"} as its argument
says           {"version", "prepare_ms", "first_ms", "peak_mb"} when it is ready, or {"error": ...}; if it
               was to save, also {"saved_mb"}
asked          {"warm_s", "turn_s", "calls"}: run for so long first, then time calls for so long, at most so many
answers        {"times_s": [...]}
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants import Job, Runner, find_contestant

OUTPUTS = "outputs.npz"
"""In the scratch folder: what the contestant computed."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        order = json.loads(sys.argv[1])
        runner, about = make_ready(order)
        say(about)
        for line in sys.stdin:
            say({"times_s": take_turn(runner.run, **json.loads(line))})
    except BaseException as error:  # whatever a peer throws becomes its row
        traceback.print_exc()
        say({"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]})


def make_ready(order: dict[str, Any]) -> tuple[Runner, dict[str, Any]]:
    """Prepare the contestant on its CPUs, store what it computes, and say what that took."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, order["cpus"])
    with np.load(order["feeds"]) as stored:
        feeds = dict(stored)
    contestant = find_contestant(order["contestant"])
    import_module(contestant.imports[0])  # before the clock starts
    job = Job(Path(order["model"]), feeds, order["threads"], Path(order["scratch"]))
    start = time.perf_counter()
    runner = contestant.prepare(job)
    prepared = time.perf_counter()
    runner.run()
    ran = time.perf_counter()
    peak_mb = read_peak_mb()
    np.savez(job.scratch / OUTPUTS, *(np.asarray(output) for output in runner.outputs()))
    about = {
        "version": contestant.version(),
        "prepare_ms": 1e3 * (prepared - start),
        "first_ms": 1e3 * (ran - prepared),
    }
    if order["save"] and runner.save is not None:
        about["saved_mb"] = saved_mb(runner.save, job.scratch / "saved")
    return runner, about | {"peak_mb": peak_mb}


def read_peak_mb(status: Path = Path("/proc/self/status")) -> float:
    """The most memory that this program held; on Linux `ru_maxrss` may be that of the process that started it."""
    lines = status.read_text().splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    units = 1 << 20 if sys.platform == "darwin" else 1 << 10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / units


def saved_mb(save: Callable[[Path], None], path: Path) -> float:
    save(path)
    size = path.stat().st_size
    path.unlink()
    return size / 1e6


def take_turn(run: Callable[[], object], warm_s: float, turn_s: float, calls: int) -> list[float]:
    """Seconds of each call, after enough of them to wake sleeping threads and fill caches."""
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    while time.perf_counter() - start < warm_s:
        run()
    times_s: list[float] = []
    start = last = time.perf_counter()
    while not times_s or (last - start < turn_s and len(times_s) < calls):
        run()
        now = time.perf_counter()
        times_s.append(now - last)
        last = now
    gc.enable()
    return times_s


if __name__ == "__main__":
    main()
