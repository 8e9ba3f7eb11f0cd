"""Values of expressions in the lanes of a loop: operations, choices, and loads with the places that they go to."""

from __future__ import annotations

from dataclasses import dataclass, field

import llvmlite.ir as ir

from foretell.codegen.emit_index import IndexEmitter, Place
from foretell.codegen.emit_memory import MemoryEmitter
from foretell.codegen.emit_scalar import ScalarEmitter
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.types import integer, is_vector, lane_constants
from foretell.ir import expr
from foretell.ir.dtypes import I64
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Const, Index, Load, Scalar, Select, dtype_of
from foretell.loops.axes import access_stride
from foretell.loops.cases import conditions
from foretell.loops.nodes import Statement, Store, loads_in, offset


@dataclass(slots=True)
class ExpressionEmitter:
    """Emits expressions; holds what they came to where that is asked for again."""

    builder: PrintingBuilder
    scalar: ScalarEmitter
    index: IndexEmitter
    memory: MemoryEmitter
    blocks: dict[Load, ir.Value] = field(default_factory=dict)
    """What loads came to that were transposed together."""
    offsets: dict[tuple[Buffer, tuple[Dim | Scalar, ...]], Dim] = field(default_factory=dict)
    """Index arithmetic that is done once, however often loops are written out."""
    known: dict[tuple[int, ir.Block], tuple[ir.Value | None, ir.Value]] | None = None
    """Among stores in a row, the mask under which an expression, by identity, was last emitted in a block; and what
    it came to."""

    def value(self, scalar: Scalar) -> ir.Value:
        """The value of an expression: one lane if it is the same in all, else a vector."""
        if self.known is None or not isinstance(scalar, (Apply, Load)):
            return self._value(scalar)
        found = self.known.get((id(scalar), self.builder.block))
        if found is not None and found[0] is self.memory.mask:
            return found[1]
        value = self._value(scalar)
        self.known[id(scalar), self.builder.block] = (self.memory.mask, value)
        return value

    def _value(self, scalar: Scalar) -> ir.Value:
        match scalar:
            case Const(value, dtype):
                return self.scalar.constant(value, dtype)
            case Index(value):
                return self.index.value(value)
            case Load():
                return self.load(scalar)
            case Cast(value, dtype, saturate):
                return self.scalar.cast(self.value(value), dtype_of(value), dtype, saturate)
            case Select():
                return self.select(scalar)
            case Apply(op, (Index(left), Index(right))) if self.index.is_lane_after(op, left, right):
                return self.index.compare_lanes(op, left, right)
            case Apply(op, arguments):
                return self.scalar.apply(op, [self.value(a) for a in arguments], dtype_of(arguments[0]))

    def select(self, select: Select) -> ir.Value:
        """Both branches are computed; loads of the one not taken are masked off."""
        condition = self.value(select.condition)
        with self.memory.masked(condition):
            then = self.value(select.then)
        with self.memory.masked(self.builder.not_(condition)):
            otherwise = self.value(select.otherwise)
        then, otherwise = self.scalar.alike(then, otherwise)
        if is_vector(condition) or is_vector(then):
            condition, then, otherwise = self.scalar.alike(condition, then, otherwise)
        return self.builder.select(condition, then, otherwise)

    def load(self, load: Load) -> ir.Value:
        buffer = load.source
        assert isinstance(buffer, Buffer)
        if buffer.scope == "register":
            slot, type = self.memory.register(buffer, load.indices)
            return self.builder.load(slot, typ=type)
        if load in self.blocks:
            return self.scalar.from_memory(self.blocks[load], buffer.dtype)
        raw = self.memory.load(buffer, self.offset(buffer, load.indices))
        return self.scalar.from_memory(raw, buffer.dtype)

    def offset(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...]) -> Place:
        """Where an access goes: a base and a stride per lane, or an offset for each lane."""
        flat = self.offsets.get((buffer, indices))
        if flat is None:
            plain = tuple(index if isinstance(index, (int, expr.Expr)) else 0 for index in indices)
            flat = self.offsets[buffer, indices] = offset(buffer.shape, plain)
        place = self.index.place(flat)
        for number, index in enumerate(indices):
            if isinstance(index, (int, expr.Expr)):
                continue
            stride = self.index.value(expr.product(buffer.shape[number + 1 :]))
            step = self.index.clamped(self.scalar.cast(self.value(index), dtype_of(index), I64), buffer.shape[number])
            place = self.index.moved(place, step, stride)
        return place

    # --- blocks of loads ---

    def transposed_loads(self, sym: Sym, extent: int, body: Statement) -> dict[Load, list[ir.Value]]:
        """For each load that suits it, the vectors of a square block, one per value of `sym`."""
        if extent < 2 or self.index.lanes is None or self.memory.mask is not None or extent != self.index.lanes.count:
            return {}
        if not isinstance(body, Store):
            return {}
        self.index.values[sym] = integer(0)
        found: dict[Load, list[ir.Value]] = {}
        for load in loads_in(body.value):
            buffer, plain = load.source, tuple(i for i in load.indices if isinstance(i, (int, expr.Expr)))
            if not isinstance(buffer, Buffer) or len(plain) != len(load.indices) or buffer.scope == "register":
                continue
            place = self.offset(buffer, plain)
            if access_stride(buffer, plain, sym) != 1 or place.vector is not None or place.stride in (0, 1):
                continue
            is_sure = next(iter(conditions(body.value)), None) is None
            rows = [self.memory.load_row(buffer, self.index.lane(place, k), extent, is_sure) for k in range(extent)]
            found[load] = self._transposed(rows)
        return found

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
