"""What a parallel loop costs beyond its work: `python -m benchmarks.thread_pool [--portable]`.

alone   a null pool: a call and nothing else
empty   two indices that do nothing; the caller has often done both before the worker comes
meet    two indices that wait for each other, so that both threads are woken, work and join
asleep  the same after a pause of 2 ms, with the worker asleep
"""

from __future__ import annotations

import ctypes
import sys
import time

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np

from foretell.calibrate.barrier import emit_meet, emit_timer
from foretell.codegen.platform_calls import PlatformCalls
from foretell.codegen.thread_pool import TASK, emit_thread_pool

LOOPS = 100_000
COLD_LOOPS = 500


def emit_empty(module: ir.Module) -> ir.Function:
    function = ir.Function(module, TASK, "empty")
    ir.IRBuilder(function.append_basic_block("entry")).ret_void()
    return function


def compile_timers(*, portable: bool) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module("timers")
    module.triple = llvm.get_process_triple()
    pool = emit_thread_pool(module, portable=portable)
    platform = PlatformCalls(module)
    for task in (emit_empty(module), emit_meet(module, platform, 2)):
        emit_timer(module, platform, pool.parallel_for, task, 2)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(parsed, passes)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine


def main() -> None:
    engine = compile_timers(portable="--portable" in sys.argv)
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)(engine.get_function_address("foretell_pool_create"))
    pool = create(2)

    def measure(task: str, pool: int | None, loops: int) -> np.ndarray:
        timer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        times_ns = np.zeros(loops, np.int64)
        timer(engine.get_function_address(f"time_{task}"))(pool, times_ns.ctypes.data, loops)
        return times_ns

    def measure_asleep() -> np.ndarray:
        time.sleep(2e-3)
        return measure("meet", pool, 1)

    results = {
        "alone": measure("empty", None, LOOPS),
        "empty": measure("empty", pool, LOOPS),
        "meet": measure("meet", pool, LOOPS),
        "asleep": np.concatenate([measure_asleep() for _ in range(COLD_LOOPS)]),
    }
    print(f"{'ns':8}{'median':>9}{'p90':>9}{'p99':>9}   (two clock reads included)")
    for name, times_ns in results.items():
        median, p90, p99 = np.percentile(times_ns, (50, 90, 99))
        print(f"{name:8}{median:9.0f}{p90:9.0f}{p99:9.0f}")
    before_s = time.process_time()
    time.sleep(1)
    print(f"CPU time of one idle second: {(time.process_time() - before_s) * 1e6:.0f} us")


if __name__ == "__main__":
    main()
