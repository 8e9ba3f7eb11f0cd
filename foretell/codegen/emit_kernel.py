"""From a loop nest to an LLVM function: explicit vectors, masked remainders, accumulators in registers.

Every kernel becomes three functions:
  body(buffers..., dims..., begin, end)   the loops, with buffers that are known not to overlap
  task(context, begin, end)               what a thread runs: unpacks the table
  name(table, dims, pool)                 loads nothing; runs the task, on the pool if the loops are parallel
The first knows nothing of the model around it, and may be shared by kernels that do the same to other buffers. `table`
is an array of addresses, one per buffer of the model; `dims` holds the values of its symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import llvmlite.ir as ir

from foretell.codegen.emit_expression import ExpressionEmitter
from foretell.codegen.emit_index import IndexEmitter
from foretell.codegen.emit_loop import LoopEmitter
from foretell.codegen.emit_memory import MemoryEmitter
from foretell.codegen.emit_reduction import ReductionEmitter
from foretell.codegen.emit_scalar import ScalarEmitter
from foretell.codegen.emit_store import StoreEmitter
from foretell.codegen.loop_shape import has_stream, widest_bytes
from foretell.codegen.mark_loops import LoopMarks
from foretell.codegen.math_lanes import USUAL, Instructions
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.types import I64, POINTER, declare_intrinsic, integer
from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.loops.nodes import For, Kernel, free_symbols
from foretell.target.hardware_spec import HardwareSpec

KERNEL = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER])
"""A kernel, or a step: (table of addresses, values of symbols, thread pool)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a model's buffers and symbols stand in `table` and `dims`."""

    slots: Mapping[str, int]
    symbols: Mapping[Sym, int]


@dataclass(frozen=True, slots=True)
class Registers:
    """What the loops of a target may use."""

    vector_bytes: int
    unit_bytes: int
    """What vectors pass through, if narrower ones take less time; else 0."""
    instructions: Instructions
    """Those of vector math."""

    @classmethod
    def of(cls, spec: HardwareSpec) -> Registers:
        """As wide as vectors are, 16 bytes where there are none, and of x86 only what it says to have."""
        is_fused = spec.architecture != "x86_64" or "fma" in spec.features
        has_avx512 = spec.vector_bytes == 64 and {"avx512f", "avx512dq"} <= set(spec.features)
        return cls(max(16, spec.vector_bytes), spec.unit_bytes, Instructions(is_fused, is_fused and has_avx512))


def declare_body(module: ir.Module, name: str, kernel: Kernel, symbols: Sequence[Sym]) -> ir.Function:
    """What a kernel does to buffers at any addresses: (buffers, values of symbols, first iteration, end)."""
    buffers = [POINTER] * (len(kernel.reads) + len(kernel.writes))
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [*buffers, *[I64] * (len(symbols) + 2)]), name)
    for attribute in ("nounwind", "noinline"):
        function.attributes.add(attribute)
    for argument in function.args[: len(buffers)]:
        argument.add_attribute("noalias")
    return function


def own_symbols(kernel: Kernel) -> tuple[Sym, ...]:
    """The dimensions of the model that a kernel needs to know, in a fixed order."""
    return expr.in_order(free_symbols(kernel))


