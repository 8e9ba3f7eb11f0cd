"""Small plain nests, and running kernels natively, for tests of schedules."""

from __future__ import annotations

import ctypes

from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_pool, emit_program
from foretell.graph.nodes import Array
from foretell.ir.dtypes import F32
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Apply, Buffer, Const, Load
from foretell.loops.interpret import interpret
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Kernel, Store
from foretell.runtime.native_code import POOLS, NativeCode
from foretell.target.resolve import resolve_target

TARGET = resolve_target("native")


def matrix_product(rows: int, columns: int, inner: int) -> Kernel:
    """c[i, j] = sum[k] a[i, k] * b[k, j], point by point."""
    a, b, c = (
        Buffer(name, F32, shape)
        for name, shape in (("a", (rows, inner)), ("b", (inner, columns)), ("c", (rows, columns)))
    )
    i, j, k = Sym("i", 0, rows - 1), Sym("j", 0, columns - 1), Sym("k", 0, inner - 1)
    acc = Buffer("acc", F32, (), "register")
    product = Apply("mul", (Load(a, (i, k), F32), Load(b, (k, j), F32)))
    point = Block(
        (
            Store(acc, (), Const(0.0, F32)),
            For(k, inner, "serial", Accumulate(acc, (), "sum", product)),
            Store(c, (i, j), Load(acc, (), F32)),
        )
    )
    return Kernel("product", (a, b), (c,), For(i, rows, "serial", For(j, columns, "serial", Allocate(acc, point))))


def run_interpreted(kernel: Kernel, arrays: dict[str, Array]) -> Array:
    """The only output."""
    return interpret([kernel], arrays, {})[kernel.writes[0].name]


def run_native(kernel: Kernel, arrays: dict[str, Array], out: Array, threads: int = 2) -> Array:
    """The only output, from machine code; `out` is where it is written."""
    buffers = (*kernel.reads, *kernel.writes)
    layout = Layout({buffer.name: number for number, buffer in enumerate(buffers)}, {})
    POOLS.load(emit_pool(TARGET))
    code = NativeCode(*emit_program([[kernel]], layout, TARGET))
    held = [arrays[buffer.name] for buffer in kernel.reads] + [out]
    table = (ctypes.c_void_p * len(held))(*(array.ctypes.data for array in held))
    code.steps(1)[0](table, (ctypes.c_int64 * 1)(), POOLS.get(threads))
    return out
