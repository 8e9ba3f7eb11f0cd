"""What this machine can do at most, measured by the loops of `foretell calibrate`: multiply-adds, reads and copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from foretell.calibrate.probes import STREAMS, fmas_per_step, host_probes, vector_bytes
from foretell.calibrate.together import together_s
from foretell.runtime.arena import large_empty
from foretell.target.resolve import resolve_target

ARRAY_BYTES = 256 << 20
"""Larger than the last cache."""
REPEATS = 15
PAUSE_S = 0.1
"""Between repeats: whoever else is busy may be done by then."""
FMA_STEPS = 1_000_000


def measure_peak_gflops(threads: int) -> float:
    """Multiplications and additions of float32 by so many threads together, in 1e9 a second."""
    target = resolve_target("native")
    run = host_probes(target).run
    places = [_zeros(64 * vector_bytes(target)) for _ in range(threads)]
    taken_s = _fastest_s([partial(run, "fma", place.ctypes.data, place.ctypes.data, FMA_STEPS) for place in places])
    return threads * 2.0 * fmas_per_step(target) * vector_bytes(target) / 4 * FMA_STEPS / taken_s / 1e9


def measure_bandwidth_gb_per_s(kind: str, threads: int) -> float:
    """Bytes read (`read`), or read and written (`copy`), by so many threads together, in 1e9 a second."""
    target = resolve_target("native")
    run = host_probes(target).run
    step_bytes = STREAMS * vector_bytes(target)
    steps = ARRAY_BYTES // threads // step_bytes
    sources = [_zeros(steps * step_bytes) for _ in range(threads)]
    sinks = sources if kind == "read" else [_zeros(steps * step_bytes) for _ in range(threads)]
    runs = [
        partial(run, kind, sink.ctypes.data, source.ctypes.data, steps)
        for sink, source in zip(sinks, sources, strict=True)
    ]
    moved = threads * steps * step_bytes * (1 if kind == "read" else 2)
    return moved / _fastest_s(runs) / 1e9


def _zeros(size_bytes: int) -> np.ndarray:
    """Memory whose pages exist."""
    array = large_empty(size_bytes)
    array[:] = 0
    return array


def _fastest_s(runs: Sequence[Callable[[], None]]) -> float:
    """The fastest of a few repeats after a warm-up; each thread does its own run, and the last to end counts."""
    times_s: list[float] = []
    for _ in range(REPEATS + 1):
        times_s.append(together_s(runs))
        time.sleep(PAUSE_S)
    return min(times_s[1:])
