"""LLVM values whose Python operators emit instructions, so that a numerical method reads as its formulas.

A `Lanes` is one float, one integer or one bit per lane, in one lane or in many. Numbers mixed into an expression become
constants of the type they meet. Comparisons are ordered: false where a lane is NaN. Shifts to the right are logical.
No fast-math flag is ever set: what is written is what is computed, for every number of lanes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import llvmlite.ir as ir

from foretell.codegen.types import Splat, declare_intrinsic

Number: TypeAlias = "Lanes | float"
State: TypeAlias = "tuple[Lanes, ...]"
NAN, INFINITY = math.nan, math.inf


@dataclass(frozen=True, slots=True)
class Format:
    """An IEEE 754 binary format."""

    bits: int
    precision: int
    """Bits of the significand, the hidden one included."""

    @property
    def stored(self) -> int:
        """Bits of the significand that are stored: the position of the exponent field."""
        return self.precision - 1

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.precision - 1)) - 1

    @property
    def shifter(self) -> float:
        """1.5 * 2^stored: adding it to a small x leaves x, rounded to an integer, in the low bits of the sum."""
        return 1.5 * 2.0**self.stored

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def element(self) -> ir.Type:
        return ir.FloatType() if self.bits == 32 else ir.DoubleType()

    def encode(self, value: float) -> int:
        """The bits of a number."""
        return int.from_bytes(struct.pack("<f" if self.bits == 32 else "<d", value), "little")


FLOAT32 = Format(bits=32, precision=24)
FLOAT64 = Format(bits=64, precision=53)


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a target does in one instruction, of that which vector math can do without."""

    fused: bool = True
    """Multiply and add, rounding once."""
    avx512: bool = False
    """Multiply by any power of two, bound a magnitude, and pick among 64 bytes; with multiply-adds that are fused."""


USUAL = Instructions()


