"""What this machine can do at most, measured by code made for it: multiply-adds, reads and copies.

Machine code comes from LLVM through llvmlite, as foretell's own does; no C compiler is needed.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import llvmlite.ir as ir
import numpy as np

from foretell.codegen.compile_module import compile_module
from foretell.codegen.control_flow import break_if, loop, variable
from foretell.runtime.native_code import NativeCode
from foretell.target.resolve import Target, resolve_target

I64, FLOAT, POINTER = ir.IntType(64), ir.FloatType(), ir.PointerType()
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
"""(destination, source, count of steps)."""
CHAINS = 14
"""Independent multiply-adds in flight: more than ports times latency, and few enough for sixteen registers."""
UNROLLED_FMAS = 4 * CHAINS
STREAMS = 8
"""Vectors read in one step, each with a sum of its own."""
ARRAY_BYTES = 256 << 20
"""Larger than the last cache."""
REPEATS = 15
PAUSE_S = 0.1
"""Between repeats: whoever else is busy may be done by then."""
FMA_STEPS = 2_000_000


def measure_peak_gflops(threads: int) -> float:
    """Multiplications and additions of float32 by so many threads together, in 1e9 a second."""
    target = resolve_target("native")
    steps = FMA_STEPS
    flops = 2.0 * UNROLLED_FMAS * lanes(target) * steps
    sinks = [np.zeros(64, np.float32) for _ in range(threads)]
    run = peak_kernel("multiply_add")
    taken_s = _fastest_s([lambda sink=sink: run(sink.ctypes.data, sink.ctypes.data, steps) for sink in sinks])
    return threads * flops / taken_s / 1e9


def measure_bandwidth_gb_per_s(kind: str, threads: int) -> float:
    """Bytes read (`read`), or read and written (`copy`), by so many threads together, in 1e9 a second."""
    step_bytes = 4 * STREAMS * lanes(resolve_target("native"))
    count = ARRAY_BYTES // threads // step_bytes
    sources = [np.ones(count * step_bytes // 4, np.float32) for _ in range(threads)]
    size = 64 if kind == "read" else count * step_bytes // 4
    sinks = [np.ones(size, np.float32) for _ in range(threads)]
    run = peak_kernel(kind)
    runs = [
        lambda sink=sink, source=source: run(sink.ctypes.data, source.ctypes.data, count)
        for sink, source in zip(sinks, sources, strict=True)
    ]
    moved = threads * count * step_bytes * (1 if kind == "read" else 2)
    return moved / _fastest_s(runs) / 1e9


def lanes(target: Target) -> int:
    return max(4, target.spec.vector_bytes) // 4


def _fastest_s(runs: list[Callable[[], None]]) -> float:
    """The fastest of a few repeats after a warm-up; each thread does its own run, and the last to end counts."""
    times_s: list[float] = []
    for _ in range(REPEATS + 1):
        times_s.append(_together_s(runs))
        time.sleep(PAUSE_S)
    return min(times_s[1:])


def _together_s(runs: list[Callable[[], None]]) -> float:
    if len(runs) == 1:
        start = time.perf_counter()
        runs[0]()
        return time.perf_counter() - start
    spans: list[tuple[float, float]] = []
    barrier = threading.Barrier(len(runs))

    def work(run: Callable[[], None]) -> None:
        barrier.wait()
        start = time.perf_counter()
        run()
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


@cache
def peak_kernel(name: str) -> Callable[[int, int, int], None]:
    return KERNEL(_code().address(name))  # pyright: ignore[reportReturnType]


@cache
def _code() -> NativeCode:
    target = resolve_target("native")
    module = ir.Module("peak")
    vector = ir.VectorType(FLOAT, lanes(target))
    _emit_multiply_add(module, vector)
    _emit_read(module, vector)
    _emit_copy(module, vector)
    return NativeCode(compile_module(module, target))


def _begin(module: ir.Module, name: str) -> tuple[ir.IRBuilder, tuple[ir.Value, ...]]:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64]), name)
    return ir.IRBuilder(function.append_basic_block("entry")), function.args


def _emit_multiply_add(module: ir.Module, vector: ir.VectorType) -> None:
    """destination = the sum of chains x := x * factor + term, which neither grow nor vanish."""
    builder, (destination, _, count) = _begin(module, "multiply_add")
    function = ir.Function(module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{vector.count}f32")
    factor, term = (ir.Constant(vector, [number] * vector.count) for number in (0.9999, 1e-4))
    chains = [variable(builder, ir.Constant(vector, [1.0 + 0.01 * chain] * vector.count)) for chain in range(CHAINS)]
    with _steps(builder, count):
        values = [builder.load(chain, typ=vector) for chain in chains]
        for _ in range(UNROLLED_FMAS // CHAINS):
            values = [builder.call(function, [value, factor, term]) for value in values]
        for chain, value in zip(chains, values, strict=True):
            builder.store(value, chain)
    _store_sum(builder, chains, destination, vector)


def _emit_read(module: ir.Module, vector: ir.VectorType) -> None:
    """destination = the sum of the source, so that every load is needed."""
    builder, (destination, source, count) = _begin(module, "read")
    sums = [variable(builder, ir.Constant(vector, [0.0] * vector.count)) for _ in range(STREAMS)]
    with _steps(builder, count) as step:
        for stream, total in enumerate(sums):
            loaded = builder.load(_place(builder, source, step, stream, vector), align=4, typ=vector)
            builder.store(builder.fadd(builder.load(total, typ=vector), loaded), total)
    _store_sum(builder, sums, destination, vector)


def _emit_copy(module: ir.Module, vector: ir.VectorType) -> None:
    builder, (destination, source, count) = _begin(module, "copy")
    with _steps(builder, count) as step:
        for stream in range(STREAMS):
            loaded = builder.load(_place(builder, source, step, stream, vector), align=4, typ=vector)
            builder.store(loaded, _place(builder, destination, step, stream, vector), align=4)
    builder.ret_void()


@contextmanager
def _steps(builder: ir.IRBuilder, count: ir.Value) -> Iterator[ir.Value]:
    """Repeat what is emitted inside for each of `count` steps, and give the number of the step."""
    index = variable(builder, I64(0))
    with loop(builder) as done:
        step = builder.load(index, typ=I64)
        break_if(builder, builder.icmp_signed(">=", step, count), done)
        builder.store(builder.add(step, I64(1)), index)
        yield step


def _place(builder: ir.IRBuilder, base: ir.Value, step: ir.Value, stream: int, vector: ir.VectorType) -> ir.Value:
    index = builder.add(builder.mul(step, I64(STREAMS)), I64(stream))
    return builder.gep(base, [index], source_etype=vector)


def _store_sum(builder: ir.IRBuilder, places: list[ir.Value], destination: ir.Value, vector: ir.VectorType) -> None:
    total = builder.load(places[0], typ=vector)
    for place in places[1:]:
        total = builder.fadd(total, builder.load(place, typ=vector))
    builder.store(total, destination, align=4)
    builder.ret_void()
