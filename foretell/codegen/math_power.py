"""Functions of two arguments: pow and fmod of floats, powers of integers."""

from __future__ import annotations

import math

import llvmlite.ir as ir

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_exponential import exp_of_sum
from foretell.codegen.math_lanes import (
    FLOAT32,
    INFINITY,
    NAN,
    Lanes,
    absolute,
    at_least,
    at_most,
    copysign,
    exact_product,
    exact_sum_ordered,
    fma,
    intrinsic,
    mad,
    polynomial,
    select,
)
from foretell.codegen.math_logarithm import split_exponent


def pow(x: Lanes, y: Lanes) -> Lanes:
    """|x|^y = e^(y log |x|), with the sign of x where y is odd, and the special cases of IEEE 754 (9.2.1)."""
    f = x.format
    a = absolute(x)
    y_or_nan = select(x.is_nan(), x, y)
    power = (_pow_float32 if f is FLOAT32 else _pow_float64)(a, y_or_nan)
    grows = (a > 1.0) ^ (y < 0.0)
    power = select(a.equals(0.0) | a.equals(INFINITY), select(grows, x.lift(INFINITY), 0.0), power)
    power = select(a.equals(1.0), 1.0, power)

    half = y * 0.5
    is_integer = intrinsic("floor", y).equals(y)
    is_odd = is_integer & ~intrinsic("floor", half).equals(half)
    sign = select(is_odd, x.bits() & (1 << (f.bits - 1)), 0)
    signed = (power.bits() ^ sign).as_float()
    signed = select((x < 0.0) & (a < INFINITY) & ~is_integer, NAN, signed)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, signed)


def fmod(x: Lanes, y: Lanes) -> Lanes:
    """x - q y, q the integer nearest to x / y towards zero: exact, with the sign of x.

    While |r| >= |y|, subtract the rounded quotient times y. If the quotient is below 2^precision it is cut to an integer and
    at most one too large; if not, it is an integer already, right in its leading bits. Either way r - q y is
    representable (Muller et al., Handbook of Floating-Point Arithmetic, 4.3), so that the fused step is exact. Each turn removes
    52 bits of the quotient: nearly always one turn is enough. float32 runs in float64, where no quotient overflows.
    """
    if x.format is FLOAT32:
        return fmod(x.to_double(), y.to_double()).to_float()
    a = absolute(x)
    is_valid = (a < INFINITY) & (absolute(y) > 0.0)
    divisor = select(is_valid, absolute(y), 1.0)
    # Below 2^996 nothing overflows on the way; what is that large has room to be scaled exactly.
    down, up = (select(divisor < 2.0**500, x.lift(1.0), 2.0**power) for power in (-600, 600))
    d = divisor * down
    rest = _while(select(is_valid, a * down, 0.0), lambda r: absolute(r) >= d, lambda r: _fmod_step(r, d))
    rest = select(rest < 0.0, rest + d, rest) * up
    return select(is_valid, copysign(select(a < divisor, a, rest), x), NAN)


def ipow(x: Lanes, n: Lanes) -> Lanes:
    """x^n of signed integers, modulo 2^bits; for n < 0 that is 1 / x^|n| cut to an integer: 0, or a power of +-1 (or of 0)."""
    is_negative = (n >> (n.element.width - 1)).equals(1)
    is_unit = (x + 1) <= 2
    return upow(select(is_negative & ~is_unit, 0, x), n)


def upow(x: Lanes, n: Lanes) -> Lanes:
    """x^n of unsigned integers, modulo 2^bits, by squaring (Knuth, TAOCP 2, 4.6.3)."""
    def step(state: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        ...
