"""e^x and its relatives: expm1, sigmoid, tanh, sinh, cosh, erf.

One reduction serves them all: with n the integer nearest to x / c, r = x - n c is small, e^r is a polynomial, and powers
of two are made by writing an exponent field. Adding `shifter` rounds x / c to n and leaves n in the low bits of the sum,
where a shift moves it into the exponent; `shifter + bias` leaves it biased already. c is split so that n times its upper
part is exact (Cody and Waite, Software Manual for the Elementary Functions, 1980).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_lanes import (
    Lanes,
    absolute,
    at_least,
    at_most,
    clamp,
    copysign,
    mad,
    polynomial,
    select,
)


def exp(x: Lanes) -> Lanes:
    """e^x = p s s. Bounds past which e^x is zero or infinite keep s in range; the last product rounds once, denormal
    or not."""
    p, s = _exp_factors(clamp(x, c.EXP_ZERO[x.format], c.EXP_INFINITE[x.format]))
    return p * s * s


def expm1(x: Lanes) -> Lanes:
    """e^x - 1 = 2 (s (e^r - 1) + (s - 1/2)), where s = 2^(n-1) so that n = 128 (1024) does not overflow early.

    Below `EXPM1_IS_MINUS_1` the result is -1. Where x is so small that x^2 / 2 is lost, x itself keeps -0 and denormals.
    """
    s, g = _expm1_factors(clamp(x, c.EXPM1_IS_MINUS_1[x.format], c.EXP_INFINITE[x.format]), offset=-1)
    half = mad(s, g, s - 0.5)
    return select(absolute(x) < 2.0**-x.format.precision, x, half + half)


def sigmoid(x: Lanes) -> Lanes:
    """With e = e^-|x|, q = e / (1 + e): 1 - q for x >= 0, and q = e - e q for x < 0, where this form rounds less.

    e = 2^-precision (s + s g), where the offset keeps s normal, and e neither overflows nor loses a denormal result.
    """
    precision = x.format.precision
    s, g = _expm1_factors(at_least(-absolute(x), c.EXP_ZERO[x.format]), offset=precision)
    e = mad(s, g, s) * 2.0**-precision
    limit = select(x < 0.0, e, 1.0)
    return mad(-limit, e / (e + 1.0), limit)


def tanh(x: Lanes) -> Lanes:
    """tanh a = 1 - 2 / (1 + e^(2a)), a = |x|, where that is above 1/2; below, a + a^3 T(a^2)."""
    a = absolute(x)
    z = a * a
    small = mad(a * z, polynomial(z, c.TANH[x.format]), a)
    p, s = exp2_factors(at_most(a, c.TANH_IS_1[x.format]) * (2 / math.log(2)), c.EXP2[x.format])
    return copysign(select(a < 0.55, small, 1.0 - 2.0 / mad(p, s, 1.0)), x)


def sinh(x: Lanes) -> Lanes:
    """(e^|x| - e^-|x|) / 2 from |x| = 1 on; below, x + x^3 S(x^2)."""
    half = _half_exp(x)
    z = x * x
    small = mad(x * z, polynomial(z, c.SINH[x.format]), x)
    return select(absolute(x) < 1.0, small, copysign(half - 0.25 / half, x))


def cosh(x: Lanes) -> Lanes:
    """(e^|x| + e^-|x|) / 2."""
    half = _half_exp(x)
    return half + 0.25 / half


def erf(x: Lanes) -> Lanes:
    """x + x P(x^2) for |x| < 1; from there on 1 - erfc |x|, where erfc |x| = 2^-Q(|x|).

    The exponential of a polynomial is how erfc falls; an error of Q counts in proportion to erfc itself, so that the
    fit is weighted by it. |x| is bounded where the result has become 1.
    """
    magnitude = at_most(absolute(x), c.ERF_IS_1[x.format])
    z = x * x
    small = mad(x, polynomial(z, c.ERF_SMALL[x.format]), x)
    p, s = exp2_factors(polynomial(magnitude, c.ERFC_EXPONENT[x.format]), c.EXP2[x.format])
    return select(absolute(x) < 1.0, small, copysign(mad(-p, s, 1.0), x))


def exp2_factors(x: Lanes, coefficients: Sequence[float]) -> tuple[Lanes, Lanes]:
    """p, s with 2^x = p s: s = 2^n normal, p = 2^(x - n)."""
    f = x.format
    shifted = x + (f.shifter + f.bias)
    p = polynomial(x - (shifted - (f.shifter + f.bias)), coefficients)
    return p, (shifted.bits() << f.stored).as_float()


def exp_of_sum(x: Lanes, low: Lanes) -> Lanes:
    """e^(x + low), |low| <= ulp(x): what rounding r loses multiplies the result again, e^(r + d) = e^r (1 + d)."""
    p, s = _exp_factors(clamp(x, c.EXP_ZERO[x.format], c.EXP_INFINITE[x.format]), low)
    return p * s * s


def _exp_factors(x: Lanes, low: Lanes | None = None) -> tuple[Lanes, Lanes]:
    """p, s with e^x = p s s: s = 2^n, x = 2 n ln 2 + r, |r| <= ln 2, p = e^r.

    Twice the usual range of r costs two terms of the polynomial and saves the second power of two that results near
    the ends of the exponent range would need: s^2 may be out of range, s never is.
    """
    f = x.format
    shifted = mad(x, 0.5 / math.log(2), f.shifter + f.bias)
    n = shifted - (f.shifter + f.bias)
    ln2, ln2_low = c.LN2[f]
    near = mad(n, -2.0 * ln2, x)
    r = mad(n, -2.0 * ln2_low, near) if low is None else near + (low := mad(n, -2.0 * ln2_low, low))
    p = mad(mad(polynomial(r, c.EXP[f]), r, 1.0), r, 1.0)
    if low is not None:
        p = mad(p, low - (r - near), p)
    return p, (shifted.bits() << f.stored).as_float()


def _expm1_factors(x: Lanes, offset: int = 0) -> tuple[Lanes, Lanes]:
    """s, g with e^x = 2^-offset s (1 + g): s = 2^(n + offset), x = n ln 2 + r, g = e^r - 1 = r + r^2 Q(r)."""
    f = x.format
    shifted = mad(x, 1 / math.log(2), f.shifter + f.bias + offset)
    n = shifted - (f.shifter + f.bias + offset)
    high, low = c.LN2[f]
    r = mad(n, -low, mad(n, -high, x))
    g = mad(r * r, polynomial(r, c.EXPM1[f]), r)
    return (shifted.bits() << f.stored).as_float(), g


def _half_exp(x: Lanes) -> Lanes:
    """e^|x| / 2 = 4 (s + s g) with s = 2^(n-3): it overflows only where sinh and cosh do."""
    s, g = _expm1_factors(at_most(absolute(x), c.COSH_INFINITE[x.format]), offset=-3)
    return mad(s, g, s) * 4.0
