"""All kernels of a program as modules, and in the last of them a function per native step.

Kernels that are equal share code, and modules are of about one size, so that LLVM can work on some while the next is
emitted. The thread pool is a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import llvmlite.ir as ir

from foretell.codegen.compile_module import compile_module, compile_text, module_text
from foretell.codegen.emit_kernel import KERNEL, Alike, Layout, emit_kernels
from foretell.codegen.math_lanes import Instructions
from foretell.codegen.thread_pool import emit_thread_pool
from foretell.codegen.types import I64, POINTER
from foretell.loops.canonical import canonical
from foretell.loops.nodes import Kernel
from foretell.support.collect_later import collect_now
from foretell.support.stage_times import StageTimes
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.resolve import Target
from foretell.target.threads import default_threads

MODULE_TEXT = 1 << 13
"""Characters of kernels, as they are printed, that fill a module: LLVM needs some tenths of a second for it."""


def emit_program(
    steps: Sequence[Sequence[Kernel]], layout: Layout, target: Target, times: StageTimes | None = None
) -> tuple[bytes, ...]:
    """Object code with `foretell_step_0`, `foretell_step_1`, ... (table, dims, pool); needs `foretell_parallel_for`."""
    return start_program(steps, layout, target, times)()


def start_program(
    steps: Sequence[Sequence[Kernel]], layout: Layout, target: Target, times: StageTimes | None = None
) -> Callable[[], tuple[bytes, ...]]:
    """The same for those who have something else to do while LLVM works on: call the result to wait for the code."""
    times = StageTimes() if times is None else times
    llvm = ThreadPoolExecutor(default_threads())
    try:
        llvm.submit(emit_pool, target)  # Whoever asks for it later finds it; LLVM has nothing else to do yet.
        waiting: list[Future[bytes]] = []
        with times.measure("emit"):
            for module in emit_modules(steps, layout, target):
                if waiting:  # The module before, which refers to itself, while LLVM works on it.
                    collect_now()
                waiting.append(llvm.submit(compile_text, module_text(module, target), target))
    finally:
        llvm.shutdown(wait=False)

    def finished() -> tuple[bytes, ...]:
        with times.measure("llvm"):
            return tuple(each.result() for each in waiting)

    return finished


def emit_module(kernel: Kernel, layout: Layout, target: Target, *, mark_loops: bool = False) -> ir.Module:
    """One kernel by itself, for reading.

    With `mark_loops` its assembly tells which loop of a kernel each branch is of (`codegen/mark_loops.py`).
    """
    alike = Alike(canonical(kernel), {"foretell_kernel_0": kernel})
    return _module([alike], layout, target, mark_loops=mark_loops)


def emit_modules(steps: Sequence[Sequence[Kernel]], layout: Layout, target: Target) -> Iterator[ir.Module]:
    """The modules of a program, one after the other."""
    names = _names(steps)
    *others, last = _divided({name: kernel for step in names for name, kernel in step.items()})
    for alike in others:
        yield _module(alike, layout, target)
    module = _module(last, layout, target)
    for number, step in enumerate(names):
        function = ir.Function(module, KERNEL, f"foretell_step_{number}")
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        for name in step:
            builder.call(_function(module, name), function.args)
        builder.ret_void()
    yield module


def _names(steps: Sequence[Sequence[Kernel]]) -> list[dict[str, Kernel]]:
    """The kernels of each step, under names that no other kernel of the program has."""
    names = iter(f"foretell_kernel_{number}" for number in range(sum(map(len, steps))))
    return [{next(names): kernel for kernel in step} for step in steps]


def _divided(kernels: Mapping[str, Kernel]) -> list[list[Alike]]:
    """Kernels that are alike together, those of one module together; in the order in which they run first."""
    alike: dict[str, Alike] = {}
    for name, kernel in kernels.items():
        shared = canonical(kernel)
        alike.setdefault(str(shared), Alike(shared, {})).kernels[name] = kernel
    modules: list[list[Alike]] = [[]]
    size = 0
    for text, each in alike.items():
        if size >= MODULE_TEXT:
            modules.append([])
            size = 0
        modules[-1].append(each)
        size += len(text)
    return modules


def _module(kernels: Sequence[Alike], layout: Layout, target: Target, *, mark_loops: bool = False) -> ir.Module:
    module = _empty_module(target)
    parallel_for = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [I64]), "foretell_parallel_for")
    for alike in kernels:
        emit_kernels(module, alike, layout, parallel_for, math_instructions(target.spec), mark_loops=mark_loops)
    return module


def math_instructions(spec: HardwareSpec) -> Instructions:
    """What vector math may use: as wide as vectors are, and of x86 only what it says to have."""
    is_fused = spec.architecture != "x86_64" or "fma" in spec.features
    has_avx512 = spec.vector_bytes == 64 and {"avx512f", "avx512dq"} <= set(spec.features)
    return Instructions(is_fused, is_fused and has_avx512)


def _function(module: ir.Module, name: str) -> ir.Function:
    """A kernel of this module or of another one."""
    found = module.globals.get(name)
    return found if isinstance(found, ir.Function) else ir.Function(module, KERNEL, name)


@cache
def emit_pool(target: Target) -> bytes:
    """Object code of the thread pool: the same for every program of a target."""
    module = _empty_module(target)
    emit_thread_pool(module)
    return compile_module(module, target)


def _empty_module(target: Target) -> ir.Module:
    module = ir.Module("foretell")
    module.triple = target.triple
    return module
