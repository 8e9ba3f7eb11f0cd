"""Some schedules of one nest, timed in turns; run as a process of its own, so that a crash or a hang loses no more.

stdin   a pickled `Batch`, from the process that started this one
stdout  a JSON list: for each schedule the seconds of a call in each turn, or none if it failed
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_pool, emit_program
from foretell.loops.finish_kernel import finish_kernel
from foretell.loops.nodes import Kernel
from foretell.runtime.arena import large_empty
from foretell.runtime.native_code import POOLS, NativeCode
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.pack import pack_array, packed_buffer
from foretell.schedule.steps import Pack, Schedule, apply_schedule
from foretell.target.resolve import Target

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

TURNS = 21
TURN_S = 0.002
"""How long calls of a schedule are repeated in a turn. Many short ones: others may be busy for a part of a second."""
LEAST_S = 1e-8
"""No nest takes less."""
TOLERANCE = 1e-3
"""How far results of two schedules may differ, of the greatest one; beyond that one of them is wrong."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be measured; the first schedule is the one that the others are compared with."""

    nest: Kernel
    schedules: tuple[Schedule, ...]
    target: Target
    threads: int


def measure_batch(batch: Batch) -> list[list[float]]:
    """Seconds of a call, by schedule and turn; none for a schedule that is illegal or computes something else.

    What a call takes that does nothing is left out: nests inside kernels are not called one by one.
    """
    kernels = [_try_apply(batch, schedule) for schedule in batch.schedules]
    legal = [kernel for kernel in kernels if kernel is not None]
    nothing, *calls = _loaded(legal, _operands(batch), batch)
    assert nothing is not None
    remaining = iter(calls)
    by_schedule = [None if kernel is None else next(remaining) for kernel in kernels]
    times: list[list[float]] = [[] for _ in by_schedule]
    for _ in range(TURNS):
        idle_s = min(_turn(nothing) for _ in range(3))
        for number, call in enumerate(by_schedule):
            if call is not None:
                times[number].append(max(LEAST_S, _turn(call) - idle_s))
    return times


def _try_apply(batch: Batch, schedule: Schedule) -> Kernel | None:
    try:
        return finish_kernel(apply_schedule(batch.nest, schedule), batch.target.spec)
    except IllegalStep:
        return None


def _operands(batch: Batch) -> dict[str, Array]:
    """Random operands, and copies of them in every order in which a schedule packs them."""
    random = np.random.default_rng(0)
    arrays = {buffer.name: _random(random, buffer.type.static_shape, buffer.dtype.numpy) for buffer in batch.nest.reads}
    for schedule in batch.schedules:
        for step in schedule:
            if isinstance(step, Pack):
                (source,) = (buffer for buffer in batch.nest.reads if buffer.name == step.buffer)
                name = packed_buffer(source, step.parts).name
                if name not in arrays:
                    arrays[name] = _near(pack_array(arrays[step.buffer], step.parts))
    return arrays


def _random(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        return _near(random.standard_normal(shape).astype(dtype))
    return _near(np.zeros(shape, dtype))


def _near(array: Array) -> Array:
    """The array as the run time keeps constants and intermediate results: in large pages."""
    copy = large_empty(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _loaded(kernels: Sequence[Kernel], arrays: dict[str, Array], batch: Batch) -> list[Callable[[], None] | None]:
    """A function that does nothing, and one for each kernel; None for one whose results differ from the first one's."""
    outputs = {b.name: _near(np.zeros(b.type.static_shape, b.dtype.numpy)) for b in batch.nest.writes}
    held = {**arrays, **outputs}
    layout = Layout({name: number for number, name in enumerate(held)}, {})
    POOLS.load(emit_pool(batch.target))
    code = NativeCode(*emit_program([[], *([kernel] for kernel in kernels)], layout, batch.target))
    table = (ctypes.c_void_p * len(held))(*(array.ctypes.data for array in held.values()))
    dims, pool = (ctypes.c_int64 * 1)(), POOLS.get(batch.threads)
    expected: list[Array] | None = None
    calls: list[Callable[[], None] | None] = []
    for number, step in enumerate(code.steps(1 + len(kernels))):

        def call(step: Any = step, _kept: Any = (code, held)) -> None:
            step(table, dims, pool)

        call()
        found = [array.copy() for array in outputs.values()]
        expected = found if number <= 1 or expected is None else expected
        calls.append(call if all(map(_is_close, found, expected)) else None)
    return calls


def _is_close(found: Array, expected: Array) -> bool:
    scale = float(np.abs(expected.astype(np.float64)).max(initial=1e-30))
    return bool(np.abs(found.astype(np.float64) - expected).max(initial=0.0) <= TOLERANCE * scale)


def _turn(call: Callable[[], None]) -> float:
    """Seconds of one call, of as many as fit the time of a turn."""
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    count = max(1, int(TURN_S / max(once, 1e-7)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    batch = pickle.load(sys.stdin.buffer)
    assert isinstance(batch, Batch)
    answers.write(json.dumps(measure_batch(batch)))
    answers.flush()