class Lanes:
    """A value under construction, of a target that has these instructions."""

    __slots__ = ("builder", "instructions", "value")

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, instructions: Instructions = USUAL) -> None:
        self.builder = builder
        self.value = value
        self.instructions = instructions

    @property
    def type(self) -> ir.Type:
        return self.value.type

    @property
    def width(self) -> int | None:
        """Number of lanes; None for a scalar."""
        return self.type.count if isinstance(self.type, ir.VectorType) else None

    @property
    def element(self) -> ir.Type:
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    @property
    def is_float(self) -> bool:
        return not isinstance(self.element, ir.IntType)

    @property
    def format(self) -> Format:
        """The format of a float, or that of the floats an integer encodes."""
        single = isinstance(self.element, ir.FloatType) or (not self.is_float and self.element.width == 32)
        return FLOAT32 if single else FLOAT64

    def like(self, value: ir.Value) -> Lanes:
        return Lanes(self.builder, value, self.instructions)

    def lift(self, number: Number) -> Lanes:
        """A number as a constant of this type."""
        if isinstance(number, Lanes):
            assert number.type == self.type, f"{self.type} meets {number.type}"
            return number
        scalar = ir.Constant(self.element, number if self.is_float else int(number) % (1 << self.element.width))
        if self.width is None:
            return self.like(scalar)
        return self.like(Splat(self.type, scalar))

    def _emit(self, instruction: str, left: Number, right: Number) -> Lanes:
        return self.like(getattr(self.builder, instruction)(self.lift(left).value, self.lift(right).value))

    def _compare(self, relation: str, other: Number) -> Lanes:
        compare = self.builder.fcmp_ordered if self.is_float else self.builder.icmp_unsigned
        return self.like(compare(relation, self.value, self.lift(other).value))

    def __add__(self, other: Number) -> Lanes:
        return self._emit("fadd" if self.is_float else "add", self, other)

    def __radd__(self, other: float) -> Lanes:
        return self._emit("fadd" if self.is_float else "add", other, self)

    def __sub__(self, other: Number) -> Lanes:
        return self._emit("fsub" if self.is_float else "sub", self, other)

    def __rsub__(self, other: float) -> Lanes:
        return self._emit("fsub" if self.is_float else "sub", other, self)

    def __mul__(self, other: Number) -> Lanes:
        return self._emit("fmul" if self.is_float else "mul", self, other)

    def __rmul__(self, other: float) -> Lanes:
        return self._emit("fmul" if self.is_float else "mul", other, self)

    def __truediv__(self, other: Number) -> Lanes:
        return self._emit("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Lanes:
        return self._emit("fdiv", other, self)

    def __neg__(self) -> Lanes:
        return self.like(self.builder.fneg(self.value)) if self.is_float else self._emit("sub", 0, self)

    def __and__(self, other: Number) -> Lanes:
        return self._emit("and_", self, other)

    def __or__(self, other: Number) -> Lanes:
        return self._emit("or_", self, other)

    def __xor__(self, other: Number) -> Lanes:
        return self._emit("xor", self, other)

    def __invert__(self) -> Lanes:
        return self._emit("xor", self, -1)

    def __lshift__(self, other: Number) -> Lanes:
        return self._emit("shl", self, other)

    def __rshift__(self, other: Number) -> Lanes:
        return self._emit("lshr", self, other)

    def __lt__(self, other: Number) -> Lanes:
        return self._compare("<", other)

    def __le__(self, other: Number) -> Lanes:
        return self._compare("<=", other)

    def __gt__(self, other: Number) -> Lanes:
        return self._compare(">", other)

    def __ge__(self, other: Number) -> Lanes:
        return self._compare(">=", other)

    def equals(self, other: Number) -> Lanes:
        return self._compare("==", other)

    def with_element(self, element: ir.Type) -> ir.Type:
        """The type of as many lanes of another element."""
        return element if self.width is None else ir.VectorType(element, self.width)

    def bits(self) -> Lanes:
        """The encoding of a float as an integer."""
        integer = self.with_element(ir.IntType(self.format.bits))
        return self.like(self.builder.bitcast(self.value, integer))

    def as_float(self) -> Lanes:
        """The float that an integer encodes."""
        return self.like(self.builder.bitcast(self.value, self.with_element(self.format.element)))

    def to_double(self) -> Lanes:
        return self.like(self.builder.fpext(self.value, self.with_element(ir.DoubleType())))

    def to_float(self) -> Lanes:
        return self.like(self.builder.fptrunc(self.value, self.with_element(ir.FloatType())))

    def any(self) -> ir.Value:
        """Whether a condition holds in some lane, as one bit."""
        if self.width is None:
            return self.value
        return call_intrinsic(self.builder, "llvm.vector.reduce.or", self.value, result=ir.IntType(1))


def select(condition: Lanes, then: Number, otherwise: Number) -> Lanes:
    model = then if isinstance(then, Lanes) else otherwise
    assert isinstance(model, Lanes), "one choice must tell the type"
    chosen = condition.builder.select(condition.value, model.lift(then).value, model.lift(otherwise).value)
    return model.like(chosen)


def is_odd(n: Lanes) -> Lanes:
    return (n & 1).equals(1)


def unordered(x: Lanes, y: Lanes) -> Lanes:
    """Whether either is NaN."""
    return x.like(x.builder.fcmp_unordered("uno", x.value, y.value))


def call_intrinsic(builder: ir.IRBuilder, name: str, *arguments: ir.Value, result: ir.Type | None = None) -> ir.Value:
    """A call of an intrinsic that is overloaded on the type of its first argument."""
    types = [argument.type for argument in arguments]
    function = declare_intrinsic(builder.module, name, types[:1], result or types[0], types)
    return builder.call(function, arguments)


def intrinsic(name: str, x: Lanes, *rest: Lanes) -> Lanes:
    return x.like(call_intrinsic(x.builder, f"llvm.{name}", x.value, *(value.value for value in rest)))


def type_name(type: ir.Type) -> str:
    """A type as part of a function's name: `v8f32`."""
    return f"v{type.count}{type_name(type.element)}" if isinstance(type, ir.VectorType) else type.intrinsic_name


def repeat_while(condition: Callable[[State], Lanes], step: Callable[[State], State], state: State) -> State:
    """The state after as many steps as it takes until the condition holds in no lane; done lanes take steps too."""
    builder = state[0].builder
    before, head = builder.basic_block, builder.append_basic_block()
    body, after = builder.append_basic_block(), builder.append_basic_block()
    builder.branch(head)
    builder.position_at_end(head)
    phis = [builder.phi(value.type) for value in state]
    current = tuple(value.like(phi) for value, phi in zip(state, phis, strict=True))
    builder.cbranch(condition(current).any(), body, after)
    builder.position_at_end(body)
    for phi, value, stepped in zip(phis, state, step(current), strict=True):
        phi.add_incoming(value.value, before)
        phi.add_incoming(stepped.value, builder.basic_block)
    builder.branch(head)
    builder.position_at_end(after)
    return current


def absolute(x: Lanes) -> Lanes:
    return intrinsic("fabs", x)


def sqrt(x: Lanes) -> Lanes:
    return intrinsic("sqrt", x)


def copysign(magnitude: Lanes, sign: Lanes) -> Lanes:
    return intrinsic("copysign", magnitude, sign)


def at_most(x: Lanes, bound: float) -> Lanes:
    """min(x, bound), where NaN stays NaN: one instruction on x86."""
    return select(x.lift(bound) < x, bound, x)


def at_least(x: Lanes, bound: float) -> Lanes:
    """max(x, bound), where NaN stays NaN."""
    return select(x.lift(bound) > x, bound, x)


def clamp(x: Lanes, low: float, high: float) -> Lanes:
    return at_least(at_most(x, high), low)


def mad(a: Number, b: Number, c: Number) -> Lanes:
    """a b + c, fused where the target can: for sums that one more rounding does not spoil."""
    a, b, c = _lifted(a, b, c)
    return intrinsic("fma", a, b, c) if a.instructions.fused else a * b + c


def fma(a: Number, b: Number, c: Number) -> Lanes:
    """a b + c, rounded once: for methods that rest on it.

    Without hardware, float32 computes it in float64, where the product is exact; float64 sums the exact product of
    Dekker (Numerische Mathematik 18, 1971). Both return a b + c itself where it is representable, and else round it at
    most twice. Dekker's splitting asks for |a|, |b| < 2^996.
    """
    a, b, c = _lifted(a, b, c)
    if a.instructions.fused:
        return intrinsic("fma", a, b, c)
    if a.format is FLOAT32:
        return (a.to_double() * b.to_double() + c.to_double()).to_float()
    high, low = exact_product(a, b)
    total, error = exact_sum(high, c)
    return total + (error + low)


def exact_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """a + b = s + e exactly, s rounded (Knuth, TAOCP 2, 4.2.2)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def exact_sum_ordered(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """a + b = s + e exactly, for |a| >= |b| or a = 0 (Dekker 1971)."""
    s = a + b
    return s, b - (s - a)


def exact_product(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """a b = p + e exactly, p rounded."""
    p = a * b
    if a.instructions.fused:
        return p, intrinsic("fma", a, b, -p)
    if a.format is FLOAT32:
        return p, fma(a, b, -p)
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return p, a2 * b2 - (((p - a1 * b1) - a2 * b1) - a1 * b2)


def polynomial(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    """c0 + c1 x + c2 x^2 + ...

    Short ones by Horner's rule; long ones as even + x odd, two chains in x^2 that run side by side: half the latency
    for one more multiplication.
    """
    if len(coefficients) <= 10:
        return horner(x, coefficients)
    square = x * x
    return mad(horner(square, coefficients[1::2]), x, horner(square, coefficients[::2]))


def horner(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    """c0 + x (c1 + x (c2 + ...)): what to choose where even and odd terms cancel."""
    return reduce(lambda sum, c: mad(sum, x, c), reversed(coefficients[:-1]), x.lift(coefficients[-1]))


def _halves(a: Lanes) -> tuple[Lanes, Lanes]:
    """a as a sum of two numbers of at most 26 bits (Veltkamp 1968)."""
    scaled = a * (2.0**27 + 1)
    high = scaled - (scaled - a)
    return high, a - high


def _lifted(*numbers: Number) -> list[Lanes]:
    model = next(number for number in numbers if isinstance(number, Lanes))
    return [model.lift(number) for number in numbers]
