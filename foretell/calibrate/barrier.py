"""What a parallel loop costs beyond its work: waking the threads of a pool, and joining them."""

from __future__ import annotations

import ctypes

import llvmlite.ir as ir
import numpy as np

from foretell.codegen.compile_module import compile_module
from foretell.codegen.control_flow import break_if, loop, variable
from foretell.codegen.platform_calls import VOID, PlatformCalls
from foretell.codegen.thread_pool import TASK, emit_thread_pool
from foretell.codegen.types import I32, I64, POINTER
from foretell.runtime.native_code import NativeCode
from foretell.target.resolve import Target

TIMER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
PATIENCE = 1 << 14
"""Turns of waiting for a thread that may not exist: the system can refuse to start it."""


class Barrier:
    """A pool of so many threads, at least two, and a loop in which all of them meet; close it after use."""

    def __init__(self, target: Target, threads: int) -> None:
        module = ir.Module("barrier")
        module.triple = target.triple
        pool = emit_thread_pool(module)
        platform = PlatformCalls(module)
        emit_timer(module, platform, pool.parallel_for, emit_meet(module, platform, threads), threads)
        self._code = NativeCode(compile_module(module, target))
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)(self._code.address("foretell_pool_create"))
        self._pool = create(threads)

    def times_s(self, loops: int) -> np.ndarray:
        """Of each of so many loops, one right after the other."""
        times_ns = np.zeros(loops, np.int64)
        TIMER(self._code.address("time_meet"))(self._pool, times_ns.ctypes.data, loops)
        return times_ns * 1e-9

    def close(self) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.address("foretell_pool_destroy"))(self._pool)


def emit_meet(module: ir.Module, platform: PlatformCalls, threads: int) -> ir.Function:
    """The context counts arrivals: each index waits for the last, so that each takes a thread."""
    function = ir.Function(module, TASK, "meet")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.atomic_rmw("add", function.args[0], I64(1), "acq_rel")
    waited = variable(builder, I32(0))
    with loop(builder) as met:
        arrived = builder.load_atomic(function.args[0], "acquire", 8, typ=I64)
        turn = builder.load(waited, typ=I32)
        gives_up = builder.icmp_signed(">=", turn, I32(PATIENCE))
        break_if(builder, builder.or_(builder.icmp_signed(">=", arrived, I64(threads)), gives_up), met)
        builder.store(builder.add(turn, I32(1)), waited)
        platform.pause(builder)
    builder.ret_void()
    return function


def emit_timer(
    module: ir.Module, platform: PlatformCalls, parallel_for: ir.Function, task: ir.Function, indices: int
) -> None:
    """void time_TASK(pool, times, loops): the nanoseconds of each loop over so many indices."""
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER, POINTER, I64]), f"time_{task.name}")
    pool, times, loops = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    context = variable(builder, I64(0))
    index = variable(builder, I64(0))
    with loop(builder) as done:
        number = builder.load(index, typ=I64)
        break_if(builder, builder.icmp_signed(">=", number, loops), done)
        builder.store(I64(0), context)
        start = platform.nanoseconds(builder)
        builder.call(parallel_for, [pool, task, context, I64(indices)])
        taken = builder.sub(platform.nanoseconds(builder), start)
        builder.store(taken, builder.gep(times, [number], source_etype=I64))
        builder.store(builder.add(number, I64(1)), index)
    builder.ret_void()
