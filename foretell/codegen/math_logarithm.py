"""log, log1p and the inverse hyperbolic functions.

A positive number is 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and its logarithm k ln 2 + log(1 + f), where
log(1 + f) = f + f^2 L(f). k and f are read from the encoding: adding encode(1) - encode(sqrt(1/2)) to it moves
the boundary between two exponents from 1 to sqrt(1/2).
"""

from __future__ import annotations

import math

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_lanes import (
    INFINITY,
    NAN,
    Lanes,
    absolute,
    at_least,
    copysign,
    mad,
    polynomial,
    select,
    sqrt,
)

_SQRT_HALF = math.sqrt(0.5)


def log(x: Lanes) -> Lanes:
    """log x = k ln 2 + log(1 + f)."""
    positive = select(x < INFINITY, _log_sum(*split(x)), x)
    return select(x > 0.0, positive, select(x.equals(0.0), x.lift(-INFINITY), NAN))


def log1p(x: Lanes) -> Lanes:
    """log(1 + x)."""
    inside = select(x < INFINITY, _log1p_finite(x), x)
    return select(x > -1.0, inside, select(x.equals(-1.0), x.lift(-INFINITY), NAN))


def asinh(x: Lanes) -> Lanes:
    """asinh a = log(1 + a + a^2 / (1 + sqrt(1 + a^2))), a = |x|; log 2a once the squares would overflow."""
    a = absolute(x)
    z = a * a
    return copysign(_log1p_or_log_twice(a, a + z / (sqrt(z + 1.0) + 1.0)), x)


def acosh(x: Lanes) -> Lanes:
    """acosh x = log(1 + t + sqrt(2 t + t^2)), t = x - 1 >= 0; log 2x once the square would overflow."""
    t = x - 1.0
    return select(x >= 1.0, _log1p_or_log_twice(x, t + sqrt(mad(t, t, t + t))), NAN)


def atanh(x: Lanes) -> Lanes:
    """atanh a = log(1 + 2 a / (1 - a)) / 2, a = |x|."""
    a = absolute(x)
    return copysign(log1p((a + a) / (1.0 - a)) * 0.5, x)


def _log1p_or_log_twice(a: Lanes, t: Lanes) -> Lanes:
    """log(1 + t); log a + log 2 where a is so large that log(1 + t) = log 2a, whatever t has become."""
    is_huge = a > 2.0 ** (a.format.precision + 2)
    return log1p(select(is_huge, a, t)) + select(is_huge, a.lift(math.log(2)), 0.0)


def _log1p_finite(x: Lanes) -> Lanes:
    """log(1 + x) for -1 < x < infinity.

    k is that of the rounded sum 1 + x, but f = 2^-k x - (1 - 2^-k): x itself where k = 0, and rounded once elsewhere.
    2^-k x is made on the encoding, since x is normal where k is not 0; 2^-k is 0 where k = 128 (1024).
    """
    f = x.format
    moved = _moved(x + 1.0)
    k_field = (moved & (((1 << (f.bits - f.precision)) - 1) << f.stored)) - f.encode(1.0)
    scaled = (x.bits() - k_field).as_float()
    scale = at_least((f.encode(1.0) - k_field).as_float(), 0.0)
    return _log_sum(_minus_exponent(moved), scaled - (1.0 - scale))


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """-k and f of x = 2^k (1 + f) > 0; a denormal x is first multiplied by 2^precision."""
    precision = x.format.precision
    is_denormal = x < x.format.smallest_normal
    scaled = select(is_denormal, x * 2.0**precision, x)
    return split_normal(scaled, zero=select(is_denormal, x.lift(_zero(x) + precision), _zero(x)))


def split_normal(x: Lanes, zero: Lanes | None = None) -> tuple[Lanes, Lanes]:
    """-k and f of a normal x = 2^k (1 + f) > 0. `zero` is what stands for k = 0; see `_minus_exponent`."""
    moved = _moved(x)
    m = ((moved & ((1 << x.format.stored) - 1)) + x.format.encode(_SQRT_HALF)).as_float()
    return _minus_exponent(moved, zero), m - 1.0


def _moved(x: Lanes) -> Lanes:
    """The encoding of x = 2^k (1 + f), moved so that its exponent field is that of 2^k."""
    return x.bits() + (x.format.encode(1.0) - x.format.encode(_SQRT_HALF))


def _minus_exponent(moved: Lanes, zero: Lanes | None = None) -> Lanes:
    """-k as a float, +0 for k = 0: in the low bits of `shifter` the field becomes a float, subtracted from `zero`."""
    f = moved.format
    field = ((moved >> f.stored) | f.encode(f.shifter)).as_float()
    return _zero(moved) - field if zero is None else zero - field


def _zero(x: Lanes) -> float:
    """The exponent field of k = 0 in the low bits of `shifter`."""
    return x.format.shifter + x.format.bias


def _log_sum(minus_k: Lanes, f: Lanes) -> Lanes:
    """k ln 2 + (f + f^2 L(f)), smallest terms first. A product with -k = +0 is -0, so that f = -0 gives -0."""
    ln2, ln2_low = c.LN2[f.format]
    tail = mad(f * f, polynomial(f, c.LOG[f.format]), minus_k * -ln2_low)
    return mad(minus_k, -ln2, f + tail)
