"""All kernels of a program as one module: a function per native step. The thread pool is a module of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import llvmlite.ir as ir

from foretell.codegen.compile_module import compile_module
from foretell.codegen.emit_kernel import Layout, emit_kernel
from foretell.codegen.thread_pool import emit_thread_pool
from foretell.codegen.types import I64, POINTER
from foretell.loops.nodes import Kernel
from foretell.target.resolve import Target

VOID = ir.VoidType()


def emit_program(steps: Sequence[Sequence[Kernel]], layout: Layout, target: Target) -> bytes:
    """Object code of `emit_module`."""
    return compile_module(emit_module(steps, layout, target), target)


def emit_module(
    steps: Sequence[Sequence[Kernel]], layout: Layout, target: Target, *, mark_loops: bool = False
) -> ir.Module:
    """A module with `foretell_step_0`, `foretell_step_1`, ... (table, dims, pool); needs `foretell_parallel_for`.

    With `mark_loops` its assembly tells which loop of a kernel each branch is of (`codegen/mark_loops.py`).
    """
    module = _module(target)
    parallel_for = ir.Function(module, ir.FunctionType(VOID, [POINTER] * 3 + [I64]), "foretell_parallel_for")
    bodies: dict[str, ir.Function] = {}
    for number, kernels in enumerate(steps):
        functions = [emit_kernel(module, kernel, layout, parallel_for, bodies, mark_loops) for kernel in kernels]
        step = ir.Function(module, ir.FunctionType(VOID, [POINTER] * 3), f"foretell_step_{number}")
        builder = ir.IRBuilder(step.append_basic_block("entry"))
        for function in functions:
            builder.call(function, step.args)
        builder.ret_void()
    return module


@cache
def emit_pool(target: Target) -> bytes:
    """Object code of the thread pool: the same for every program of a target."""
    module = _module(target)
    emit_thread_pool(module)
    return compile_module(module, target)


def _module(target: Target) -> ir.Module:
    module = ir.Module("foretell")
    module.triple = target.triple
    return module
