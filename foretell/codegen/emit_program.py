"""All kernels of a program as one module: a function per native step, and the thread pool they share."""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.ir as ir

from foretell.codegen.compile_module import MachineTarget, compile_module
from foretell.codegen.emit_kernel import Layout, emit_kernel
from foretell.codegen.thread_pool import emit_thread_pool
from foretell.codegen.types import POINTER
from foretell.loops.nodes import Kernel

STEP_NAME = "foretell_step_{}"


def emit_program(steps: Sequence[Sequence[Kernel]], layout: Layout, target: MachineTarget) -> bytes:
    """Object code with `foretell_step_0`, `foretell_step_1`, ... (table, dims, pool)."""
    module = ir.Module("foretell")
    pool = emit_thread_pool(module)
    for number, kernels in enumerate(steps):
        functions = [emit_kernel(module, kernel, layout, pool.parallel_for) for kernel in kernels]
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER])
        step = ir.Function(module, type, STEP_NAME.format(number))
        builder = ir.IRBuilder(step.append_basic_block("entry"))
        for function in functions:
            builder.call(function, step.args)
        builder.ret_void()
    return compile_module(module, target)
