"""Reductions: what is accumulated, lane by lane in a vector loop, and joined after it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import llvmlite.ir as ir

from foretell.codegen.emit_expression import ExpressionEmitter
from foretell.codegen.emit_memory import MemoryEmitter
from foretell.codegen.emit_scalar import ScalarEmitter
from foretell.codegen.loop_shape import reduced_in
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.types import I1, is_vector, lanes_of, register_type, widened, zeros
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Apply, Buffer, Scalar, dtype_of
from foretell.loops.nodes import Statement, identity


@dataclass(slots=True)
class _Flags:
    """A slot with so many flags."""

    slot: ir.Value
    count: int


@dataclass(slots=True)
class Partial:
    """Per-lane partial results of a reduction over the current vector loop.

    A float maximum or minimum is kept apart from the NaNs that were seen (`unordered`): together they take one
    instruction and a half a register, where passing NaN on takes four.
    """

    slot: ir.Value
    type: ir.Type
    reduction: str
    unordered: _Flags | None = None


@dataclass(slots=True)
class ReductionEmitter:
    """Emits accumulation; holds the partial results of the vector loop."""

    builder: PrintingBuilder
    scalar: ScalarEmitter
    memory: MemoryEmitter
    expression: ExpressionEmitter
    vector_bytes: int
    partials: dict[Buffer, Partial] = field(default_factory=dict)

    def accumulate(self, buffer: Buffer, indices: tuple[Dim, ...], reduction: str, value: Scalar) -> None:
        partial = self.partials.get(buffer)
        slot, type = (partial.slot, partial.type) if partial else self.memory.register(buffer, indices)
        old = self.builder.load(slot, typ=type)
        added = self._product_sum(reduction, value, old)
        if added is None:
            new = self.scalar.splat(self.expression.value(value), lanes_of(old))
            if partial and partial.unordered:
                added = self.scalar.combine_ordered(reduction, new, old)
                self._flag_unordered(partial.unordered, new)
            else:
                added = self.scalar.combine(reduction, old, new, buffer.dtype)
        if partial and self.memory.mask is not None and is_vector(old):
            added = self.builder.select(self.memory.mask, added, old)
        self.builder.store(added, slot)

    def _flag_unordered(self, flags: _Flags, value: ir.Value) -> None:
        """Note which lanes are NaN, or, where there are half as many flags, which are in either half."""
        build, part, half = self.builder, self.scalar.part, lanes_of(value) // 2
        sides = (value, value) if flags.count > half else (part(value, 0, half), part(value, half, half))
        found = build.fcmp_unordered("uno", *sides)
        if self.memory.mask is not None and is_vector(value):
            found = build.and_(found, self.memory.mask)
        old = build.load(flags.slot, typ=widened(I1, flags.count))
        build.store(build.or_(old, found), flags.slot)

    def _product_sum(self, reduction: str, value: Scalar, old: ir.Value) -> ir.Value | None:
        """A fused multiply-add for each product, for a float sum of products or of sums of them."""
        if reduction != "sum" or not dtype_of(value).is_float:
            return None
        match value:
            case Apply("mul", (left, right)):
                parts = [self.scalar.splat(self.expression.value(part), lanes_of(old)) for part in (left, right)]
                return self.scalar.intrinsic("llvm.fma", *parts, old)
            case Apply("add", (first, second)):
                added = self._product_sum(reduction, first, old)
                return None if added is None else self._product_sum(reduction, second, added)
            case _:
                return None

    # --- partial results ---

    def make_partials(self, body: Statement, lanes: int) -> dict[Buffer, Partial]:
        return {buffer: self._make_partial(buffer, reduction, lanes) for buffer, reduction in reduced_in(body).items()}

    def _make_partial(self, buffer: Buffer, reduction: str, lanes: int) -> Partial:
        type = widened(register_type(buffer.dtype), lanes)
        slot = self.memory.entry_alloca(type)
        start = identity(reduction, buffer.dtype)
        constant = self.scalar.splat(self.scalar.constant(start.value, start.dtype), lanes)
        self.builder.store(constant, slot)
        is_extreme = reduction in ("max", "min") and buffer.dtype.is_float
        # A comparison tells whether either side is NaN, so that one looks at two registers.
        count = lanes // 2 if lanes * buffer.dtype.itemsize > self.vector_bytes else lanes
        return Partial(slot, type, reduction, self._clear_flags(count) if is_extreme else None)

    def _clear_flags(self, count: int) -> _Flags:
        type = widened(I1, count)
        flags = _Flags(self.memory.entry_alloca(type), count)
        self.builder.store(zeros(type), flags.slot)
        return flags

    def narrowed(self, partials: dict[Buffer, Partial], wide: int, lanes: int) -> dict[Buffer, Partial]:
        """Fold wide partial results into single vectors, so that the rest of the loop can go on with those."""
        narrow: dict[Buffer, Partial] = {}
        for buffer, partial in partials.items():
            value = self.builder.load(partial.slot, typ=partial.type)
            parts = [self.scalar.part(value, first, lanes) for first in range(0, wide, lanes)]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=True)
                parts = [self._combined(partial, buffer, a, b) for a, b in pairs]
            type = parts[0].type
            slot = self.memory.entry_alloca(type)
            self.builder.store(parts[0], slot)
            unordered = partial.unordered and self._narrowed_flags(partial.unordered, lanes)
            narrow[buffer] = Partial(slot, type, partial.reduction, unordered)
        return narrow

    def _narrowed_flags(self, wide: _Flags, lanes: int) -> _Flags:
        value = self.builder.load(wide.slot, typ=widened(I1, wide.count))
        parts = (
            [self.scalar.part(value, first, lanes) for first in range(0, wide.count, lanes)]
            if lanes < wide.count
            else [value]
        )
        narrow = self._clear_flags(lanes)
        self.builder.store(functools.reduce(self.builder.or_, parts), narrow.slot)
        return narrow

    def join_partial(self, buffer: Buffer, partial: Partial) -> None:
        value = self.builder.load(partial.slot, typ=partial.type)
        total = self.scalar.across(lambda low, high: self._combined(partial, buffer, low, high), value)
        if partial.unordered:
            flags = self.builder.load(partial.unordered.slot, typ=widened(I1, partial.unordered.count))
            seen = self.scalar.any(flags) if is_vector(flags) else flags
            total = self.builder.select(seen, self.scalar.number(float("nan"), total), total)
        register = self.memory.registers[buffer]
        old = self.builder.load(register.slot, typ=register.type)
        self.builder.store(self.scalar.combine(partial.reduction, old, total, buffer.dtype), register.slot)

    def _combined(self, partial: Partial, buffer: Buffer, left: ir.Value, right: ir.Value) -> ir.Value:
        if partial.unordered:
            return self.scalar.combine_ordered(partial.reduction, left, right)
        return self.scalar.combine(partial.reduction, left, right, buffer.dtype)
