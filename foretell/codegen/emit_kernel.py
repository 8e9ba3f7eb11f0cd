"""From a loop nest to an LLVM function: explicit vectors, masked remainders, accumulators in registers.

Every kernel becomes three functions:
  body(buffers..., dims..., begin, end)   the loops, with buffers that are known not to overlap
  task(context, begin, end)               what a thread runs: unpacks the table
  name(table, dims, pool)                 loads nothing; runs the task, on the pool if the loops are parallel
The first knows nothing of the model around it, and may be shared by kernels that do the same to other buffers. `table`
is an array of addresses, one per buffer of the model; `dims` holds the values of its symbols.

A vector loop over n runs in steps of `lanes * wide`, then of `lanes`, then once under a mask of n mod lanes. Vectors
wider than a register give LLVM independent chains to interleave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import llvmlite.ir as ir

from foretell.codegen.emit_scalar import ScalarEmitter
from foretell.codegen.loop_shape import (
    has_stream,
    reduced_in,
    uses_tiles,
    vector_steps,
    widest_bytes,
)
from foretell.codegen.mark_loops import LoopMarks
from foretell.codegen.math_lanes import USUAL, Instructions
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.shared_loads import WrittenOut, try_shared_loads
from foretell.codegen.types import (
    I1,
    I8,
    I16,
    I32,
    I64,
    POINTER,
    declare_intrinsic,
    integer,
    is_vector,
    lane_constants,
    lanes_of,
    register_type,
    stored_type,
    undefined,
    widened,
    zeros,
)
from foretell.ir import expr
from foretell.ir.dtypes import I64 as _I64
from foretell.ir.expr import Dim, Op, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Const, Index, Load, Scalar, Select, dtype_of
from foretell.loops.axes import access_stride
from foretell.loops.cases import conditions
from foretell.loops.interleave import PERIODS
from foretell.loops.nodes import (
    Accumulate,
    Allocate,
    Block,
    Fetch,
    For,
    Guard,
    Kernel,
    Statement,
    Store,
    distinct_loads,
    free_symbols,
    identity,
    loads_in,
    offset,
)
from foretell.target.hardware_spec import HardwareSpec, suits_half_vectors

KERNEL = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, POINTER])
"""A kernel, or a step: (table of addresses, values of symbols, thread pool)."""
LINE_BYTES = 64
SMALL_BYTES = 4096
"""Arrays of at most this size may be read and written at places that are all known."""
NEAREST = 3
"""What `llvm.prefetch` calls the first cache; further ones have smaller numbers."""


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
    unit_bytes = registers.unit_bytes or registers.vector_bytes
    emitter = _LoopEmitter(module, builder, registers.vector_bytes, unit_bytes, registers.instructions)
    emitter.tile_element_bytes = max(4, widest_bytes(kernel.body))
    emitter.pointers = dict(zip(buffers, function.args, strict=False))
    emitter.values = dict(zip(symbols, function.args[len(buffers) :], strict=False))
    emitter.marks = LoopMarks(function, kernel) if mark_loops else None
    begin, end = function.args[-2:]
    match kernel.body:
        case For(sym, _, "parallel", inner):
            emitter.counted_loop(sym, begin, end, 1, lambda: emitter.statement(inner))
        case whole:
            emitter.statement(whole)
    if has_stream(kernel.body):
        _order_streams(emitter.builder)
    emitter.builder.ret_void()
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
        emitter = _LoopEmitter(module, builder, LINE_BYTES)  # Of which no vector is made.
        used = expr.symbols(kernel.body.extent)
        for symbol in symbols:
            if symbol in used:
                place = builder.gep(dims, [integer(layout.symbols[symbol])], source_etype=I64)
                emitter.values[symbol] = builder.load(place, typ=I64)
        count = emitter.index(kernel.body.extent)
        builder.call(parallel_for, [pool, task, context, count])
    else:
        builder.call(task, [context, integer(0), integer(1)])
    builder.ret_void()
    return function


@dataclass(slots=True)
class _Lanes:
    """The vector loop being emitted: its variable's first value, the number of lanes, and which are active."""

    sym: Sym
    count: int
    active: ir.Value | None = None
    filled: int | None = None
    """So many lanes from the first on are active, where that is known."""


@dataclass(slots=True)
class _Register:
    """A register, or a vector of a register buffer: where it is kept."""

    slot: ir.Value
    type: ir.Type


@dataclass(slots=True)
class _Flags:
    """A slot with so many flags."""

    slot: ir.Value
    count: int


@dataclass(slots=True)
class _Partial:
    """Per-lane partial results of a reduction over the current vector loop.

    A float maximum or minimum is kept apart from the NaNs that were seen (`unordered`): together they take one
    instruction and a half a register, where passing NaN on takes four.
    """

    slot: ir.Value
    type: ir.Type
    reduction: str
    unordered: _Flags | None = None


_Linear: TypeAlias = tuple[Mapping[Sym, int], Dim, int]


