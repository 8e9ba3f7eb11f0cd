"""`HardwareSpec` of the machine at hand, measured: rates of a core, caches, memory, barrier."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from foretell.calibrate.barrier import Barrier
from foretell.calibrate.probes import CHAINED_FMAS, CYCLES, STREAMS, Probes, fmas_per_step, host_probes, vector_bytes
from foretell.calibrate.together import shortest_s, together_s
from foretell.runtime.arena import large_empty
from foretell.support.errors import UsageError
from foretell.support.progress import Steps
from foretell.target.detect_host import cpu_model
from foretell.target.hardware_spec import HardwareSpec, with_cores
from foretell.target.instructions import family_of
from foretell.target.resolve import resolve_target
from foretell.target.threads import default_threads
from foretell.target.write_spec import write_spec

RUN_CYCLES = 3_000_000
"""About as long as one run of a probe takes: a millisecond, which mostly passes undisturbed."""
MEMORY_BYTES = 256 << 20
"""Read by all threads together; more where the last cache is large."""
CACHES_OF_MEMORY = 4
"""So many times the last cache, at least: little of it is left there from the pass before."""
BARRIER_LOOPS = 200
STEADY = 1.03
"""Ratio of the cycles before and after a run that makes it count: the clock did not change, and nobody cut in."""
SLOW_CLOCK = 1.3
"""Times the shortest cycle: more is no slower clock but somebody else's turn."""
FEW_PERCENT = 10
"""Of the runs that count may take fewer cycles than are reported."""
LEAST_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, as it was known and as it was measured."""

    what: str
    known: float | None
    measured: float
    unit: str
    field: str | None = None
    """The field of `HardwareSpec` that it tells."""


@dataclass(frozen=True, slots=True)
class Calibration:
    known: HardwareSpec
    """As detected, with numbers of the nearest named CPU."""
    spec: HardwareSpec
    """With what was measured in their place."""
    figures: tuple[Figure, ...]
    cpu: str
    rounds: int
    seconds: float

    def to_toml(self) -> str:
        """A file for `--target`."""
        heading = (
            f"Measured by `foretell calibrate` on: {self.cpu}.",
            f"The best of {self.rounds} rounds in {self.seconds:.0f} s; `all cores` are {self.spec.cores} threads.",
            "A cycle is one step of a chain of integer operations, timed before and after each run. The frequency is",
            "what all cores reach in multiply-adds alone. Loads and stores are of vectors in the nearest cache,",
            "bandwidths of reads; the barrier wakes and joins all threads. What has no note was detected.",
        )
        notes = {
            figure.field: f"measured: {figure.measured:.4g} {figure.unit}" for figure in self.figures if figure.field
        }
        return write_spec(self.spec, heading=heading, notes=notes)

    def to_json(self) -> dict[str, object]:
        return {
            "cpu": self.cpu,
            "rounds": self.rounds,
            "figures": [asdict(figure) for figure in self.figures],
            "known": self.known.to_json(),
            "spec": self.spec.to_json(),
        }


def calibrate_host(threads: int | None = None, seconds: float = 10.0, progress: Steps | None = None) -> Calibration:
    """Measure for about so many seconds; `threads` defaults to one for each core this process may use."""
    target = resolve_target("native")
    count = _check_threads(threads, target.spec.cores)
    known = with_cores(target.spec, count)
    if progress:
        progress.step("calibrate", f"{known.name}, {count} threads, {seconds:g} s")
    bench = _Bench(host_probes(target), known)
    barrier = Barrier(target, count) if count > 1 else None
    barrier_times_s: list[float] = []

    def meet_s() -> float:
        assert barrier is not None
        barrier_times_s.append(float(np.median(barrier.times_s(BARRIER_LOOPS))))
        return barrier_times_s[-1]

    runs = bench.runs() | ({"barrier": meet_s} if barrier else {})
    best = _measure(runs, bench.cycles_s, seconds)
    if barrier:
        best.time_s["barrier"] = float(np.median(barrier_times_s))  # the least is of cores that happen to be near
        barrier.close()
    figures = bench.figures(best)
    return Calibration(known, _apply(known, figures), figures, cpu_model(), best.rounds, seconds)


def _check_threads(threads: int | None, cores: int) -> int:
    if threads is None:
        return min(default_threads(), cores)
    if 1 <= threads <= cores:
        return threads
    raise UsageError(
        "there are not that many cores to measure",
        where="--threads",
        expected=f"1 to {cores}, the cores that this process may use",
        got=str(threads),
        hint="leave it out to use all of them",
    )


@dataclass(slots=True)
class _Best:
    """The least time of each run, and the cycles of those that were not disturbed."""

    time_s: dict[str, float]
    cycles: dict[str, list[float]]
    rounds: int = 0

    def add(self, name: str, before_s: float, taken_s: float, after_s: float) -> None:
        self.time_s["cycles"] = min(self.time_s.get("cycles", before_s), before_s, after_s)
        self.time_s[name] = min(self.time_s.get(name, taken_s), taken_s)
        steady = max(before_s, after_s) < min(STEADY * min(before_s, after_s), SLOW_CLOCK * self.time_s["cycles"])
        if steady:
            self.cycles.setdefault(name, []).append(2 * taken_s / (before_s + after_s) * RUN_CYCLES)

    def cycles_of(self, name: str) -> float:
        """Few runs take less; by the fastest clock where all were disturbed."""
        found = self.cycles.get(name)
        return float(np.percentile(found, FEW_PERCENT)) if found else self.time_s[name] / self.cycle_s

    @property
    def cycle_s(self) -> float:
        return self.time_s["cycles"] / RUN_CYCLES


def _measure(runs: dict[str, Callable[[], float]], cycles_s: Callable[[], float], seconds: float) -> _Best:
    """Rounds of one run of each, so that whatever disturbs the machine for a while disturbs all alike."""
    deadline, best = time.perf_counter() + seconds, _Best({}, {})
    while best.rounds < LEAST_ROUNDS or time.perf_counter() < deadline:
        for name, run in runs.items():
            best.add(name, cycles_s(), run(), cycles_s())
        best.rounds += 1
    return best


class _Bench:
    """Memory for the probes, and what their times mean."""

    def __init__(self, probes: Probes, spec: HardwareSpec) -> None:
        self.probes, self.spec = probes, spec
        self.step_bytes = STREAMS * vector_bytes(probes.target)
        widest = max((window for window in self._windows(1) + self._windows(spec.cores) if window), default=0)
        least = max(MEMORY_BYTES, CACHES_OF_MEMORY * spec.caches[-1].size_bytes, spec.cores * widest)
        self.part_bytes = -(-least // spec.cores // self.step_bytes) * self.step_bytes
        self.memory = large_empty(spec.cores * self.part_bytes)
        self.numbers = np.full(64 * vector_bytes(probes.target) // 4, 0.5, np.float32)
        # Each thread writes its own part first, so that its pages are near it.
        together_s(
            [
                partial(probes.run, "write", part, self.numbers.ctypes.data, self.part_bytes // self.step_bytes)
                for part in self._parts()
            ]
        )

    def runs(self) -> dict[str, Callable[[], float]]:
        """Each takes its time in seconds."""
        spec, vector = self.spec, vector_bytes(self.probes.target)
        nearest = spec.caches[0].size_bytes // 2
        found = {
            "fma": partial(self._compute_s, "fma", self._fma_steps(), 1),
            "fma, all": partial(self._compute_s, "fma", self._fma_steps(), spec.cores),
            "fma latency": partial(self._compute_s, "fma_latency", RUN_CYCLES // CYCLES, 1),
            "load": partial(self._memory_s, "read", nearest, RUN_CYCLES * vector, 1),
            "store": partial(self._memory_s, "write", nearest, RUN_CYCLES * vector, 1),
            "broadcast": partial(self._memory_s, "broadcast", nearest, RUN_CYCLES * vector, 1),
        }
        for cores, suffix in ((1, ""), (spec.cores, ", all")):
            for level, window in enumerate(self._windows(cores)):
                if window:
                    moved = RUN_CYCLES * spec.caches[level].bandwidth_bytes_per_cycle
                    found[f"level {level}{suffix}"] = partial(self._memory_s, "read", window, moved, cores)
            found[f"memory{suffix}"] = partial(self._memory_s, "read", self._memory_window(cores), 0, cores)
        return found

    def cycles_s(self) -> float:
        """Of `RUN_CYCLES`."""
        return self._compute_s("cycles", RUN_CYCLES // CYCLES, 1)

    def figures(self, best: _Best) -> tuple[Figure, ...]:
        """`best` holds the times of `runs`, and perhaps of the barrier."""
        spec, vector = self.spec, vector_bytes(self.probes.target)
        nearest = spec.caches[0].size_bytes // 2

        def per_cycle(name: str) -> float:
            return self._moved(nearest, RUN_CYCLES * vector) / vector / best.cycles_of(name)

        broadcast = family_of(spec.name).form("broadcast_load", spec.vector_bytes).per_cycle
        done = fmas_per_step(self.probes.target) * self._fma_steps()
        fmas = done / best.cycles_of("fma")
        frequency = done / best.time_s["fma, all"] / max(1, round(fmas))
        latency = best.cycles_of("fma latency") / (RUN_CYCLES // CYCLES * CHAINED_FMAS)
        made = [
            Figure("frequency, one core", None, 1e-9 / best.cycle_s, "GHz"),
            Figure("frequency, all cores", spec.frequency_hz / 1e9, frequency / 1e9, "GHz", "frequency_hz"),
            Figure("multiply-adds", spec.fma_ports, fmas, "a cycle", "fma_ports"),
            Figure("latency of one", spec.fma_latency_cycles, latency, "cycles", "fma_latency_cycles"),
            Figure("loads", spec.loads_per_cycle, per_cycle("load"), "a cycle", "loads_per_cycle"),
            Figure("stores", spec.store_ports, per_cycle("store"), "a cycle", "store_ports"),
            Figure("broadcasts", broadcast, per_cycle("broadcast"), "a cycle"),
        ]
        for level, cache in enumerate(spec.caches):
            known = cache.bandwidth_bytes_per_cycle
            for cores, suffix in ((1, ""), (spec.cores, ", all")):
                window = self._windows(cores)[level]
                if window:
                    name = f"level {level}{suffix}"
                    cycles = best.time_s[name] * frequency if suffix else best.cycles_of(name)
                    rate = self._moved(window, RUN_CYCLES * known) / cycles
                    field = f"caches[{level}].bandwidth_bytes_per_cycle" if not suffix else None
                    what = f"cache {level + 1}, {'each of all cores' if suffix else 'one core'}"
                    made.append(Figure(what, None if suffix else known, rate, "bytes a cycle", field))
        for cores, suffix, field in ((1, "", "dram_core"), (spec.cores, ", all", "dram")):
            field = f"{field}_bandwidth_bytes_per_s"
            rate = cores * self._moved(self._memory_window(cores), 0) / best.time_s[f"memory{suffix}"]
            what = f"memory, {'all cores' if suffix else 'one core'}"
            made.append(Figure(what, getattr(spec, field) / 1e9, rate / 1e9, "GB/s", field))
        if "barrier" in best.time_s:
            known, measured = spec.barrier_cost_s * 1e6, best.time_s["barrier"] * 1e6
            made.append(Figure("barrier, all cores", known, measured, "us", "barrier_cost_s"))
        return tuple(made)

    def _parts(self) -> list[int]:
        """Where the memory of each thread begins."""
        return [self.memory.ctypes.data + index * self.part_bytes for index in range(self.spec.cores)]

    def _fma_steps(self) -> int:
        return RUN_CYCLES * self.spec.fma_ports // fmas_per_step(self.probes.target)

    def _compute_s(self, name: str, steps: int, cores: int) -> float:
        run = self.probes.run
        return shortest_s([partial(run, name, part, self.numbers.ctypes.data, steps) for part in self._parts()[:cores]])

    def _memory_s(self, name: str, window: int, moved: float, cores: int) -> float:
        steps, passes = self._steps(window, moved)
        run = self.probes.run
        return together_s([partial(run, name, part, part, steps, passes) for part in self._parts()[:cores]])

    def _steps(self, window: int, moved: float) -> tuple[int, int]:
        """Steps and passes over a window of so many bytes, until about so many have moved."""
        steps = max(1, window // self.step_bytes)
        return steps, max(1, int(moved) // (steps * self.step_bytes))

    def _moved(self, window: int, moved: float) -> int:
        steps, passes = self._steps(window, moved)
        return steps * passes * self.step_bytes

    def _memory_window(self, cores: int) -> int:
        return self.part_bytes * (self.spec.cores if cores == 1 else 1)

    def _windows(self, cores: int) -> list[int | None]:
        """For each cache, bytes that fit there beside those of the other cores, and not in the one before."""
        windows, before = [], 0
        for level in self.spec.caches:
            most = level.size_bytes // (2 * min(cores, level.shared_by_cores))
            windows.append(min(most, 4 * before or most) if most >= 2 * before else None)
            before = level.size_bytes
        return windows


def _apply(known: HardwareSpec, figures: tuple[Figure, ...]) -> HardwareSpec:
    measured = {figure.field: float(f"{figure.measured:.4g}") for figure in figures if figure.field}
    caches = tuple(
        replace(
            level,
            bandwidth_bytes_per_cycle=measured.get(
                f"caches[{index}].bandwidth_bytes_per_cycle", level.bandwidth_bytes_per_cycle
            ),
        )
        for index, level in enumerate(known.caches)
    )
    core_bandwidth = measured["dram_core_bandwidth_bytes_per_s"] * 1e9
    return replace(
        known,
        frequency_hz=measured["frequency_hz"] * 1e9,
        fma_ports=max(1, round(measured["fma_ports"])),
        fma_latency_cycles=max(1, round(measured["fma_latency_cycles"])),
        loads_per_cycle=measured["loads_per_cycle"],
        store_ports=max(1, round(measured["store_ports"])),
        caches=caches,
        dram_bandwidth_bytes_per_s=max(core_bandwidth, measured["dram_bandwidth_bytes_per_s"] * 1e9),
        dram_core_bandwidth_bytes_per_s=core_bandwidth,
        barrier_cost_s=measured["barrier_cost_s"] / 1e6 if "barrier_cost_s" in measured else known.barrier_cost_s,
    )
