"""A module with a thread pool and tasks to run on it, compiled into this process."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np

from foretell.codegen.control_flow import break_if, loop, variable
from foretell.codegen.platform_calls import VOID, PlatformCalls
from foretell.codegen.thread_pool import STACK_BYTES, TASK, PoolFunctions, emit_thread_pool
from foretell.codegen.types import DOUBLE, I8, I32, I64, POINTER

SMALLEST_NORMAL = 2.0**-1022
DEEP_BYTES = STACK_BYTES - (1 << 20)
"""What a task of a worker may keep on its stack."""
PAGE_BYTES = 4096


class JitPool:
    """The pool's three functions, and the addresses of tasks by name."""

    def __init__(self, *, portable: bool) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = ir.Module("pool")
        module.triple = llvm.get_process_triple()
        functions = emit_thread_pool(module, portable=portable)
        emit_tasks(module, functions)
        machine = llvm.Target.from_triple(module.triple).create_target_machine(opt=2)
        parsed = llvm.parse_assembly(str(module))
        parsed.verify()
        self._engine = llvm.create_mcjit_compiler(parsed, machine)
        self._engine.finalize_object()
        pointer = ctypes.c_void_p
        self.create = ctypes.CFUNCTYPE(pointer, ctypes.c_int32)(self.task("foretell_pool_create"))
        self.destroy = ctypes.CFUNCTYPE(None, pointer)(self.task("foretell_pool_destroy"))
        self.parallel_for = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, ctypes.c_int64)(
            self.task("foretell_parallel_for")
        )
        self.flush_denormals = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.task("flush_denormals"))

    def task(self, name: str) -> int:
        return self._engine.get_function_address(name)

    def run(self, pool: int | None, task: str, array: np.ndarray, count: int) -> None:
        self.parallel_for(pool, self.task(task), array.ctypes.data, count)


def emit_tasks(module: ir.Module, functions: PoolFunctions) -> None:
    platform = PlatformCalls(module)
    emit_add_one(module)
    emit_nested(module, functions)
    emit_meet(module, platform)
    emit_deep(module, platform)
    emit_flush_denormals(module, platform)


def emit_add_one(module: ir.Module) -> None:
    """The context is an array of i64; every index adds one to its own element, without atomics."""
    builder, [array, begin, end] = _task(module, "add_one")
    index = variable(builder, begin)
    with loop(builder) as done:
        number = builder.load(index, typ=I64)
        break_if(builder, builder.icmp_signed(">=", number, end), done)
        element = builder.gep(array, [number], source_etype=I64)
        builder.store(builder.add(builder.load(element, typ=I64), I64(1)), element)
        builder.store(builder.add(number, I64(1)), index)
    builder.ret_void()


def emit_nested(module: ir.Module, functions: PoolFunctions) -> None:
    """The context is {pool, 8 x i64 for each index}; every index runs `add_one` over its eight, on the same pool."""
    builder, [context, begin, end] = _task(module, "nested")
    index = variable(builder, begin)
    pool = builder.load(context, typ=POINTER)
    with loop(builder) as done:
        number = builder.load(index, typ=I64)
        break_if(builder, builder.icmp_signed(">=", number, end), done)
        offset = builder.add(I64(1), builder.mul(number, I64(8)))
        elements = builder.gep(context, [offset], source_etype=I64)
        builder.call(functions.parallel_for, [pool, module.globals["add_one"], elements, I64(8)])
        builder.store(builder.add(number, I64(1)), index)
    builder.ret_void()


def emit_meet(module: ir.Module, platform: PlatformCalls) -> None:
    """The context is {arrived, expected, sleep in us, then for each index its thread and a denormal product}.

    Every index waits until `expected` have arrived, so that as many threads are needed; then all but index 0 sleep.
    """
    builder, [context, begin, _] = _task(module, "meet")
    _wait_for_all(builder, platform, context)
    microseconds = builder.load(_word(builder, context, I64(2)), typ=I64)
    with builder.if_then(builder.icmp_signed(">", begin, I64(0))):
        platform.call(builder, "usleep", I32, [builder.trunc(microseconds, I32)])
    place = _word(builder, context, builder.add(I64(3), builder.mul(begin, I64(2))))
    builder.store(platform.call(builder, "pthread_self", I64, []), place)
    half = builder.sitofp(builder.load(_word(builder, context, I64(1)), typ=I64), DOUBLE)
    product = builder.fdiv(DOUBLE(SMALLEST_NORMAL), half)
    builder.store(product, builder.gep(place, [I64(8)], source_etype=I8))
    builder.ret_void()


def emit_deep(module: ir.Module, platform: PlatformCalls) -> None:
    """The context is {arrived, expected, pages}; every index but the caller's touches each page of a stack, and counts.

    From the top on, as a stack grows.
    """
    fill, builder = _function(module, "fill", [POINTER])
    place = builder.alloca(I8, size=DEEP_BYTES)
    pages = variable(builder, I64(0))
    with loop(builder) as done:
        page = builder.load(pages, typ=I64)
        break_if(builder, builder.icmp_unsigned(">=", page, I64(DEEP_BYTES // PAGE_BYTES)), done)
        builder.store(builder.add(page, I64(1)), pages)
        offset = builder.sub(I64(DEEP_BYTES - 1), builder.mul(page, I64(PAGE_BYTES)))
        platform.call(builder, "memset", POINTER, [builder.gep(place, [offset], source_etype=I8), I32(1), I64(1)])
        found = builder.atomic_rmw("add", builder.gep(place, [offset], source_etype=I8), I8(0), "monotonic")
        builder.atomic_rmw("add", _word(builder, fill.args[0], I64(2)), builder.zext(found, I64), "monotonic")
    builder.ret_void()

    builder, [context, begin, _] = _task(module, "deep")
    _wait_for_all(builder, platform, context)
    with builder.if_then(builder.icmp_signed(">", begin, I64(0))):
        builder.call(fill, [context])
    builder.ret_void()


def emit_flush_denormals(module: ir.Module, platform: PlatformCalls) -> None:
    """void (i64): whether this thread flushes denormals to zero."""
    function = ir.Function(module, ir.FunctionType(VOID, [I64]), "flush_denormals")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    bit = 15 if platform.architecture == "x86_64" else 24
    cleared = builder.and_(platform.float_mode(builder), I64(~(1 << bit)))
    platform.set_float_mode(builder, builder.or_(cleared, builder.shl(function.args[0], I64(bit))))
    builder.ret_void()


def _task(module: ir.Module, name: str) -> tuple[ir.IRBuilder, tuple[ir.Value, ...]]:
    function = ir.Function(module, TASK, name)
    return ir.IRBuilder(function.append_basic_block("entry")), function.args


def _function(module: ir.Module, name: str, types: list[ir.Type]) -> tuple[ir.Function, ir.IRBuilder]:
    """One that is called, never inlined."""
    function = ir.Function(module, ir.FunctionType(VOID, types), name)
    function.attributes.add("noinline")
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def _wait_for_all(builder: ir.IRBuilder, platform: PlatformCalls, context: ir.Value) -> None:
    """Until as many indices have arrived as are expected; both are the first words of the context."""
    builder.atomic_rmw("add", context, I64(1), "acq_rel")
    expected = builder.load(_word(builder, context, I64(1)), typ=I64)
    with loop(builder) as met:
        arrived = builder.load_atomic(context, "acquire", 8, typ=I64)
        break_if(builder, builder.icmp_signed(">=", arrived, expected), met)
        platform.call(builder, "sched_yield", I32, [])


def _word(builder: ir.IRBuilder, context: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(context, [index], source_etype=I64)