@dataclass(slots=True)
class _LoopEmitter:
    """Emits statements; holds the values of symbols, the addresses of buffers, and the state of the vector loop."""

    module: ir.Module
    builder: PrintingBuilder
    vector_bytes: int
    unit_bytes: int = 0
    instructions: Instructions = USUAL
    """For functions of vector math."""
    scalar: ScalarEmitter = field(init=False)
    pointers: dict[Buffer, ir.Value] = field(default_factory=dict)
    values: dict[Sym, ir.Value] = field(default_factory=dict)
    registers: dict[Buffer, _Register] = field(default_factory=dict)
    partials: dict[Buffer, _Partial] = field(default_factory=dict)
    around: dict[Buffer, _Partial] = field(default_factory=dict)
    """Those that loops around the vector loop share."""
    lanes: _Lanes | None = None
    mask: ir.Value | None = None
    blocks: dict[Load, ir.Value] = field(default_factory=dict)
    constants: dict[Sym, int] = field(default_factory=dict)
    """Variables of loops that are written out, while one of their iterations is."""
    tiles: dict[tuple[Buffer, tuple[int, ...]], _Register] = field(default_factory=dict)
    """Registers of buffers that have a shape, by the place of their first element."""
    tile_element_bytes: int = 4
    """The widest element of the kernel: loops over one tile take as many lanes at a time, whatever they compute."""
    is_streaming: bool = False
    """Whether full vectors are stored past the caches."""
    indices: dict[tuple[ir.Block, Dim], ir.Value] = field(default_factory=dict)
    """What index expressions came to in a block."""
    marks: LoopMarks | None = None
    """For those who read the assembly."""
    offsets: dict[tuple[Buffer, tuple[Dim | Scalar, ...]], Dim] = field(default_factory=dict)
    linear: dict[tuple[Dim, frozenset[Sym]], _Linear | None] = field(default_factory=dict)
    """Index arithmetic that is done once, however often loops are written out."""
    known: dict[tuple[int, ir.Block], tuple[ir.Value | None, ir.Value]] | None = None
    """Among stores in a row, the mask under which an expression, by identity, was last emitted in a block; and what
    it came to."""

    def __post_init__(self) -> None:
        self.scalar = ScalarEmitter(self.module, self.builder, self.instructions)

    # --- statements ---

    def statement(self, statement: Statement) -> None:
        match statement:
            case Block(statements):
                rest = [inner for inner in statements if not isinstance(inner, Fetch)]
                for inner in statements:
                    if isinstance(inner, Fetch):
                        self.statement(inner)
                stores = [inner for inner in rest if isinstance(inner, Store)]
                if len(stores) == len(rest):
                    self.stores(stores)
                    return
                for inner in rest:
                    self.statement(inner)
            case For(sym, extent, "vector", body):
                self.vector_loop(sym, extent, body)
            case For(sym, extent, "stream", body):
                self.stream_loop(sym, extent, body)
            case For(sym, int() as extent, kind, body) if kind == "unroll" or (extent == 1 and uses_tiles(body)):
                # Out of a loop of one iteration, LLVM would take what follows the sum of a tile, to before the sum.
                if (written := try_shared_loads(statement)) is not None:
                    self.written_out(written)
                else:
                    self.unrolled_loop(sym, extent, body)
            case For(sym, extent, _, body):
                self.serial_loop(sym, extent, body)
            case Store(buffer, indices, value):
                self.store(buffer, indices, value)
            case Accumulate(buffer, indices, reduction, value):
                self.accumulate(buffer, indices, reduction, value)
            case Fetch(buffer, indices, to_write, cache):
                self.fetch(buffer, indices, to_write, cache)
            case Allocate(buffer, body):
                self.allocate(buffer)
                self.statement(body)
            case Guard(condition, body):
                with self.builder.if_then(self.value(condition)):
                    self.statement(body)

    def stores(self, stores: Sequence[Store]) -> None:
        """Stores in a row: what they compute in common is computed once, unless they read what they write."""
        outer, read = self.known, {load.source for load in distinct_loads(store.value for store in stores)}
        self.known = {} if all(store.buffer not in read for store in stores) else None
        place = self._try_interleaved(stores) if self.known is not None else None
        if place is not None:
            self._store_interleaved(stores, place)
        else:
            for store in stores:
                self.store(store.buffer, store.indices, store.value)
        self.known = outer

    def _try_interleaved(self, stores: Sequence[Store]) -> Dim | None:
        """Where the first of several stores goes if its neighbours are those of the others, lane by lane."""
        count = len(stores)
        if count not in PERIODS or self.lanes is None or self.lanes.count == 1:
            return None
        first = stores[0]
        places: list[Dim] = []
        for store in stores:
            plain = tuple(index for index in store.indices if isinstance(index, (int, expr.Expr)))
            if store.buffer != first.buffer or len(plain) < len(store.indices) or store.buffer.scope == "register":
                return None
            places.append(offset(store.buffer.shape, plain))
        if any(place - places[0] != number for number, place in enumerate(places)):
            return None
        linear = self._linear(places[0])
        return places[0] if linear is not None and linear[0].get(self.lanes.sym) == count else None

    def _store_interleaved(self, stores: Sequence[Store], place: Dim) -> None:
        assert self.lanes is not None
        buffer, lanes, address = stores[0].buffer, self.lanes.count, self._place(place).base
        emitted = [self._to_compute(self.value(store.value), store.value, buffer) for store in stores]
        values = [self.scalar.splat(self.scalar.to_memory(each, buffer.dtype), lanes) for each in emitted]
        outer, own = self.mask, self.lanes
        if outer is not None:
            self.mask = self._interleave([self.scalar.splat(outer, lanes)] * len(stores))
        self.lanes = replace(own, filled=None)
        self._store_run(buffer, address, self._interleave(values))
        self.mask, self.lanes = outer, own

    def _interleave(self, vectors: Sequence[ir.Value]) -> ir.Value:
        """One lane of each in turn: of two, or of those with even numbers and those with odd ones."""
        left, right = (
            vectors if len(vectors) == 2 else (self._interleave(vectors[0::2]), self._interleave(vectors[1::2]))
        )
        lanes = lanes_of(left)
        return self._shuffled(left, right, [half * lanes + lane for lane in range(lanes) for half in range(2)])

    def counted_loop(self, sym: Sym, begin: ir.Value, end: ir.Value, step: int, body: Callable[[], None]) -> None:
        """for sym = begin; sym < end; sym += step"""
        build = self.builder
        before = build.block
        head, inside, after = (build.append_basic_block(f"{sym.name}.{part}") for part in ("head", "body", "end"))
        build.branch(head)
        build.position_at_end(head)
        variable = build.phi(I64)
        variable.add_incoming(begin, before)
        branch = build.cbranch(build.icmp_signed("<", variable, end), inside, after)
        if self.marks is not None:
            self.marks.mark(branch, sym, step)
        build.position_at_end(inside)
        self.values[sym] = variable
        body()
        variable.add_incoming(build.add(variable, integer(step), flags=("nsw", "nuw")), build.block)
        build.branch(head)
        build.position_at_end(after)

    def unrolled_loop(self, sym: Sym, extent: int, body: Statement) -> None:
        """The body written out; loads that are rows along `sym` but strided across lanes are transposed together."""
        blocks = self._transposed_loads(sym, extent, body)
        for number in range(extent):
            self.values[sym] = integer(number)
            self.constants[sym] = number
            self.blocks = {load: vectors[number] for load, vectors in blocks.items()}
            self.statement(body)
        self.blocks = {}
        del self.constants[sym]

    def written_out(self, written: WrittenOut) -> None:
        """Loops written out together, in the order that was found for them."""
        for point in written.points:
            for sym, number in zip(written.syms, point, strict=True):
                self.values[sym], self.constants[sym] = integer(number), number
            self.statement(written.body)
        for sym in written.syms:
            del self.constants[sym]

    def _transposed_loads(self, sym: Sym, extent: int, body: Statement) -> dict[Load, list[ir.Value]]:
        """For each load that suits it, the vectors of a square block, one per value of `sym`."""
        if extent < 2 or self.lanes is None or self.mask is not None or extent != self.lanes.count:
            return {}
        if not isinstance(body, Store):
            return {}
        self.values[sym] = integer(0)
        found: dict[Load, list[ir.Value]] = {}
        for load in loads_in(body.value):
            buffer, plain = load.source, tuple(i for i in load.indices if isinstance(i, (int, expr.Expr)))
            if not isinstance(buffer, Buffer) or len(plain) != len(load.indices) or buffer.scope == "register":
                continue
            place = self._offset(buffer, plain)
            if access_stride(buffer, plain, sym) != 1 or place.vector is not None or place.stride in (0, 1):
                continue
            is_sure = next(iter(conditions(body.value)), None) is None
            rows = [self._load_row(buffer, self._lane(place, k), extent, is_sure) for k in range(extent)]
            found[load] = self._transposed(rows)
        return found

    def _load_row(self, buffer: Buffer, first: ir.Value, count: int, is_sure: bool) -> ir.Value:
        """Neighbouring elements; unless all are sure to exist, those outside the buffer are not read."""
        address, type = self._address(buffer, first), ir.VectorType(stored_type(buffer.dtype), count)
        if is_sure:
            return self.builder.load(address, typ=type, align=buffer.dtype.itemsize)
        build, size = self.builder, self.index(expr.product(buffer.shape))
        before, within = self._before_lane(build.neg(first), count), self._before_lane(build.sub(size, first), count)
        return self._masked_load(address, type, build.and_(within, build.not_(before)), buffer.dtype.itemsize)

    def _transposed(self, rows: list[ir.Value]) -> list[ir.Value]:
        """A square block, by interleaving its upper and lower half log2(n) times."""
        count = len(rows)
        half = count // 2
        low = [lane // 2 + (count if lane % 2 else 0) for lane in range(count)]
        masks = [lane_constants(tuple([lane + shift for lane in low])) for shift in (0, half)]
        for _ in range(count.bit_length() - 1):
            pairs = list(zip(rows[:half], rows[half:], strict=True))
            rows = [self.builder.shuffle_vector(a, b, mask) for a, b in pairs for mask in masks]
        return rows

    def serial_loop(self, sym: Sym, extent: Dim, body: Statement) -> None:
        """Around a short sum in vectors, its partial results are joined once, after all iterations."""
        inner = body
        while isinstance(inner, For) and inner.kind == "serial":
            inner = inner.body
        lanes = 0
        if isinstance(inner, For) and inner.kind == "vector" and isinstance(inner.body, Accumulate):
            wide, lanes = vector_steps(inner.body, inner.extent, self.vector_bytes)
            lanes = lanes if wide == lanes and not uses_tiles(inner.body) else 0
        joined = {} if lanes == 0 or self.around else self._make_partials(inner, lanes)
        self.around |= joined
        self.counted_loop(sym, integer(0), self.index(extent), 1, lambda: self.statement(body))
        for buffer, partial in joined.items():
            self._join_partial(buffer, partial)
            del self.around[buffer]

    def vector_loop(self, sym: Sym, extent: Dim, body: Statement) -> None:
        """Main part in wide vectors, rest in single ones, remainder under a mask; then partial results are joined."""
        if uses_tiles(body):
            assert isinstance(extent, int), "a tile of registers has a known size"
            full, unit = (size // self.tile_element_bytes for size in (self.vector_bytes, self.unit_bytes))
            self._tile_loop(sym, extent, full // 2 if suits_half_vectors(extent, full, unit) else full, body)
            return
        wide, lanes = vector_steps(body, extent, self.vector_bytes)
        count = self.index(extent)
        partials = self.around or self._make_partials(body, wide)
        start: ir.Value = integer(0)
        if wide != lanes:
            start = self._vector_run(sym, start, count, wide, body, partials)
            partials = self._narrowed(partials, wide, lanes)
        start = self._vector_run(sym, start, count, lanes, body, partials)
        if not (isinstance(extent, int) and extent % lanes == 0):
            self._remainder(sym, start, extent, lanes, body, partials)
        for buffer, partial in partials.items() if not self.around else ():
            self._join_partial(buffer, partial)

    def stream_loop(self, sym: Sym, extent: Dim, body: Statement) -> None:
        """A vector loop whose full vectors go past the caches, if they lie as such stores need; else as any other."""
        with self.builder.if_else(self._stores_are_aligned(sym, body)) as (aligned, otherwise):
            with aligned:
                self.is_streaming = True
                self.vector_loop(sym, extent, body)
                self.is_streaming = False
            with otherwise:
                self.vector_loop(sym, extent, body)

    def _stores_are_aligned(self, sym: Sym, body: Statement) -> ir.Value:
        """Whether the first element of every store begins a vector register's worth of memory."""
        self.values[sym] = integer(0)
        places: list[ir.Value] = []
        for store in body.statements if isinstance(body, Block) else (body,):
            assert isinstance(store, Store), "a stream loop only stores"
            address = self._address(store.buffer, self._offset(store.buffer, store.indices).base)
            places.append(self.builder.ptrtoint(address, I64))
        rest = self.builder.and_(functools.reduce(self.builder.or_, places), integer(self.vector_bytes - 1))
        return self.builder.icmp_unsigned("==", rest, integer(0))

    def _tile_loop(self, sym: Sym, extent: int, lanes: int, body: Statement) -> None:
        """Vectors of a tile of registers, written out: full ones, then one under a mask; a single one may be narrower.

        All are of one width, because what is broadcast to some in the width of others ends in more registers.
        """
        for start in range(0, extent, lanes):
            rest = min(lanes, extent - start)
            count = lanes if extent > lanes else 1 << (rest - 1).bit_length()
            active = None if count == rest else _first_lanes(rest, count)
            self.values[sym], self.constants[sym] = integer(start), start
            self._vector_body(_Lanes(sym, count, active, None if active is None else rest), body, {})
        del self.constants[sym]

    def _vector_run(
        self, sym: Sym, start: ir.Value, count: ir.Value, step: int, body: Statement, partials: dict[Buffer, _Partial]
    ) -> ir.Value:
        """As many full vectors of `step` lanes as fit between start and count; -> where the rest begins."""
        stop = self._multiple_below(count, start, step)
        self.counted_loop(sym, start, stop, step, lambda: self._vector_body(_Lanes(sym, step), body, partials))
        return stop

    def _multiple_below(self, count: ir.Value, start: ir.Value, step: int) -> ir.Value:
        """start plus the largest multiple of step that stays within count."""
        build = self.builder
        room = build.sub(count, start)
        return build.add(start, build.and_(room, integer(-step)))

    def _vector_body(self, lanes: _Lanes, body: Statement, partials: dict[Buffer, _Partial]) -> None:
        outer = self.lanes, self.partials, self.mask
        self.lanes, self.partials, self.mask = lanes, partials, lanes.active
        self.statement(body)
        self.lanes, self.partials, self.mask = outer

    def _remainder(
        self, sym: Sym, start: ir.Value, extent: Dim, lanes: int, body: Statement, partials: dict[Buffer, _Partial]
    ) -> None:
        if isinstance(extent, int):
            rest = extent % lanes
            self.values[sym] = integer(extent - rest)
            self._vector_body(_Lanes(sym, lanes, _first_lanes(rest, lanes), rest), body, partials)
            return
        build, count = self.builder, self.index(extent)
        with build.if_then(build.icmp_signed("<", start, count)):
            self.values[sym] = start
            active = self._before_lane(build.sub(count, start), lanes) if lanes > 1 else None
            self._vector_body(_Lanes(sym, lanes, active), body, partials)

    # --- reductions over a vector loop ---

    def _make_partials(self, body: Statement, lanes: int) -> dict[Buffer, _Partial]:
        return {buffer: self._make_partial(buffer, reduction, lanes) for buffer, reduction in reduced_in(body).items()}

    def _make_partial(self, buffer: Buffer, reduction: str, lanes: int) -> _Partial:
        type = widened(register_type(buffer.dtype), lanes)
        slot = self._entry_alloca(type)
        start = identity(reduction, buffer.dtype)
        constant = self.scalar.splat(self.scalar.constant(start.value, start.dtype), lanes)
        self.builder.store(constant, slot)
        is_extreme = reduction in ("max", "min") and buffer.dtype.is_float
        # A comparison tells whether either side is NaN, so that one looks at two registers.
        count = lanes // 2 if lanes * buffer.dtype.itemsize > self.vector_bytes else lanes
        return _Partial(slot, type, reduction, self._clear_flags(count) if is_extreme else None)

    def _clear_flags(self, count: int) -> _Flags:
        type = widened(I1, count)
        flags = _Flags(self._entry_alloca(type), count)
        self.builder.store(zeros(type), flags.slot)
        return flags

    def _narrowed(self, partials: dict[Buffer, _Partial], wide: int, lanes: int) -> dict[Buffer, _Partial]:
        """Fold wide partial results into single vectors, so that the rest of the loop can go on with those."""
        narrow: dict[Buffer, _Partial] = {}
        for buffer, partial in partials.items():
            value = self.builder.load(partial.slot, typ=partial.type)
            parts = [self._part(value, first, lanes) for first in range(0, wide, lanes)]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=True)
                parts = [self._combined(partial, buffer, a, b) for a, b in pairs]
            type = parts[0].type
            slot = self._entry_alloca(type)
            self.builder.store(parts[0], slot)
            unordered = partial.unordered and self._narrowed_flags(partial.unordered, lanes)
            narrow[buffer] = _Partial(slot, type, partial.reduction, unordered)
        return narrow

    def _narrowed_flags(self, wide: _Flags, lanes: int) -> _Flags:
        value = self.builder.load(wide.slot, typ=widened(I1, wide.count))
        parts = (
            [self._part(value, first, lanes) for first in range(0, wide.count, lanes)]
            if lanes < wide.count
            else [value]
        )
        narrow = self._clear_flags(lanes)
        self.builder.store(functools.reduce(self.builder.or_, parts), narrow.slot)
        return narrow

    def _part(self, value: ir.Value, first: int, lanes: int) -> ir.Value:
        if lanes == 1:
            return self.builder.extract_element(value, integer(first, I32))
        return self._shuffled(value, undefined(value.type), range(first, first + lanes))

    def _join_partial(self, buffer: Buffer, partial: _Partial) -> None:
        value = self.builder.load(partial.slot, typ=partial.type)
        total = self.scalar.across(lambda low, high: self._combined(partial, buffer, low, high), value)
        if partial.unordered:
            flags = self.builder.load(partial.unordered.slot, typ=widened(I1, partial.unordered.count))
            seen = self._any(flags) if is_vector(flags) else flags
            total = self.builder.select(seen, self.scalar.number(float("nan"), total), total)
        register = self.registers[buffer]
        old = self.builder.load(register.slot, typ=register.type)
        self.builder.store(self.scalar.combine(partial.reduction, old, total, buffer.dtype), register.slot)

    def accumulate(self, buffer: Buffer, indices: tuple[Dim, ...], reduction: str, value: Scalar) -> None:
        partial = self.partials.get(buffer)
        slot, type = (partial.slot, partial.type) if partial else self._register(buffer, indices)
        old = self.builder.load(slot, typ=type)
        added = self._product_sum(reduction, value, old)
        if added is None:
            new = self.scalar.splat(self.value(value), lanes_of(old))
            if partial and partial.unordered:
                added = self.scalar.combine_ordered(reduction, new, old)
                self._flag_unordered(partial.unordered, new)
            else:
                added = self.scalar.combine(reduction, old, new, buffer.dtype)
        if partial and self.mask is not None and is_vector(old):
            added = self.builder.select(self.mask, added, old)
        self.builder.store(added, slot)

    def _combined(self, partial: _Partial, buffer: Buffer, left: ir.Value, right: ir.Value) -> ir.Value:
        if partial.unordered:
            return self.scalar.combine_ordered(partial.reduction, left, right)
        return self.scalar.combine(partial.reduction, left, right, buffer.dtype)

    def _flag_unordered(self, flags: _Flags, value: ir.Value) -> None:
        """Note which lanes are NaN, or, where there are half as many flags, which are in either half."""
        build, half = self.builder, lanes_of(value) // 2
        sides = (value, value) if flags.count > half else (self._part(value, 0, half), self._part(value, half, half))
        found = build.fcmp_unordered("uno", *sides)
        if self.mask is not None and is_vector(value):
            found = build.and_(found, self.mask)
        old = build.load(flags.slot, typ=widened(I1, flags.count))
        build.store(build.or_(old, found), flags.slot)

    def _product_sum(self, reduction: str, value: Scalar, old: ir.Value) -> ir.Value | None:
        """A fused multiply-add for each product, for a float sum of products or of sums of them."""
        if reduction != "sum" or not dtype_of(value).is_float:
            return None
        match value:
            case Apply("mul", (left, right)):
                parts = [self.scalar.splat(self.value(part), lanes_of(old)) for part in (left, right)]
                return self.scalar.intrinsic("llvm.fma", *parts, old)
            case Apply("add", (first, second)):
                added = self._product_sum(reduction, first, old)
                return None if added is None else self._product_sum(reduction, second, added)
            case _:
                return None

    # --- buffers ---

    def _array_size(self, elements: int) -> ir.Value:
        """A number that LLVM does not know to be this one: it takes small arrays apart into registers, and LLVM 22 then
        uses some of them before they are computed (VectorCombine, two halves of a wide vector)."""
        with self.builder.goto_entry_block():
            begin = self.builder.function.args[-2]
            return self.builder.add(integer(elements), self.builder.lshr(begin, integer(63)))

    def _entry_alloca(self, type: ir.Type, count: int | ir.Value = 1) -> ir.Value:
        """A slot of the function's frame, made once however often the loop around it runs."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(type, size=count)
            slot.align = 64
            return slot

    def allocate(self, buffer: Buffer) -> None:
        if buffer.scope == "register":
            if not buffer.shape:
                lanes = self.lanes.count if self.lanes else 1
                type = widened(register_type(buffer.dtype.compute), lanes)
                self.registers[buffer] = _Register(self._entry_alloca(type), type)
            return
        elements = expr.product(buffer.shape)
        assert isinstance(elements, int), f"{buffer} on the stack needs a known size"
        count = self._array_size(max(1, elements)) if elements * buffer.dtype.itemsize <= SMALL_BYTES else elements
        slot = self._entry_alloca(stored_type(buffer.dtype), count)
        slot.type = POINTER  # llvmlite types what it allocates; elements are read and written as vectors too
        self.pointers[buffer] = slot

    def _register(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...]) -> tuple[ir.Value, ir.Type]:
        register = self._tile(buffer, indices) if buffer.shape else self.registers[buffer]
        return register.slot, register.type

    def _tile(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...]) -> _Register:
        """The register that holds an element, or as many as there are lanes from it on."""
        place: list[int] = []
        lanes = 1
        for index in indices:
            assert isinstance(index, (int, expr.Expr))
            if self.lanes is not None and self.lanes.sym in expr.symbols(index):
                lanes = self.lanes.count
            number = expr.substitute(index, self.constants)
            assert isinstance(number, int), f"{buffer} is a tile of registers: its indices are written out"
            place.append(number)
        key = (buffer, tuple(place))
        if key not in self.tiles:
            type = widened(register_type(buffer.dtype.compute), lanes)
            self.tiles[key] = _Register(self._entry_alloca(type), type)
        return self.tiles[key]

    def store(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...], value: Scalar) -> None:
        emitted = self.value(value)
        if buffer.scope == "register":
            slot, type = self._register(buffer, indices)
            rounded = self.scalar.cast(emitted, dtype_of(value), buffer.dtype)
            self.builder.store(self.scalar.splat(rounded, lanes_of_type(type)), slot)
            return
        converted = self.scalar.to_memory(self._to_compute(emitted, value, buffer), buffer.dtype)
        place = self._offset(buffer, indices)
        if self.lanes is None or (place.stride == 0 and place.vector is None):
            self._store_one(buffer, place.base, converted)
        elif place.vector is None and place.stride == 1:
            self._store_run(buffer, place.base, self.scalar.splat(converted, self.lanes.count))
        else:
            self._store_each(buffer, place, self.scalar.splat(converted, self.lanes.count))

    def _to_compute(self, emitted: ir.Value, value: Scalar, buffer: Buffer) -> ir.Value:
        return self.scalar.cast(emitted, dtype_of(value), buffer.dtype.compute)

    def _address(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        return self.builder.gep(self.pointers[buffer], [place], inbounds=True, source_etype=stored_type(buffer.dtype))

    def _store_one(self, buffer: Buffer, place: ir.Value, value: ir.Value) -> None:
        if is_vector(value):
            value = self.builder.extract_element(value, integer(0, I32))
        self.builder.store(value, self._address(buffer, place), align=buffer.dtype.itemsize)

    def _store_run(self, buffer: Buffer, place: ir.Value, value: ir.Value) -> None:
        address = self._address(buffer, place)
        size_bytes = lanes_of(value) * buffer.dtype.itemsize
        if self.is_streaming and self.mask is None and size_bytes % self.vector_bytes == 0:
            self.builder.stream(value, address, align=self.vector_bytes)
            return
        if self.mask is None or not is_vector(value):
            self.builder.store(value, address, align=buffer.dtype.itemsize)
            return
        filled = self._filled_lanes()
        if filled is not None and (_is_power(filled) or not self.instructions.avx512):
            self._store_parts(buffer, address, value, filled)
            return
        mask = self.scalar.splat(self.mask, lanes_of(value))
        types = [value.type, POINTER, I32, mask.type]
        function = declare_intrinsic(self.module, "llvm.masked.store", types[:2], ir.VoidType(), types)
        self.builder.call(function, [value, address, integer(buffer.dtype.itemsize, I32), mask])

    def _store_parts(self, buffer: Buffer, address: ir.Value, value: ir.Value, filled: int) -> None:
        """The first lanes of a vector, in as few stores as narrower vectors allow for.

        Without registers for masks a store under one takes long: on Zen 3 it is microcode.
        """
        first = 0
        while first < filled:
            lanes = 1 << ((filled - first).bit_length() - 1)
            place = self.builder.gep(address, [integer(first)], source_etype=stored_type(buffer.dtype))
            self.builder.store(self._part(value, first, lanes), place, align=buffer.dtype.itemsize)
            first += lanes

    def _filled_lanes(self) -> int | None:
        """How many lanes are wanted, if those are the first ones and no condition besides decides."""
        return self.lanes.filled if self.lanes is not None and self.mask is self.lanes.active else None

    def fetch(self, buffer: Buffer, indices: tuple[Dim, ...], to_write: bool, cache: int) -> None:
        """Ask for the lines of neighbouring elements, one element per lane; under a mask it is not worth it."""
        if self.mask is not None:
            return
        place = self._offset(buffer, indices)
        assert place.vector is None and place.stride in (0, 1), f"a fetch of {buffer} is of neighbours"
        count = self.lanes.count if self.lanes and place.stride else 1
        types = [POINTER, I32, I32, I32]
        prefetch = declare_intrinsic(self.module, "llvm.prefetch", types[:1], ir.VoidType(), types)
        first = self.builder.gep(self.pointers[buffer], [place.base], source_etype=stored_type(buffer.dtype))
        for start in range(0, count * buffer.dtype.itemsize, LINE_BYTES):
            line = self.builder.gep(first, [integer(start)], source_etype=I8)
            locality = max(0, NEAREST - cache + 1)
            self.builder.call(prefetch, [line, *(integer(each, I32) for each in (int(to_write), locality, 1))])

    def _store_each(self, buffer: Buffer, place: _Place, value: ir.Value) -> None:
        for lane in range(lanes_of(value)):
            number = integer(lane, I32)
            item = self.builder.extract_element(value, number) if is_vector(value) else value
            if self.mask is None or not is_vector(value):
                self.builder.store(item, self._address(buffer, self._lane(place, lane)), align=buffer.dtype.itemsize)
                continue
            with self.builder.if_then(self.builder.extract_element(self.mask, number)):
                self.builder.store(item, self._address(buffer, self._lane(place, lane)), align=buffer.dtype.itemsize)

    # --- scalar expressions ---

    def value(self, scalar: Scalar) -> ir.Value:
        """The value of an expression: one lane if it is the same in all, else a vector."""
        if self.known is None or not isinstance(scalar, (Apply, Load)):
            return self._value(scalar)
        found = self.known.get((id(scalar), self.builder.block))
        if found is not None and found[0] is self.mask:
            return found[1]
        value = self._value(scalar)
        self.known[id(scalar), self.builder.block] = (self.mask, value)
        return value

    def _value(self, scalar: Scalar) -> ir.Value:
        match scalar:
            case Const(value, dtype):
                return self.scalar.constant(value, dtype)
            case Index(value):
                return self.index(value)
            case Load():
                return self.load(scalar)
            case Cast(value, dtype, saturate):
                return self.scalar.cast(self.value(value), dtype_of(value), dtype, saturate)
            case Select():
                return self.select(scalar)
            case Apply(op, (Index(left), Index(right))) if self._is_lane_after(op, left, right):
                return self._compare_lanes(op, left, right)
            case Apply(op, arguments):
                return self.scalar.apply(op, [self.value(a) for a in arguments], dtype_of(arguments[0]))

    def _is_lane_after(self, op: str, left: Dim, right: Dim) -> bool:
        """Whether a comparison holds in the first lanes, or in all but these."""
        if self.lanes is None or self.lanes.count == 1 or op not in ("lt", "ge"):
            return False
        linear = expr.try_linear(left - right, frozenset({self.lanes.sym}))
        return linear is not None and linear[0].get(self.lanes.sym) == 1

    def _compare_lanes(self, op: str, left: Dim, right: Dim) -> ir.Value:
        assert self.lanes is not None
        start = self.index(expr.substitute(right - left, {self.lanes.sym: 0}))
        before = self._before_lane(self.builder.sub(start, self.values[self.lanes.sym]), self.lanes.count)
        return before if op == "lt" else self.builder.not_(before)

    def _before_lane(self, number: ir.Value, lanes: int) -> ir.Value:
        """The lanes below a number: compared in as few bits as hold it, which takes the fewest registers."""
        narrow = I8 if lanes < 1 << 8 else I16
        number = self.scalar.intrinsic("llvm.smax", number, integer(0))
        number = self.scalar.intrinsic("llvm.smin", number, integer(lanes))
        wanted = self.scalar.splat(self.builder.trunc(number, narrow), lanes)
        return self.builder.icmp_unsigned("<", _lane_numbers(lanes, type=narrow), wanted)

    def select(self, select: Select) -> ir.Value:
        """Both branches are computed; loads of the one not taken are masked off."""
        condition = self.value(select.condition)
        with self.masked(condition):
            then = self.value(select.then)
        with self.masked(self.builder.not_(condition)):
            otherwise = self.value(select.otherwise)
        then, otherwise = self.scalar.alike(then, otherwise)
        if is_vector(condition) or is_vector(then):
            condition, then, otherwise = self.scalar.alike(condition, then, otherwise)
        return self.builder.select(condition, then, otherwise)

    @contextmanager
    def masked(self, condition: ir.Value) -> Iterator[None]:
        outer = self.mask
        if outer is None:
            self.mask = condition
        else:
            left, right = self.scalar.alike(outer, condition)
            self.mask = self.builder.and_(left, right)
        yield
        self.mask = outer

    def load(self, load: Load) -> ir.Value:
        buffer = load.source
        assert isinstance(buffer, Buffer)
        if buffer.scope == "register":
            slot, type = self._register(buffer, load.indices)
            return self.builder.load(slot, typ=type)
        if load in self.blocks:
            return self.scalar.from_memory(self.blocks[load], buffer.dtype)
        place = self._offset(buffer, load.indices)
        if place.vector is None and place.stride == 0:
            raw = self._load_one(buffer, place.base)
        elif place.vector is None and place.stride == 1:
            raw = self._load_run(buffer, place.base)
        elif place.vector is None and place.stride == 2:
            raw = self._load_every_second(buffer, place.base)
        else:
            raw = self._load_each(buffer, place)
        return self.scalar.from_memory(raw, buffer.dtype)

    def _load_one(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        """One element for all lanes; element 0 where no lane wants it."""
        if self.mask is not None and not (self.lanes is not None and self.mask is self.lanes.active):
            wanted = self.mask if not is_vector(self.mask) else self._any(self.mask)
            place = self.builder.select(wanted, place, integer(0))
        return self.builder.load(
            self._address(buffer, place), typ=stored_type(buffer.dtype), align=buffer.dtype.itemsize
        )

    def _any(self, mask: ir.Value) -> ir.Value:
        function = declare_intrinsic(self.module, "llvm.vector.reduce.or", [mask.type], I1, [mask.type])
        return self.builder.call(function, [mask])

    def _load_run(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        """Neighbouring elements, one per lane; lanes that are masked off read zero."""
        assert self.lanes is not None
        type, address = widened(stored_type(buffer.dtype), self.lanes.count), self._address(buffer, place)
        if self.mask is None:
            return self.builder.load(address, typ=type, align=buffer.dtype.itemsize)
        if self.lanes.count == 1:
            return self._load_one(buffer, place)
        filled = self._filled_lanes()
        if filled is not None and filled > 1 and _is_power(filled):
            narrow = widened(stored_type(buffer.dtype), filled)
            run = self.builder.load(address, typ=narrow, align=buffer.dtype.itemsize)
            places = [min(lane, filled) for lane in range(self.lanes.count)]
            return self._shuffled(run, zeros(narrow), places)
        mask = self.scalar.splat(self.mask, self.lanes.count)
        return self._masked_load(address, type, mask, buffer.dtype.itemsize)

    def _masked_load(self, address: ir.Value, type: ir.Type, mask: ir.Value, itemsize: int) -> ir.Value:
        types = [POINTER, I32, mask.type, type]
        function = declare_intrinsic(self.module, "llvm.masked.load", [type, POINTER], type, types)
        return self.builder.call(function, [address, integer(itemsize, I32), mask, zeros(type)])

    def _load_every_second(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        """Every second element, one per lane: two runs that end where the last of them is, and their even places."""
        assert self.lanes is not None
        count = self.lanes.count
        if count == 1:
            return self._load_run(buffer, place)
        lanes, outer = range(count), self.mask
        halves: list[ir.Value] = []
        for first in (0, count - 1):
            if outer is not None:
                mask = self.scalar.splat(outer, count)
                none = zeros(mask.type)
                wanted = [(first + k) // 2 if (first + k) % 2 == 0 else count for k in lanes]
                self.mask = self._shuffled(mask, none, wanted)
            halves.append(self._load_run(buffer, self.builder.add(place, integer(first))))
        self.mask = outer
        return self._shuffled(halves[0], halves[1], [2 * k if 2 * k < count else 2 * k + 1 for k in lanes])

    def _shuffled(self, left: ir.Value, right: ir.Value, places: Sequence[int]) -> ir.Value:
        return self.builder.shuffle_vector(left, right, lane_constants(tuple(places)))

    def _load_each(self, buffer: Buffer, place: _Place) -> ir.Value:
        assert self.lanes is not None
        type = widened(stored_type(buffer.dtype), self.lanes.count)
        if self.mask is not None:
            place = self._masked_place(place)
        result: ir.Value = undefined(type)
        for lane in range(self.lanes.count):
            address = self._address(buffer, self._lane(place, lane))
            item = self.builder.load(address, typ=stored_type(buffer.dtype), align=buffer.dtype.itemsize)
            result = self.builder.insert_element(result, item, integer(lane, I32)) if is_vector(result) else item
        return result

    def _masked_place(self, place: _Place) -> _Place:
        """Element 0 for lanes that are masked off."""
        assert self.lanes is not None and self.mask is not None
        every = self._vector_place(place)
        mask, zeros = self.scalar.splat(self.mask, lanes_of(every)), self.scalar.number(0, every)
        return _Place(place.base, 0, self.builder.select(mask, every, zeros))

    def _vector_place(self, place: _Place) -> ir.Value:
        assert self.lanes is not None
        if place.vector is not None:
            return place.vector
        steps = _lane_numbers(self.lanes.count, place.stride)
        return self.builder.add(self.scalar.splat(place.base, self.lanes.count), steps)

    def _lane(self, place: _Place, lane: int) -> ir.Value:
        if place.vector is not None:
            return (
                self.builder.extract_element(place.vector, integer(lane, I32))
                if is_vector(place.vector)
                else place.vector
            )
        return self.builder.add(place.base, integer(lane * place.stride))

    # --- addresses ---

    def _offset(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...]) -> _Place:
        """Where an access goes: a base and a stride per lane, or an offset for each lane."""
        flat = self.offsets.get((buffer, indices))
        if flat is None:
            plain = tuple(index if isinstance(index, (int, expr.Expr)) else 0 for index in indices)
            flat = self.offsets[buffer, indices] = offset(buffer.shape, plain)
        place = self._place(flat)
        for number, index in enumerate(indices):
            if isinstance(index, (int, expr.Expr)):
                continue
            stride = self.index(expr.product(buffer.shape[number + 1 :]))
            step = self._clamped(self.scalar.cast(self.value(index), dtype_of(index), _I64), buffer.shape[number])
            place = self._moved(place, step, stride)
        return place

    def _clamped(self, index: ir.Value, extent: Dim) -> ir.Value:
        """An index that came from data, kept inside the buffer whatever it was."""
        last = self.builder.sub(self.index(extent), integer(1))
        low, high = (self.scalar.splat(bound, lanes_of(index)) for bound in (integer(0), last))
        return self.scalar.intrinsic("llvm.smax", self.scalar.intrinsic("llvm.smin", index, high), low)

    def _moved(self, place: _Place, step: ir.Value, stride: ir.Value) -> _Place:
        build = self.builder
        if not is_vector(step):
            distance = build.mul(step, stride)
            if place.vector is None:
                return _Place(build.add(place.base, distance), place.stride, None)
            return _Place(place.base, 0, build.add(place.vector, self.scalar.splat(distance, lanes_of(place.vector))))
        distance = build.mul(step, self.scalar.splat(stride, lanes_of(step)))
        return _Place(place.base, 0, build.add(self._vector_place(place), distance))

    def _place(self, value: Dim) -> _Place:
        linear = self._linear(value)
        if linear is None:
            emitted = self.index(value)
            return _Place(emitted, 0, emitted if is_vector(emitted) else None)
        coefficients, rest, constant = linear
        constant += sum(step * self.constants[sym] for sym, step in coefficients.items() if sym in self.constants)
        base = self._with_constant(rest, constant)
        if self.lanes is None:
            return _Place(base, 0, None)
        stride = coefficients.get(self.lanes.sym, 0)
        if stride and self.lanes.sym not in self.constants:
            first = self.values[self.lanes.sym]
            base = self.builder.add(base, first if stride == 1 else self.builder.mul(first, integer(stride)))
        return _Place(base, stride if self.lanes.count > 1 else min(1, abs(stride)), None)

    def _linear(self, value: Dim) -> _Linear | None:
        """Steps of the variables that are written out or run in vectors, the rest, and its constant term."""
        variables = frozenset(self.constants)
        if self.lanes is not None:
            variables |= {self.lanes.sym}
        key = (value, variables)
        if key in self.linear:
            linear = self.linear[key]
        else:
            found = expr.try_linear(value, variables)
            linear = self.linear[key] = None if found is None else (found[0], *_without_constant(found[1]))
        return linear or self._linear_here(value)

    def _linear_here(self, value: Dim) -> _Linear | None:
        """The same of a value that is linear only once it is known which iterations are written out."""
        lane = frozenset[Sym]() if self.lanes is None else frozenset({self.lanes.sym})
        known: dict[Sym, Dim] = {sym: number for sym, number in self.constants.items() if sym not in lane}
        found = expr.try_linear(expr.substitute(value, known), lane)
        return None if found is None else (found[0], *_without_constant(found[1]))

    def _with_constant(self, rest: Dim, constant: int) -> ir.Value:
        """An index that is the same in all lanes; emitted once in each block, but for its constant term."""
        if rest == 0:
            return integer(constant)
        key = (self.builder.block, rest)
        base = self.indices.get(key)
        if base is None:
            base = self.indices[key] = self.index(rest)
        return self.builder.add(base, integer(constant)) if constant else base

    def index(self, value: Dim) -> ir.Value:
        """An integer expression: one lane, or a vector if it depends on the variable of the vector loop."""
        if isinstance(value, int):
            return integer(value)
        total: ir.Value = integer(0)
        for number, (monomial, coefficient) in enumerate(expr.terms_of(value)):
            factors = [self._atom(atom) for atom in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, integer(coefficient))
            term = functools.reduce(lambda left, right: self.builder.mul(*self.scalar.alike(left, right)), factors)
            total = term if number == 0 else self.builder.add(*self.scalar.alike(total, term))
        return total

    def _atom(self, atom: Sym | Op) -> ir.Value:
        if isinstance(atom, Sym):
            value = self.values[atom]
            if self.lanes is not None and atom == self.lanes.sym and self.lanes.count > 1:
                return self.builder.add(self.scalar.splat(value, self.lanes.count), _lane_numbers(self.lanes.count))
            return value
        left, right = self.scalar.alike(self.index(atom.left), self.index(atom.right))
        match atom.kind:
            case "//" | "%":
                return self._floor_divide(atom, left, right)
            case kind:
                return self.scalar.intrinsic(f"llvm.s{kind}", left, right)

    def _floor_divide(self, atom: Op, left: ir.Value, right: ir.Value) -> ir.Value:
        """Unsigned where the dividend cannot be negative, which is what lets LLVM use shifts and multiplications."""
        build = self.builder
        low, _ = expr.bounds(atom.left)
        if low is not None and low >= 0:
            return build.udiv(left, right) if atom.kind == "//" else build.urem(left, right)
        rest = build.srem(left, right)
        negative = build.icmp_signed("<", rest, self.scalar.number(0, rest))
        if atom.kind == "%":
            return build.select(negative, build.add(rest, right), rest)
        quotient = build.sdiv(left, right)
        return build.select(negative, build.sub(quotient, self.scalar.number(1, quotient)), quotient)


@dataclass(frozen=True, slots=True)
class _Place:
    """An address in elements: base + lane * stride, or, where `vector` is given, one offset per lane."""

    base: ir.Value
    stride: int
    vector: ir.Value | None


def _lane_numbers(lanes: int, step: int = 1, type: ir.IntType = I64) -> ir.Constant:
    return lane_constants(tuple([lane * step for lane in range(lanes)]), type)


def _without_constant(value: Dim) -> tuple[Dim, int]:
    constant = dict(expr.terms_of(value)).get((), 0)
    return value - constant, constant


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _first_lanes(wanted: int, lanes: int) -> ir.Constant:
    return lane_constants((1,) * wanted + (0,) * (lanes - wanted), I1)


def lanes_of_type(type: ir.Type) -> int:
    return type.count if isinstance(type, ir.VectorType) else 1
