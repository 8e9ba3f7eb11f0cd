"""Index expressions: the values of symbols in the loops around, and the places in buffers that lanes go to."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import llvmlite.ir as ir

from foretell.codegen.emit_scalar import ScalarEmitter
from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.types import I8, I16, I32, I64, integer, is_vector, lane_constants, lanes_of
from foretell.ir import expr
from foretell.ir.expr import Dim, Op, Sym

_Linear: TypeAlias = tuple[Mapping[Sym, int], Dim, int]


@dataclass(slots=True)
class Lanes:
    """The vector loop being emitted: its variable's first value, the number of lanes, and which are active."""

    sym: Sym
    count: int
    active: ir.Value | None = None
    filled: int | None = None
    """So many lanes from the first on are active, where that is known."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address in elements: base + lane * stride, or, where `vector` is given, one offset per lane."""

    base: ir.Value
    stride: int
    vector: ir.Value | None


@dataclass(slots=True)
class IndexEmitter:
    """Emits index expressions; holds the values of symbols, and the state of the vector loop."""

    builder: PrintingBuilder
    scalar: ScalarEmitter
    values: dict[Sym, ir.Value] = field(default_factory=dict)
    lanes: Lanes | None = None
    constants: dict[Sym, int] = field(default_factory=dict)
    """Variables of loops that are written out, while one of their iterations is."""
    indices: dict[tuple[ir.Block, Dim], ir.Value] = field(default_factory=dict)
    """What index expressions came to in a block."""
    linear: dict[tuple[Dim, frozenset[Sym]], _Linear | None] = field(default_factory=dict)
    """Index arithmetic that is done once, however often loops are written out."""

    def value(self, value: Dim) -> ir.Value:
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
        left, right = self.scalar.alike(self.value(atom.left), self.value(atom.right))
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

    # --- places ---

    def place(self, value: Dim) -> Place:
        """An offset in elements, for all lanes of the vector loop."""
        linear = self.try_linear(value)
        if linear is None:
            emitted = self.value(value)
            return Place(emitted, 0, emitted if is_vector(emitted) else None)
        coefficients, rest, constant = linear
        constant += sum(step * self.constants[sym] for sym, step in coefficients.items() if sym in self.constants)
        base = self._with_constant(rest, constant)
        if self.lanes is None:
            return Place(base, 0, None)
        stride = coefficients.get(self.lanes.sym, 0)
        if stride and self.lanes.sym not in self.constants:
            first = self.values[self.lanes.sym]
            base = self.builder.add(base, first if stride == 1 else self.builder.mul(first, integer(stride)))
        return Place(base, stride if self.lanes.count > 1 else min(1, abs(stride)), None)

    def try_linear(self, value: Dim) -> _Linear | None:
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
        return linear or self._try_linear_here(value)

    def _try_linear_here(self, value: Dim) -> _Linear | None:
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
            base = self.indices[key] = self.value(rest)
        return self.builder.add(base, integer(constant)) if constant else base

    def clamped(self, index: ir.Value, extent: Dim) -> ir.Value:
        """An index that came from data, kept inside the buffer whatever it was."""
        last = self.builder.sub(self.value(extent), integer(1))
        low, high = (self.scalar.splat(bound, lanes_of(index)) for bound in (integer(0), last))
        return self.scalar.intrinsic("llvm.smax", self.scalar.intrinsic("llvm.smin", index, high), low)

    def moved(self, place: Place, step: ir.Value, stride: ir.Value) -> Place:
        """A place so many strides on: as many for all lanes, or for each its own."""
        build = self.builder
        if not is_vector(step):
            distance = build.mul(step, stride)
            if place.vector is None:
                return Place(build.add(place.base, distance), place.stride, None)
            return Place(place.base, 0, build.add(place.vector, self.scalar.splat(distance, lanes_of(place.vector))))
        distance = build.mul(step, self.scalar.splat(stride, lanes_of(step)))
        return Place(place.base, 0, build.add(self.vector_place(place), distance))

    def vector_place(self, place: Place) -> ir.Value:
        """One offset per lane, however a place is given."""
        assert self.lanes is not None
        if place.vector is not None:
            return place.vector
        steps = _lane_numbers(self.lanes.count, place.stride)
        return self.builder.add(self.scalar.splat(place.base, self.lanes.count), steps)

    def lane(self, place: Place, lane: int) -> ir.Value:
        """The offset of one lane."""
        if place.vector is not None:
            return (
                self.builder.extract_element(place.vector, integer(lane, I32))
                if is_vector(place.vector)
                else place.vector
            )
        return self.builder.add(place.base, integer(lane * place.stride))

    # --- lanes ---

    def is_lane_after(self, op: str, left: Dim, right: Dim) -> bool:
        """Whether a comparison holds in the first lanes, or in all but these."""
        if self.lanes is None or self.lanes.count == 1 or op not in ("lt", "ge"):
            return False
        linear = expr.try_linear(left - right, frozenset({self.lanes.sym}))
        return linear is not None and linear[0].get(self.lanes.sym) == 1

    def compare_lanes(self, op: str, left: Dim, right: Dim) -> ir.Value:
        """Such a comparison, without a vector of either side."""
        assert self.lanes is not None
        start = self.value(expr.substitute(right - left, {self.lanes.sym: 0}))
        before = self.before_lane(self.builder.sub(start, self.values[self.lanes.sym]), self.lanes.count)
        return before if op == "lt" else self.builder.not_(before)

    def before_lane(self, number: ir.Value, lanes: int) -> ir.Value:
        """The lanes below a number: compared in as few bits as hold it, which takes the fewest registers."""
        narrow = I8 if lanes < 1 << 8 else I16
        number = self.scalar.intrinsic("llvm.smax", number, integer(0))
        number = self.scalar.intrinsic("llvm.smin", number, integer(lanes))
        wanted = self.scalar.splat(self.builder.trunc(number, narrow), lanes)
        return self.builder.icmp_unsigned("<", _lane_numbers(lanes, type=narrow), wanted)


def _lane_numbers(lanes: int, step: int = 1, type: ir.IntType = I64) -> ir.Constant:
    return lane_constants(tuple([lane * step for lane in range(lanes)]), type)


def _without_constant(value: Dim) -> tuple[Dim, int]:
    constant = dict(expr.terms_of(value)).get((), 0)
    return value - constant, constant