def emit_body(
    module: ir.Module,
    name: str,
    kernel: Kernel,
    symbols: Sequence[Sym],
    registers: Registers,
    *,
    mark_loops: bool = False,
) -> ir.Function:
    function = declare_body(module, name, kernel, symbols)
    buffers = (*kernel.reads, *kernel.writes)
    builder = PrintingBuilder(function.append_basic_block("entry"))
    scalar = ScalarEmitter(module, builder, registers.instructions)
    index = IndexEmitter(builder, scalar, dict(zip(symbols, function.args[len(buffers) :], strict=False)))
    pointers = dict(zip(buffers, function.args, strict=False))
    memory = MemoryEmitter(builder, scalar, index, registers.vector_bytes, pointers)
    expression = ExpressionEmitter(builder, scalar, index, memory)
    store = StoreEmitter(builder, scalar, index, memory, expression)
    reduction = ReductionEmitter(builder, scalar, memory, expression, registers.vector_bytes)
    emitter = LoopEmitter(
        builder,
        index,
        memory,
        expression,
        store,
        reduction,
        vector_bytes=registers.vector_bytes,
        unit_bytes=registers.unit_bytes or registers.vector_bytes,
        tile_element_bytes=max(4, widest_bytes(kernel.body)),
        marks=LoopMarks(function, kernel) if mark_loops else None,
    )
    begin, end = function.args[-2:]
    match kernel.body:
        case For(sym, _, "parallel", inner):
            emitter.counted_loop(sym, begin, end, 1, lambda: emitter.statement(inner))
        case whole:
            emitter.statement(whole)
    if has_stream(kernel.body):
        _order_streams(builder)
    builder.ret_void()
    return function


def _order_streams(builder: PrintingBuilder) -> None:
    """Before anyone is told that a kernel is done: on x86, no release orders stores that went past the caches."""
    if builder.module.triple.startswith(("x86_64", "i686")):
        builder.call(declare_intrinsic(builder.module, "llvm.x86.sse.sfence", [], ir.VoidType(), []), [])


def emit_kernel(
    module: ir.Module,
    name: str,
    kernel: Kernel,
    symbols: Sequence[Sym],
    layout: Layout,
    body: ir.Function,
    parallel_for: ir.Function,
) -> ir.Function:
    """The function of a kernel: it has the pool run a body, which others may share, on the kernel's buffers."""
    task = _emit_task(module, kernel, symbols, layout, body)
    return _emit_entry(module, name, kernel, symbols, layout, task, parallel_for)


def _emit_task(
    module: ir.Module, kernel: Kernel, symbols: Sequence[Sym], layout: Layout, body: ir.Function
) -> ir.Function:
    name = module.get_unique_name(f"{kernel.name}.task")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I64, I64]), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    builder = PrintingBuilder(function.append_basic_block("entry"))
    context, begin, end = function.args
    table = builder.load(context, typ=POINTER)
    dims = builder.load(builder.gep(context, [integer(1)], source_etype=POINTER), typ=POINTER)
    addresses = [
        builder.load(builder.gep(table, [integer(layout.slots[b.name])], source_etype=POINTER), typ=POINTER)
        for b in (*kernel.reads, *kernel.writes)
    ]
    values = [builder.load(builder.gep(dims, [integer(layout.symbols[s])], source_etype=I64), typ=I64) for s in symbols]
    builder.call(body, [*addresses, *values, begin, end])
    builder.ret_void()
    return function


def _emit_entry(
    module: ir.Module,
    name: str,
    kernel: Kernel,
    symbols: Sequence[Sym],
    layout: Layout,
    task: ir.Function,
    parallel_for: ir.Function,
) -> ir.Function:
    function = ir.Function(module, KERNEL, name)
    function.attributes.add("nounwind")
    builder = PrintingBuilder(function.append_basic_block("entry"))
    table, dims, pool = function.args
    context = builder.alloca(POINTER, size=2)
    builder.store(table, context)
    builder.store(dims, builder.gep(context, [integer(1)], source_etype=POINTER))
    if isinstance(kernel.body, For) and kernel.body.kind == "parallel":
        index = IndexEmitter(builder, ScalarEmitter(module, builder, USUAL))
        used = expr.symbols(kernel.body.extent)
        for symbol in symbols:
            if symbol in used:
                place = builder.gep(dims, [integer(layout.symbols[symbol])], source_etype=I64)
                index.values[symbol] = builder.load(place, typ=I64)
        count = index.value(kernel.body.extent)
        builder.call(parallel_for, [pool, task, context, count])
    else:
        builder.call(task, [context, integer(0), integer(1)])
    builder.ret_void()
    return function
