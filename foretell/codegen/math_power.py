"""Functions of two arguments: pow and fmod of floats, powers of integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_exponential import exp2_factors, exp_of_sum
from foretell.codegen.math_lanes import (
    FLOAT32,
    INFINITY,
    NAN,
    Lanes,
    State,
    absolute,
    clamp,
    copysign,
    exact_product,
    exact_sum_ordered,
    fma,
    intrinsic,
    is_odd,
    mad,
    polynomial,
    repeat_while,
    select,
    sqrt,
    unordered,
)
from foretell.codegen.math_logarithm import split, split_normal


def pow(x: Lanes, y: Lanes) -> Lanes:
    """|x|^y = e^(y log |x|), negative where x is and y is odd, with the special cases of IEEE 754 (9.2.1)."""
    bits, a = x.format.bits, absolute(x)
    power = (_pow_float32 if bits == 32 else _pow_float64)(a, y)
    grows = (a > 1.0) ^ (y < 0.0)
    power = select(a.equals(0.0) | a.equals(INFINITY), select(grows, x.lift(INFINITY), 0.0), power)
    power = select(a.equals(1.0), 1.0, power)

    half = y * 0.5
    is_integer = intrinsic("floor", y).equals(y)
    is_odd_integer = is_integer & ~intrinsic("floor", half).equals(half)
    sign = select(is_odd_integer, x.bits() & (1 << (bits - 1)), 0)
    is_undefined = unordered(x, y) | ((x < 0.0) & (a < INFINITY) & ~is_integer)
    signed = select(is_undefined, NAN, (power.bits() ^ sign).as_float())
    return select(y.equals(0.0) | x.equals(1.0), 1.0, signed)


def try_constant_power(x: Lanes, exponent: float) -> Lanes | None:
    """x^exponent by two multiplications, a square root or a division, if that keeps the bound on errors."""
    match exponent:
        case 0.0:
            return x.lift(1.0)
        case 1.0 | 2.0 | 3.0 | 4.0:
            square = x * x
            return (x, square, square * x, square * square)[int(exponent) - 1]
        case -1.0 | -2.0:
            inverse = 1.0 / x
            return inverse if exponent == -1.0 else inverse * inverse
        case 0.5 | -0.5:
            root = select(x.equals(-INFINITY), INFINITY, sqrt(x + 0.0))  # x + 0 makes +0 of -0
            return root if exponent == 0.5 else 1.0 / root
        case _:
            return None


def fmod(x: Lanes, y: Lanes) -> Lanes:
    """x - q y, q the quotient x / y cut to an integer: exact, with the sign of x.

    While |r| >= |y|, the rounded quotient times y is subtracted: nearly always once. float32 runs in float64, where no
    quotient overflows.
    """
    if x.format is FLOAT32:
        return _fmod(x.to_double(), y.to_double(), _subtract_multiple).to_float()
    return _fmod(x, y, _subtract_scaled_multiple)


def ipow(x: Lanes, n: Lanes) -> Lanes:
    """x^n of signed integers, modulo 2^bits. For n < 0 that is 1 / x^|n| cut to an integer: 0 unless x is 1 or -1."""
    is_negative = (n >> (n.element.width - 1)).equals(1)
    is_0_or_unit = (x + 1) <= 2
    return upow(select(is_negative & ~is_0_or_unit, 0, x), n)


def upow(x: Lanes, n: Lanes) -> Lanes:
    """x^n of unsigned integers, modulo 2^bits: result square^rest is x^n all along (Knuth, TAOCP 2, 4.6.3)."""

    def step(state: State) -> State:
        result, square, rest = state
        return select(is_odd(rest), result * square, result), square * square, rest >> 1

    result, _, _ = repeat_while(lambda state: state[2] > 0, step, (x.lift(1), x, n))
    return result


def _fmod(x: Lanes, y: Lanes, subtract: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
    """fmod with a given way to subtract a multiple of the divisor; a last remainder below 0 is one divisor too low."""
    a = absolute(x)
    is_valid = (a < INFINITY) & (absolute(y) > 0.0)
    d = select(is_valid, absolute(y), 1.0)

    def step(state: State) -> State:
        (r,) = state
        return (select(absolute(r) >= d, subtract(r, d), r),)

    (rest,) = repeat_while(lambda state: absolute(state[0]) >= d, step, (select(is_valid, a, 0.0),))
    rest = select(rest < 0.0, rest + d, rest)
    return select(is_valid, copysign(rest, x), NAN)


def _subtract_multiple(r: Lanes, d: Lanes) -> Lanes:
    """r - q d with |r - q d| < max(d, 2^-52 |r|), exactly.

    A quotient below 2^53 is cut to an integer, at most one too large; a larger one is an integer, right in its leading
    bits. Either way r - q d is representable (Muller et al., Handbook of Floating-Point Arithmetic, on remainders).
    """
    return fma(-intrinsic("trunc", r / d), d, r)


def _subtract_scaled_multiple(r: Lanes, d: Lanes) -> Lanes:
    """The same for all of float64: a multiple of d stands in where the quotient would overflow, and r and d are scaled
    where their product could."""
    for _ in range(2):
        d = select(absolute(r) * 2.0**-600 > d, d * 2.0**560, d)
    down, up = (select(absolute(r) > 2.0**900, r.lift(2.0**power), 1.0) for power in (-64, 64))
    return _subtract_multiple(r * down, d * down) * up


def _pow_float32(a: Lanes, y: Lanes) -> Lanes:
    """2^(y log2 a) for a normal or denormal a, in float64, where all float32 are normal and errors hardly matter."""
    wide = a.to_double()
    minus_k, f = split_normal(wide)
    exponent = y.to_double() * mad(f, polynomial(f, c.LOG2_FOR_POW), -minus_k)
    p, s = exp2_factors(clamp(exponent, -200.0, 200.0), c.EXP2_FOR_POW)
    return (p * s).to_float()


def _pow_float64(a: Lanes, y: Lanes) -> Lanes:
    """e^(y log a), logarithm and product being pairs: an error of y log a, which may be 745, is one of the result."""
    exponent = _log(a) * y
    is_inside = absolute(exponent.high) < 800.0
    return exp_of_sum(exponent.high, select(is_inside, exponent.low, 0.0))


@dataclass(frozen=True, slots=True)
class _Pair:
    """high + low, |low| not much above ulp(high): twice the precision (Dekker 1971)."""

    high: Lanes
    low: Lanes

    def __mul__(self, other: _Pair | Lanes) -> _Pair:
        if isinstance(other, Lanes):
            product, error = exact_product(self.high, other)
            return _Pair(product, mad(self.low, other, error))
        product, error = exact_product(self.high, other.high)
        return _Pair(product, error + mad(self.high, other.low, self.low * other.high))

    def __add__(self, smaller: _Pair) -> _Pair:
        total, error = exact_sum_ordered(self.high, smaller.high)
        return _Pair(total, error + (self.low + smaller.low))


def _log(a: Lanes) -> _Pair:
    """log a = k ln 2 + 2 s + s^3 (2/3 + s^2 L(s^2)), s = f / (2 + f), to about 2^-65."""
    minus_k, f = split(a)
    divisor, divisor_low = exact_sum_ordered(f.lift(2.0), f)
    reciprocal = 1.0 / divisor
    s_high = f * reciprocal
    s = _Pair(s_high, mad(-s_high, divisor_low, fma(-s_high, divisor, f)) * reciprocal)
    z = s * s
    two_thirds, ln2 = (_Pair(*map(f.lift, parts)) for parts in (c.TWO_THIRDS, c.LN2[a.format]))
    cubic = (s * z) * (two_thirds + z * polynomial(z.high, c.LOG_IN_S_TAIL))
    return _Pair(minus_k * -ln2.high, minus_k * -ln2.low) + (_Pair(s.high + s.high, s.low + s.low) + cubic)
