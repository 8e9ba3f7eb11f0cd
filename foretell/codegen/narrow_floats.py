"""Floats of eight and four bits to float32 and back, as integer arithmetic without branches, rounded to nearest even.

A format is sign, exponent and fraction as in IEEE 754, but says for itself what stands for infinity and NaN. What a
number beyond the largest one becomes follows ml-dtypes, which defines these element types in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import llvmlite.ir as ir

from foretell.codegen.math_lanes import FLOAT32, Lanes, absolute, select, unordered
from foretell.codegen.types import FLOAT, I8, I32, lanes_of, widened
from foretell.ir.dtypes import F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, DType

SIGN_BIT = 1 << 31
INFINITY_BITS = FLOAT32.encode(float("inf"))
NAN_BITS = INFINITY_BITS | 1 << 22


@dataclass(frozen=True, slots=True)
class NarrowFormat:
    """A float of at most eight bits. Codes of `largest`, `infinity` and `nan` are without their sign."""

    exponent: int
    """Bits of the exponent."""
    fraction: int
    """Bits of the fraction, without the hidden one."""
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    nan_is_negative_zero: bool = False
    """Whether there is one zero and one NaN, which has the code of -0 elsewhere."""

    @property
    def sign_shift(self) -> int:
        return self.exponent + self.fraction

    @property
    def dropped(self) -> int:
        """Bits of a float32's fraction that the format has no room for."""
        return FLOAT32.stored - self.fraction

    @property
    def rebias(self) -> int:
        """What the exponent of the same number is larger by in float32."""
        return FLOAT32.bias - self.bias

    @property
    def unit(self) -> float:
        """The smallest positive number."""
        return 2.0 ** (1 - self.bias - self.fraction)

    @property
    def beyond(self) -> int:
        """What a number that is too large becomes: infinity, else NaN, else the largest one."""
        return self.infinity or self.nan or self.largest


FORMATS: dict[DType, NarrowFormat] = {
    F8E4M3FN: NarrowFormat(4, 3, bias=7, largest=0x7E, nan=0x7F),
    F8E4M3FNUZ: NarrowFormat(4, 3, bias=8, largest=0x7F, nan=0x80, nan_is_negative_zero=True),
    F8E5M2: NarrowFormat(5, 2, bias=15, largest=0x7B, infinity=0x7C, nan=0x7E),
    F8E5M2FNUZ: NarrowFormat(5, 2, bias=16, largest=0x7F, nan=0x80, nan_is_negative_zero=True),
    F4E2M1: NarrowFormat(2, 1, bias=1, largest=0x7),
}


def is_narrow_float(dtype: DType) -> bool:
    return dtype in FORMATS or dtype is F8E8M0


def decode(builder: ir.IRBuilder, stored: ir.Value, dtype: DType) -> ir.Value:
    """The float32 that a byte stands for."""
    code = Lanes(builder, builder.zext(stored, widened(I32, lanes_of(stored))))
    return (_decode_power(code) if dtype is F8E8M0 else _decode(code, FORMATS[dtype])).value


def encode(builder: ir.IRBuilder, value: ir.Value, dtype: DType, saturate: bool) -> ir.Value:
    """The byte of the nearest number; `saturate` turns what is too large, infinity included, into the largest one."""
    x = Lanes(builder, value)
    code = _encode_power(x) if dtype is F8E8M0 else _encode(x, FORMATS[dtype], saturate)
    return builder.trunc(code.value, widened(I8, lanes_of(value)))


# --- sign, exponent and fraction ---


def _decode(code: Lanes, format: NarrowFormat) -> Lanes:
    magnitude = code & ((1 << format.sign_shift) - 1)
    sign = (code >> format.sign_shift << 31) & SIGN_BIT
    normal = (magnitude << format.dropped) + (format.rebias << FLOAT32.stored)
    bits = select(magnitude < 1 << format.fraction, (_to_float(magnitude) * format.unit).bits(), normal)
    if format.nan_is_negative_zero:
        return select(code.equals(1 << format.sign_shift), NAN_BITS, bits | sign).as_float()
    if format.nan is not None:
        bits = select(magnitude > format.largest, NAN_BITS, bits)
    if format.infinity is not None:
        bits = select(magnitude.equals(format.infinity), INFINITY_BITS, bits)
    return (bits | sign).as_float()


def _encode(x: Lanes, format: NarrowFormat, saturate: bool) -> Lanes:
    size = absolute(x)
    rounded = _rounded(size, format)
    code = select(rounded > format.largest, format.largest if saturate else format.beyond, rounded)
    code = select(unordered(x, x), format.nan or 0, code)
    sign = x.bits() >> 31
    if format.nan_is_negative_zero:
        return code | select(code.equals(0), 0, sign << format.sign_shift)
    if format.nan is None:  # as in ml-dtypes, NaN becomes a zero of the other sign
        sign = select(unordered(x, x), sign ^ 1, sign)
    return code | (sign << format.sign_shift)


def _rounded(size: Lanes, format: NarrowFormat) -> Lanes:
    """The code of a positive number if exponents had no end; a carry out of the fraction is right by itself.

    Below the smallest normal number codes count units, and adding 2^23 of them lets the hardware round to one.
    """
    bits = size.bits()
    odd = (bits >> format.dropped) & 1
    nearest = (bits + odd + ((1 << (format.dropped - 1)) - 1)) >> format.dropped
    shifter = format.unit * 2.0**FLOAT32.stored
    small = (size + shifter).bits() - FLOAT32.encode(shifter)
    smallest_normal = (format.rebias + 1) << FLOAT32.stored
    return select(bits < smallest_normal, small, nearest - (format.rebias << format.fraction))


# --- powers of two: no sign, no zero, no fraction ---


def _decode_power(code: Lanes) -> Lanes:
    """2^(code - 127), of which the first is not normal in float32; 255 is NaN."""
    power = select(code.equals(0), 1 << (FLOAT32.stored - 1), code << FLOAT32.stored)
    return select(code.equals(0xFF), NAN_BITS, power).as_float()


def _encode_power(x: Lanes) -> Lanes:
    """The nearest power of two, of two the larger one; NaN for what is not positive or too large.

    As in ml-dtypes, all between the two smallest powers becomes the larger of them.
    """
    bits = x.bits()
    half = 1 << (FLOAT32.stored - 1)
    nearest = (bits + select(bits < 1 << FLOAT32.stored, bits.lift(half - 1), half)) >> FLOAT32.stored
    is_number = (x > 0.0) & (bits < INFINITY_BITS)
    return select(is_number, nearest, 0xFF)


def _to_float(integer: Lanes) -> Lanes:
    return integer.like(integer.builder.uitofp(integer.value, integer.with_element(FLOAT)))
