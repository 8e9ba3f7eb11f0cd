"""e^x and its relatives: expm1, sigmoid, tanh, sinh, cosh, erf.

One reduction serves them all: with n the integer nearest to x / c, r = x - n c is small, e^r is a polynomial, and powers
of two are made by writing an exponent field. Adding `shifter` rounds x / c to n and leaves n in the low bits of the sum,
where a shift moves it into the exponent; `shifter + bias` leaves it biased already. c is split so that n times its upper
part is exact (Cody and Waite, Software Manual for the Elementary Functions, 1980).
"""

from __future__ import annotations

import math

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_lanes import (
    Lanes,
    absolute,
    at_least,
    at_most,
    copysign,
    mad,
    polynomial,
    select,
)


def exp(x: Lanes) -> Lanes:
    """e^x = p s s. Bounds past which e^x is zero or infinite keep s in range; the last product rounds once, denormal
    or not."""
    p, s = _exp_factors(at_least(at_most(x, c.EXP_INFINITE[x.format]), c.EXP_ZERO[x.format]))
    return p * s * s


def expm1(x: Lanes) -> Lanes:
    """e^x - 1 = 2 (s (e^r - 1) + (s - 1/2)), where s = 2^(n-1) so that n = 128 (1024) does not overflow early.

    Below `EXPM1_IS_MINUS_1` the result is -1. Where x is so small that x^2 / 2 is lost, x itself keeps -0 and denormals.
    """
    s, g = _expm1_factors(at_least(at_most(x, c.EXP_INFINITE[x.format]), c.EXPM1_IS_MINUS_1[x.format]), offset=-1)
    half = mad(s, g, s - 0.5)
    return select(absolute(x) < 2.0**-x.format.precision, x, half + half)


def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + e^-x), which for x < 0 is e^x / (1 + e^x): with e^-|x| neither overflows, and small results stay exact."""
    p, s = _exp_factors(at_least(-absolute(x), c.EXP_ZERO[x.format]))
    e = p * s * s
    return select(x < 0.0, e, 1.0) / (e + 1.0)


def tanh(x: Lanes) -> Lanes:
    """tanh |x| = -t / (2 + t), t = e^(-2|x|) - 1; |x| is bounded where the result has become 1."""
    s, g = _expm1_factors(at_most(absolute(x), c.TANH_IS_1[x.format]) * -2.0)
    t = mad(s, g, s - 1.0)
    return copysign(t / (t + 2.0), x)


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
    exponent = polynomial(magnitude - c.ERFC_CENTRE, c.ERFC_EXPONENT[x.format])
    shifted = exponent + (x.format.shifter + x.format.bias)
    r = exponent - (shifted - (x.format.shifter + x.format.bias))
    erfc = polynomial(r, c.EXP2[x.format])
    large = mad(-erfc, (shifted.bits() << x.format.stored).as_float(), 1.0)
    return select(absolute(x) < 1.0, small, copysign(large, x))


def _exp_factors(x: Lanes) -> tuple[Lanes, Lanes]:
    """p, s with e^x = p s s: s = 2^n, x = 2 n ln 2 + r, |r| <= ln 2, p = e^r.

    Twice the usual range of r costs two terms of the polynomial and saves the second power of two that results near
    the ends of the exponent range would need: s^2 may be out of range, s never is.
    """
    f = x.format
    shifted = mad(x, 0.5 / math.log(2), f.shifter + f.bias)
    n = shifted - (f.shifter + f.bias)
    high, low = c.TWICE_LN2[f]
    r = mad(n, -low, mad(n, -high, x))
    p = mad(mad(polynomial(r, c.EXP[f]), r, 1.0), r, 1.0)
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
    """e^|x| / 2, which overflows only where sinh and cosh do."""
    p, s = _exp_factors(at_most(absolute(x), c.COSH_INFINITE[x.format]))
    return (0.5 * p) * s * s
