"""Statements, and the loops around them: in vectors, one iteration after the other, or written out.

A vector loop over n runs in steps of `lanes * wide`, then of `lanes`, then once under a mask of n mod lanes. Vectors
wider than a register give LLVM independent chains to interleave.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import llvmlite.ir as ir

from foretell.codegen.emit_expression import ExpressionEmitter
from foretell.codegen.emit_index import IndexEmitter, Lanes
from foretell.codegen.emit_memory import MemoryEmitter
from foretell.codegen.emit_reduction import Partial, ReductionEmitter
from foretell.codegen.emit_store import StoreEmitter
from foretell.codegen.loop_shape import uses_tiles, vector_steps
from foretell.codegen.mark_loops import LoopMarks
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.shared_loads import WrittenOut, try_shared_loads
from foretell.codegen.types import I1, I64, integer, lane_constants
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer
from foretell.loops.nodes import Accumulate, Allocate, Block, Fetch, For, Guard, Statement, Store
from foretell.target.hardware_spec import suits_half_vectors


@dataclass(slots=True)
class LoopEmitter:
    """Emits statements and their loops."""

    builder: PrintingBuilder
    index: IndexEmitter
    memory: MemoryEmitter
    expression: ExpressionEmitter
    store: StoreEmitter
    reduction: ReductionEmitter
    vector_bytes: int
    unit_bytes: int
    tile_element_bytes: int
    """The widest element of the kernel: loops over one tile take as many lanes at a time, whatever they compute."""
    marks: LoopMarks | None = None
    """For those who read the assembly."""
    around: dict[Buffer, Partial] = field(default_factory=dict)
    """Partial results that loops around the vector loop share."""

    def statement(self, statement: Statement) -> None:
        match statement:
            case Block(statements):
                rest = [inner for inner in statements if not isinstance(inner, Fetch)]
                for inner in statements:
                    if isinstance(inner, Fetch):
                        self.statement(inner)
                stores = [inner for inner in rest if isinstance(inner, Store)]
                if len(stores) == len(rest):
                    self.store.stores(stores)
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
                self.store.store(buffer, indices, value)
            case Accumulate(buffer, indices, reduction, value):
                self.reduction.accumulate(buffer, indices, reduction, value)
            case Fetch(buffer, indices, to_write, cache):
                if self.memory.mask is None:  # Under one it is not worth it.
                    self.memory.fetch(buffer, self.expression.offset(buffer, indices), to_write, cache)
            case Allocate(buffer, body):
                self.memory.allocate(buffer)
                self.statement(body)
            case Guard(condition, body):
                with self.builder.if_then(self.expression.value(condition)):
                    self.statement(body)

    # --- one iteration after the other, or written out ---

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
        self.index.values[sym] = variable
        body()
        variable.add_incoming(build.add(variable, integer(step), flags=("nsw", "nuw")), build.block)
        build.branch(head)
        build.position_at_end(after)

    def serial_loop(self, sym: Sym, extent: Dim, body: Statement) -> None:
        """Around a short sum in vectors, its partial results are joined once, after all iterations."""
        inner = body
        while isinstance(inner, For) and inner.kind == "serial":
            inner = inner.body
        lanes = 0
        if isinstance(inner, For) and inner.kind == "vector" and isinstance(inner.body, Accumulate):
            wide, lanes = vector_steps(inner.body, inner.extent, self.vector_bytes)
            lanes = lanes if wide == lanes and not uses_tiles(inner.body) else 0
        joined = {} if lanes == 0 or self.around else self.reduction.make_partials(inner, lanes)
        self.around |= joined
        self.counted_loop(sym, integer(0), self.index.value(extent), 1, lambda: self.statement(body))
        for buffer, partial in joined.items():
            self.reduction.join_partial(buffer, partial)
            del self.around[buffer]

    def unrolled_loop(self, sym: Sym, extent: int, body: Statement) -> None:
        """The body written out; loads that are rows along `sym` but strided across lanes are transposed together."""
        blocks = self.expression.transposed_loads(sym, extent, body)
        for number in range(extent):
            self.index.values[sym] = integer(number)
            self.index.constants[sym] = number
            self.expression.blocks = {load: vectors[number] for load, vectors in blocks.items()}
            self.statement(body)
        self.expression.blocks = {}
        del self.index.constants[sym]

    def written_out(self, written: WrittenOut) -> None:
        """Loops written out together, in the order that was found for them."""
        for point in written.points:
            for sym, number in zip(written.syms, point, strict=True):
                self.index.values[sym], self.index.constants[sym] = integer(number), number
            self.statement(written.body)
        for sym in written.syms:
            del self.index.constants[sym]

    # --- in vectors ---

    def vector_loop(self, sym: Sym, extent: Dim, body: Statement) -> None:
        """Main part in wide vectors, rest in single ones, remainder under a mask; then partial results are joined."""
        if uses_tiles(body):
            assert isinstance(extent, int), "a tile of registers has a known size"
            full, unit = (size // self.tile_element_bytes for size in (self.vector_bytes, self.unit_bytes))
            self._tile_loop(sym, extent, full // 2 if suits_half_vectors(extent, full, unit) else full, body)
            return
        wide, lanes = vector_steps(body, extent, self.vector_bytes)
        count = self.index.value(extent)
        partials = self.around or self.reduction.make_partials(body, wide)
        start: ir.Value = integer(0)
        if wide != lanes:
            start = self._vector_run(sym, start, count, wide, body, partials)
            partials = self.reduction.narrowed(partials, wide, lanes)
        start = self._vector_run(sym, start, count, lanes, body, partials)
        if not (isinstance(extent, int) and extent % lanes == 0):
            self._remainder(sym, start, extent, lanes, body, partials)
        for buffer, partial in partials.items() if not self.around else ():
            self.reduction.join_partial(buffer, partial)

    def stream_loop(self, sym: Sym, extent: Dim, body: Statement) -> None:
        """A vector loop whose full vectors go past the caches, if they lie as such stores need; else as any other."""
        with self.builder.if_else(self._stores_are_aligned(sym, body)) as (aligned, otherwise):
            with aligned:
                self.memory.is_streaming = True
                self.vector_loop(sym, extent, body)
                self.memory.is_streaming = False
            with otherwise:
                self.vector_loop(sym, extent, body)

    def _stores_are_aligned(self, sym: Sym, body: Statement) -> ir.Value:
        """Whether the first element of every store begins a vector register's worth of memory."""
        self.index.values[sym] = integer(0)
        places: list[ir.Value] = []
        for store in body.statements if isinstance(body, Block) else (body,):
            assert isinstance(store, Store), "a stream loop only stores"
            address = self.memory.address(store.buffer, self.expression.offset(store.buffer, store.indices).base)
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
            self.index.values[sym], self.index.constants[sym] = integer(start), start
            self._vector_body(Lanes(sym, count, active, None if active is None else rest), body, {})
        del self.index.constants[sym]

    def _vector_run(
        self, sym: Sym, start: ir.Value, count: ir.Value, step: int, body: Statement, partials: dict[Buffer, Partial]
    ) -> ir.Value:
        """As many full vectors of `step` lanes as fit between start and count; -> where the rest begins."""
        stop = self._multiple_below(count, start, step)
        self.counted_loop(sym, start, stop, step, lambda: self._vector_body(Lanes(sym, step), body, partials))
        return stop

    def _multiple_below(self, count: ir.Value, start: ir.Value, step: int) -> ir.Value:
        """start plus the largest multiple of step that stays within count."""
        build = self.builder
        room = build.sub(count, start)
        return build.add(start, build.and_(room, integer(-step)))

    def _vector_body(self, lanes: Lanes, body: Statement, partials: dict[Buffer, Partial]) -> None:
        outer = self.index.lanes, self.reduction.partials, self.memory.mask
        self.index.lanes, self.reduction.partials, self.memory.mask = lanes, partials, lanes.active
        self.statement(body)
        self.index.lanes, self.reduction.partials, self.memory.mask = outer

    def _remainder(
        self, sym: Sym, start: ir.Value, extent: Dim, lanes: int, body: Statement, partials: dict[Buffer, Partial]
    ) -> None:
        if isinstance(extent, int):
            rest = extent % lanes
            self.index.values[sym] = integer(extent - rest)
            self._vector_body(Lanes(sym, lanes, _first_lanes(rest, lanes), rest), body, partials)
            return
        build, count = self.builder, self.index.value(extent)
        with build.if_then(build.icmp_signed("<", start, count)):
            self.index.values[sym] = start
            active = self.index.before_lane(build.sub(count, start), lanes) if lanes > 1 else None
            self._vector_body(Lanes(sym, lanes, active), body, partials)


def _first_lanes(wanted: int, lanes: int) -> ir.Constant:
    return lane_constants((1,) * wanted + (0,) * (lanes - wanted), I1)
