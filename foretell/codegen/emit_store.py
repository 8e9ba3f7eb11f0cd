"""Store statements: values as their buffers keep them, and stores in a row whose elements are neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import llvmlite.ir as ir

from foretell.codegen.emit_expression import ExpressionEmitter
from foretell.codegen.emit_index import IndexEmitter
from foretell.codegen.emit_memory import MemoryEmitter
from foretell.codegen.emit_scalar import ScalarEmitter
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.types import lanes_of, lanes_of_type
from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Buffer, Scalar, dtype_of
from foretell.loops.interleave import PERIODS
from foretell.loops.nodes import Store, distinct_loads, offset


@dataclass(frozen=True, slots=True)
class StoreEmitter:
    """Emits stores, one at a time or several in a row."""

    builder: PrintingBuilder
    scalar: ScalarEmitter
    index: IndexEmitter
    memory: MemoryEmitter
    expression: ExpressionEmitter

    def store(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...], value: Scalar) -> None:
        emitted = self.expression.value(value)
        if buffer.scope == "register":
            slot, type = self.memory.register(buffer, indices)
            rounded = self.scalar.cast(emitted, dtype_of(value), buffer.dtype)
            self.builder.store(self.scalar.splat(rounded, lanes_of_type(type)), slot)
            return
        converted = self.scalar.to_memory(self._to_compute(emitted, value, buffer), buffer.dtype)
        self.memory.store(buffer, self.expression.offset(buffer, indices), converted)

    def stores(self, stores: Sequence[Store]) -> None:
        """Stores in a row: what they compute in common is computed once, unless they read what they write."""
        outer, read = self.expression.known, {load.source for load in distinct_loads(store.value for store in stores)}
        self.expression.known = {} if all(store.buffer not in read for store in stores) else None
        place = self._try_interleaved(stores) if self.expression.known is not None else None
        if place is not None:
            self._store_interleaved(stores, place)
        else:
            for store in stores:
                self.store(store.buffer, store.indices, store.value)
        self.expression.known = outer

    def _try_interleaved(self, stores: Sequence[Store]) -> Dim | None:
        """Where the first of several stores goes if its neighbours are those of the others, lane by lane."""
        count = len(stores)
        if count not in PERIODS or self.index.lanes is None or self.index.lanes.count == 1:
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
        linear = self.index.try_linear(places[0])
        return places[0] if linear is not None and linear[0].get(self.index.lanes.sym) == count else None

    def _store_interleaved(self, stores: Sequence[Store], place: Dim) -> None:
        assert self.index.lanes is not None
        buffer, lanes, address = stores[0].buffer, self.index.lanes.count, self.index.place(place).base
        emitted = [self._to_compute(self.expression.value(store.value), store.value, buffer) for store in stores]
        values = [self.scalar.splat(self.scalar.to_memory(each, buffer.dtype), lanes) for each in emitted]
        outer, own = self.memory.mask, self.index.lanes
        if outer is not None:
            self.memory.mask = self._interleave([self.scalar.splat(outer, lanes)] * len(stores))
        self.index.lanes = replace(own, filled=None)
        self.memory.store_run(buffer, address, self._interleave(values))
        self.memory.mask, self.index.lanes = outer, own

    def _interleave(self, vectors: Sequence[ir.Value]) -> ir.Value:
        """One lane of each in turn: of two, or of those with even numbers and those with odd ones."""
        left, right = (
            vectors if len(vectors) == 2 else (self._interleave(vectors[0::2]), self._interleave(vectors[1::2]))
        )
        lanes = lanes_of(left)
        return self.scalar.shuffled(left, right, [half * lanes + lane for lane in range(lanes) for half in range(2)])

    def _to_compute(self, emitted: ir.Value, value: Scalar, buffer: Buffer) -> ir.Value:
        return self.scalar.cast(emitted, dtype_of(value), buffer.dtype.compute)
