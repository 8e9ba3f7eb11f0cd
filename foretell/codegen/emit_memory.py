"""Buffers, in memory and in registers: their addresses, and loads and stores of lanes, under a mask or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import llvmlite.ir as ir

from foretell.codegen.emit_index import IndexEmitter, Place
from foretell.codegen.emit_scalar import ScalarEmitter
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.types import (
    I8,
    I32,
    POINTER,
    declare_intrinsic,
    integer,
    is_vector,
    lanes_of,
    register_type,
    stored_type,
    undefined,
    widened,
    zeros,
)
from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Buffer, Scalar

LINE_BYTES = 64
SMALL_BYTES = 4096
"""Arrays of at most this size may be read and written at places that are all known."""
NEAREST = 3
"""What `llvm.prefetch` calls the first cache; further ones have smaller numbers."""


@dataclass(slots=True)
class _Register:
    """A register, or a vector of a register buffer: where it is kept."""

    slot: ir.Value
    type: ir.Type


@dataclass(slots=True)
class MemoryEmitter:
    """Emits loads and stores; holds where buffers are, and the mask of the lanes that are wanted."""

    builder: PrintingBuilder
    scalar: ScalarEmitter
    index: IndexEmitter
    vector_bytes: int
    pointers: dict[Buffer, ir.Value] = field(default_factory=dict)
    registers: dict[Buffer, _Register] = field(default_factory=dict)
    tiles: dict[tuple[Buffer, tuple[int, ...]], _Register] = field(default_factory=dict)
    """Registers of buffers that have a shape, by the place of their first element."""
    mask: ir.Value | None = None
    is_streaming: bool = False
    """Whether full vectors are stored past the caches."""

    @contextmanager
    def masked(self, condition: ir.Value) -> Iterator[None]:
        """Of the lanes that are wanted, only those for which a condition holds."""
        outer = self.mask
        if outer is None:
            self.mask = condition
        else:
            left, right = self.scalar.alike(outer, condition)
            self.mask = self.builder.and_(left, right)
        yield
        self.mask = outer

    def _filled_lanes(self) -> int | None:
        """How many lanes are wanted, if those are the first ones and no condition besides decides."""
        lanes = self.index.lanes
        return lanes.filled if lanes is not None and self.mask is lanes.active else None

    # --- buffers ---

    def allocate(self, buffer: Buffer) -> None:
        if buffer.scope == "register":
            if not buffer.shape:
                lanes = self.index.lanes.count if self.index.lanes else 1
                type = widened(register_type(buffer.dtype.compute), lanes)
                self.registers[buffer] = _Register(self.entry_alloca(type), type)
            return
        elements = expr.product(buffer.shape)
        assert isinstance(elements, int), f"{buffer} on the stack needs a known size"
        count = self._array_size(max(1, elements)) if elements * buffer.dtype.itemsize <= SMALL_BYTES else elements
        slot = self.entry_alloca(stored_type(buffer.dtype), count)
        slot.type = POINTER  # llvmlite types what it allocates; elements are read and written as vectors too
        self.pointers[buffer] = slot

    def _array_size(self, elements: int) -> ir.Value:
        """A number that LLVM does not know to be this one: it takes small arrays apart into registers, and LLVM 22 then
        uses some of them before they are computed (VectorCombine, two halves of a wide vector)."""
        with self.builder.goto_entry_block():
            begin = self.builder.function.args[-2]
            return self.builder.add(integer(elements), self.builder.lshr(begin, integer(63)))

    def entry_alloca(self, type: ir.Type, count: int | ir.Value = 1) -> ir.Value:
        """A slot of the function's frame, made once however often the loop around it runs."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(type, size=count)
            slot.align = 64
            return slot

    def register(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...]) -> tuple[ir.Value, ir.Type]:
        """Where an element of a register buffer is kept, or a vector of them, and its type."""
        register = self._tile(buffer, indices) if buffer.shape else self.registers[buffer]
        return register.slot, register.type

    def _tile(self, buffer: Buffer, indices: tuple[Dim | Scalar, ...]) -> _Register:
        """The register that holds an element, or as many as there are lanes from it on."""
        place: list[int] = []
        lanes = 1
        for index in indices:
            assert isinstance(index, (int, expr.Expr))
            if self.index.lanes is not None and self.index.lanes.sym in expr.symbols(index):
                lanes = self.index.lanes.count
            number = expr.substitute(index, self.index.constants)
            assert isinstance(number, int), f"{buffer} is a tile of registers: its indices are written out"
            place.append(number)
        key = (buffer, tuple(place))
        if key not in self.tiles:
            type = widened(register_type(buffer.dtype.compute), lanes)
            self.tiles[key] = _Register(self.entry_alloca(type), type)
        return self.tiles[key]

    def address(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        return self.builder.gep(self.pointers[buffer], [place], inbounds=True, source_etype=stored_type(buffer.dtype))

    # --- loads ---

    def load(self, buffer: Buffer, place: Place) -> ir.Value:
        """An element for each lane, as it is stored; one for all if they go to the same place."""
        if place.vector is None and place.stride == 0:
            return self._load_one(buffer, place.base)
        if place.vector is None and place.stride == 1:
            return self._load_run(buffer, place.base)
        if place.vector is None and place.stride == 2:
            return self._load_every_second(buffer, place.base)
        return self._load_each(buffer, place)

    def _load_one(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        """One element for all lanes; element 0 where no lane wants it."""
        if self.mask is not None and not (self.index.lanes is not None and self.mask is self.index.lanes.active):
            wanted = self.mask if not is_vector(self.mask) else self.scalar.any(self.mask)
            place = self.builder.select(wanted, place, integer(0))
        return self.builder.load(
            self.address(buffer, place), typ=stored_type(buffer.dtype), align=buffer.dtype.itemsize
        )

    def _load_run(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        """Neighbouring elements, one per lane; lanes that are masked off read zero."""
        assert self.index.lanes is not None
        type, address = widened(stored_type(buffer.dtype), self.index.lanes.count), self.address(buffer, place)
        if self.mask is None:
            return self.builder.load(address, typ=type, align=buffer.dtype.itemsize)
        if self.index.lanes.count == 1:
            return self._load_one(buffer, place)
        filled = self._filled_lanes()
        if filled is not None and filled > 1 and _is_power(filled):
            narrow = widened(stored_type(buffer.dtype), filled)
            run = self.builder.load(address, typ=narrow, align=buffer.dtype.itemsize)
            places = [min(lane, filled) for lane in range(self.index.lanes.count)]
            return self.scalar.shuffled(run, zeros(narrow), places)
        mask = self.scalar.splat(self.mask, self.index.lanes.count)
        return self._masked_load(address, type, mask, buffer.dtype.itemsize)

    def _masked_load(self, address: ir.Value, type: ir.Type, mask: ir.Value, itemsize: int) -> ir.Value:
        types = [POINTER, I32, mask.type, type]
        function = declare_intrinsic(self.builder.module, "llvm.masked.load", [type, POINTER], type, types)
        return self.builder.call(function, [address, integer(itemsize, I32), mask, zeros(type)])

    def _load_every_second(self, buffer: Buffer, place: ir.Value) -> ir.Value:
        """Every second element, one per lane: two runs that end where the last of them is, and their even places."""
        assert self.index.lanes is not None
        count = self.index.lanes.count
        if count == 1:
            return self._load_run(buffer, place)
        lanes, outer = range(count), self.mask
        halves: list[ir.Value] = []
        for first in (0, count - 1):
            if outer is not None:
                mask = self.scalar.splat(outer, count)
                none = zeros(mask.type)
                wanted = [(first + k) // 2 if (first + k) % 2 == 0 else count for k in lanes]
                self.mask = self.scalar.shuffled(mask, none, wanted)
            halves.append(self._load_run(buffer, self.builder.add(place, integer(first))))
        self.mask = outer
        return self.scalar.shuffled(halves[0], halves[1], [2 * k if 2 * k < count else 2 * k + 1 for k in lanes])

    def _load_each(self, buffer: Buffer, place: Place) -> ir.Value:
        assert self.index.lanes is not None
        type = widened(stored_type(buffer.dtype), self.index.lanes.count)
        if self.mask is not None:
            place = self._masked_place(place)
        result: ir.Value = undefined(type)
        for lane in range(self.index.lanes.count):
            address = self.address(buffer, self.index.lane(place, lane))
            item = self.builder.load(address, typ=stored_type(buffer.dtype), align=buffer.dtype.itemsize)
            result = self.builder.insert_element(result, item, integer(lane, I32)) if is_vector(result) else item
        return result

    def _masked_place(self, place: Place) -> Place:
        """Element 0 for lanes that are masked off."""
        assert self.index.lanes is not None and self.mask is not None
        every = self.index.vector_place(place)
        mask, zeros = self.scalar.splat(self.mask, lanes_of(every)), self.scalar.number(0, every)
        return Place(place.base, 0, self.builder.select(mask, every, zeros))

    def load_row(self, buffer: Buffer, first: ir.Value, count: int, is_sure: bool) -> ir.Value:
        """Neighbouring elements; unless all are sure to exist, those outside the buffer are not read."""
        address, type = self.address(buffer, first), ir.VectorType(stored_type(buffer.dtype), count)
        if is_sure:
            return self.builder.load(address, typ=type, align=buffer.dtype.itemsize)
        build, index = self.builder, self.index
        size = index.value(expr.product(buffer.shape))
        before, within = index.before_lane(build.neg(first), count), index.before_lane(build.sub(size, first), count)
        return self._masked_load(address, type, build.and_(within, build.not_(before)), buffer.dtype.itemsize)

    # --- stores ---

    def store(self, buffer: Buffer, place: Place, value: ir.Value) -> None:
        """An element for each lane, or one if all of them go to the same place."""
        lanes = self.index.lanes
        if lanes is None or (place.stride == 0 and place.vector is None):
            self._store_one(buffer, place.base, value)
        elif place.vector is None and place.stride == 1:
            self.store_run(buffer, place.base, self.scalar.splat(value, lanes.count))
        else:
            self._store_each(buffer, place, self.scalar.splat(value, lanes.count))

    def _store_one(self, buffer: Buffer, place: ir.Value, value: ir.Value) -> None:
        if is_vector(value):
            value = self.builder.extract_element(value, integer(0, I32))
        self.builder.store(value, self.address(buffer, place), align=buffer.dtype.itemsize)

    def store_run(self, buffer: Buffer, place: ir.Value, value: ir.Value) -> None:
        """Neighbouring elements, one per lane; nothing where lanes are masked off."""
        address = self.address(buffer, place)
        size_bytes = lanes_of(value) * buffer.dtype.itemsize
        if self.is_streaming and self.mask is None and size_bytes % self.vector_bytes == 0:
            self.builder.stream(value, address, align=self.vector_bytes)
            return
        if self.mask is None or not is_vector(value):
            self.builder.store(value, address, align=buffer.dtype.itemsize)
            return
        filled = self._filled_lanes()
        if filled is not None and (_is_power(filled) or not self.scalar.instructions.avx512):
            self._store_parts(buffer, address, value, filled)
            return
        mask = self.scalar.splat(self.mask, lanes_of(value))
        types = [value.type, POINTER, I32, mask.type]
        function = declare_intrinsic(self.builder.module, "llvm.masked.store", types[:2], ir.VoidType(), types)
        self.builder.call(function, [value, address, integer(buffer.dtype.itemsize, I32), mask])

    def _store_parts(self, buffer: Buffer, address: ir.Value, value: ir.Value, filled: int) -> None:
        """The first lanes of a vector, in as few stores as narrower vectors allow for.

        Without registers for masks a store under one takes long: on Zen 3 it is microcode.
        """
        first = 0
        while first < filled:
            lanes = 1 << ((filled - first).bit_length() - 1)
            place = self.builder.gep(address, [integer(first)], source_etype=stored_type(buffer.dtype))
            self.builder.store(self.scalar.part(value, first, lanes), place, align=buffer.dtype.itemsize)
            first += lanes

    def _store_each(self, buffer: Buffer, place: Place, value: ir.Value) -> None:
        build, index = self.builder, self.index
        for lane in range(lanes_of(value)):
            number = integer(lane, I32)
            item = build.extract_element(value, number) if is_vector(value) else value
            if self.mask is None or not is_vector(value):
                build.store(item, self.address(buffer, index.lane(place, lane)), align=buffer.dtype.itemsize)
                continue
            with build.if_then(build.extract_element(self.mask, number)):
                build.store(item, self.address(buffer, index.lane(place, lane)), align=buffer.dtype.itemsize)

    def fetch(self, buffer: Buffer, place: Place, to_write: bool, cache: int) -> None:
        """Ask for the lines of neighbouring elements, one element per lane."""
        assert place.vector is None and place.stride in (0, 1), f"a fetch of {buffer} is of neighbours"
        count = self.index.lanes.count if self.index.lanes and place.stride else 1
        types = [POINTER, I32, I32, I32]
        prefetch = declare_intrinsic(self.builder.module, "llvm.prefetch", types[:1], ir.VoidType(), types)
        first = self.builder.gep(self.pointers[buffer], [place.base], source_etype=stored_type(buffer.dtype))
        for start in range(0, count * buffer.dtype.itemsize, LINE_BYTES):
            line = self.builder.gep(first, [integer(start)], source_etype=I8)
            locality = max(0, NEAREST - cache + 1)
            self.builder.call(prefetch, [line, *(integer(each, I32) for each in (int(to_write), locality, 1))])


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0
