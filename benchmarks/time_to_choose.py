"""How long it takes to choose a nest's schedule without measuring, and to have its machine code."""

from __future__ import annotations

import time
from multiprocessing import get_context
from statistics import median

import numpy as np

from benchmarks.fresh_cache import fresh_cache
from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_pool, emit_program
from foretell.loops.finish_kernel import finish_kernel
from foretell.loops.nodes import Kernel
from foretell.runtime.native_code import POOLS, NativeCode
from foretell.schedule.pack import pack_array
from foretell.schedule.steps import Pack, Schedule, apply_schedule
from foretell.search.schedule_contraction import try_schedule
from foretell.search.schedule_nests import Nest
from foretell.target.resolve import Target

REPEATS = 3


def time_to_choose(nest: Nest, target: Target) -> float:
    """Seconds, in the median over fresh processes with fresh caches."""
    return median(_in_fresh_process(nest, target) for _ in range(REPEATS))


def _in_fresh_process(nest: Nest, target: Target) -> float:
    with fresh_cache(target), get_context("spawn").Pool(1) as pool:
        return pool.apply(seconds_to_choose, (nest, target))


def seconds_to_choose(nest: Nest, target: Target) -> float:
    """From the plain nest to a function that can be called, packed operands included."""
    constants = {buffer.name: np.zeros(buffer.type.static_shape, buffer.dtype.numpy) for buffer in nest.kernel.reads}
    start = time.perf_counter()
    schedule = try_schedule(nest.kernel, target.spec, nest.constants)
    assert schedule is not None, "the nest has schedules"
    _load(finish_kernel(apply_schedule(nest.kernel, schedule), target.spec), target)
    _pack(schedule, constants)
    return time.perf_counter() - start


def _load(kernel: Kernel, target: Target) -> None:
    names = (buffer.name for buffer in (*kernel.reads, *kernel.writes))
    slots = {name: number for number, name in enumerate(names)}
    layout = Layout(slots, {})
    POOLS.load(emit_pool(target))
    NativeCode(*emit_program([[kernel]], layout, target)).steps(1)


def _pack(schedule: Schedule, constants: dict[str, np.ndarray]) -> None:
    for step in schedule:
        if isinstance(step, Pack):
            pack_array(constants[step.buffer], step.parts)
