"""e^x and its relatives: expm1, sigmoid, tanh, sinh, cosh, erf, normal_cdf.

One reduction serves them all: with n the integer nearest to x / c, the rest r = x - n c is small, e^r is a polynomial,
and a power of two is an exponent field. c is split so that n times its upper part is exact (Cody and Waite, Software
Manual for the Elementary Functions, 1980).

With AVX-512, c is smaller: a register holds the powers of two in between, and r needs hardly a polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_avx512 import REGISTER_BITS, picked, scaled, within
from foretell.codegen.math_lanes import (
    Lanes,
    absolute,
    at_least,
    at_most,
    clamp,
    copysign,
    horner,
    mad,
    polynomial,
    select,
)


def exp(x: Lanes) -> Lanes:
    """e^x = e^r s s, where s = 2^n, x = 2 n ln 2 + r and |r| <= ln 2.

    Twice the usual range of r costs a term or two of the polynomial. It saves the second power of two that results at
    the ends of the range need: s^2 may be out of range, s never is, and the last product rounds once, denormal or not.
    """
    if x.instructions.avx512:
        return _exp_by_table(x)
    x = clamp(x, c.EXP_ZERO[x.format], c.EXP_INFINITE[x.format])
    n, s = _nearest(x, 0.5 / math.log(2))
    ln2, ln2_low = c.LN2[x.format]
    return _exp_near_0(mad(n, -2.0 * ln2_low, mad(n, -2.0 * ln2, x))) * s * s


def exp_of_sum(x: Lanes, low: Lanes) -> Lanes:
    """e^(x + low), |low| <= ulp(x): what rounding r loses comes back as a factor, e^(r + d) = e^r (1 + d)."""
    x = clamp(x, c.EXP_ZERO[x.format], c.EXP_INFINITE[x.format])
    n, s = _nearest(x, 0.5 / math.log(2))
    ln2, ln2_low = c.LN2[x.format]
    high, low = mad(n, -2.0 * ln2, x), mad(n, -2.0 * ln2_low, low)
    r = high + low
    p = _exp_near_0(r)
    return mad(p, low - (r - high), p) * s * s


def expm1(x: Lanes) -> Lanes:
    """e^x - 1 = 2 (s g + (s - 1/2)), where s = 2^(n-1) so that n = 128 (1024) does not overflow early.

    Where x is so small that x^2 / 2 is lost, the result is x itself, -0 and denormals included.
    """
    s, g = _expm1_factors(clamp(x, c.EXPM1_IS_MINUS_1[x.format], c.EXP_INFINITE[x.format]), offset=-1)
    half = mad(s, g, s - 0.5)
    return select(absolute(x) < 2.0**-x.format.precision, x, half + half)


def sigmoid(x: Lanes) -> Lanes:
    """With e = e^-|x|, q = e / (1 + e): 1 - q for x >= 0, and q = e - e q for x < 0, where this form rounds less.

    e = 2^-precision (s + s g), where the offset keeps s normal, and e neither overflows nor loses a denormal result.
    """
    if x.instructions.avx512:
        e = _exp_by_table(-absolute(x), exact=True)
    else:
        precision = x.format.precision
        s, g = _expm1_factors(at_least(-absolute(x), c.EXP_ZERO[x.format]), offset=precision)
        e = mad(s, g, s) * 2.0**-precision
    limit = select(x < 0.0, e, 1.0)
    return mad(-limit, e / (e + 1.0), limit)


def tanh(x: Lanes) -> Lanes:
    """tanh a = (1 - e) / (1 + e), a = |x|, where e = e^-2a = s + s g, and s - 1 and s + 1 are exact.

    Near 0, where 1 - e cancels, s = 1 and -g is the numerator itself.
    """
    s, g = _expm1_factors(-2.0 * at_most(absolute(x), c.TANH_IS_1[x.format]))
    return copysign(mad(s, g, s - 1.0) / mad(s, g, s + 1.0), x)


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
    """x + x P(x^2) for |x| < 1; from there on 1 - erfc |x|, where erfc |x| = 2^Q(|x|).

    erfc falls like the exponential of a polynomial, and an error of Q counts in proportion to erfc: so is its fit
    weighted, and degree 6 is enough for float32, 17 for float64.
    """
    small = mad(x, polynomial(x * x, c.ERF_SMALL[x.format]), x)
    a = at_most(absolute(x), c.ERF_IS_1[x.format])
    exponent = polynomial(a, c.ERFC_EXPONENT[x.format])
    if x.instructions.avx512:
        large = 1.0 - _exp2_by_table(exponent)
    else:
        p, s = exp2_factors(exponent, c.EXP2[x.format])
        large = mad(-p, s, 1.0)
    return select(absolute(x) < 1.0, small, copysign(large, x))


def normal_cdf(x: Lanes) -> Lanes:
    """(1 + erf(x / sqrt 2)) / 2, as exact as a sum with 1/2 can be: where it is small, its error is not.

    In float32 the other summand is x / 8 + x R(x^2), R a quotient of polynomials; x / 8 is exact, and what it takes
    from R takes part of its rounding errors too. It ends in -1/2 and 1/2: the sum may be multiplied by large numbers.
    """
    if x.format not in c.NORMAL_CDF or x.instructions.avx512:
        return mad(erf(math.sqrt(0.5) * x), 0.5, 0.5)
    numerator, denominator = c.NORMAL_CDF[x.format]
    x = clamp(x, -c.NORMAL_CDF_IS_1, c.NORMAL_CDF_IS_1)
    z = x * x
    return clamp(mad(x, horner(z, numerator) / horner(z, denominator), 0.125 * x), -0.5, 0.5) + 0.5


def exp2_factors(x: Lanes, coefficients: Sequence[float]) -> tuple[Lanes, Lanes]:
    """p, s with 2^x = p s: s = 2^n normal, p = 2^(x - n)."""
    n, s = _nearest(x, 1.0)
    return polynomial(x - n, coefficients), s


def _nearest(x: Lanes, factor: float, offset: int = 0) -> tuple[Lanes, Lanes]:
    """n, the integer nearest to factor x, and 2^(n + offset).

    In the sum with `shifter` the low bits are n; with the bias added too, they only need to move to the exponent field.
    """
    f = x.format
    zero = f.shifter + f.bias + offset
    shifted = mad(x, factor, zero)
    return shifted - zero, (shifted.bits() << f.stored).as_float()


def _exp_near_0(r: Lanes) -> Lanes:
    """e^r = 1 + r + r^2 E(r)."""
    return mad(mad(polynomial(r, c.EXP[r.format]), r, 1.0), r, 1.0)


def _exp_by_table(x: Lanes, *, exact: bool = False) -> Lanes:
    """e^x = 2^n e^r, where n is a multiple of 1/16 (1/8), as many as floats are in a register, and |r| <= ln(2) / 32.

    Where x is out of range, so is n, and r is anything: all it has to do then is not to spoil the sign.
    """
    shifted, n = _nearest_part(x, 1 / math.log(2))
    ln2, ln2_low = c.LN2[x.format]
    r = within(mad(n, -ln2_low, mad(n, -ln2, x)), 0.5)
    return _power_by_table(shifted, n, r, mad(polynomial(r, c.EXP_BY_TABLE[x.format]), r, 1.0), exact)


def _exp2_by_table(x: Lanes) -> Lanes:
    """2^x, x in range, in the same way."""
    shifted, n = _nearest_part(x, 1.0)
    r = x - n
    return _power_by_table(shifted, n, r, polynomial(r, c.EXP2_BY_TABLE[x.format]))


def _nearest_part(x: Lanes, factor: float) -> tuple[Lanes, Lanes]:
    """A sum whose low bits number the power of two, and n, the multiple of 1/16 (1/8) nearest to factor x."""
    zero = x.format.shifter * x.format.bits / REGISTER_BITS
    shifted = mad(x, factor, zero)
    return shifted, shifted - zero


def _power_by_table(shifted: Lanes, n: Lanes, r: Lanes, slope: Lanes, exact: bool = False) -> Lanes:
    """2^n (1 + r slope), where 2^n is the power of n's whole part times one of 16.

    That one is rounded: `exact` makes up for it, for those who need more than one unit in the last place.
    """
    powers, lost = c.POWERS_OF_2[n.format]
    power = picked(powers, shifted.bits())
    if exact:
        return scaled(mad(mad(slope, r, picked(lost, shifted.bits())), power, power), n)
    return scaled(mad(slope, r * power, power), n)


def _expm1_factors(x: Lanes, offset: int = 0) -> tuple[Lanes, Lanes]:
    """s, g with e^x = 2^-offset s (1 + g): s = 2^(n + offset), x = n ln 2 + r, g = e^r - 1 = r + r^2 G(r)."""
    n, s = _nearest(x, 1 / math.log(2), offset)
    ln2, ln2_low = c.LN2[x.format]
    r = mad(n, -ln2_low, mad(n, -ln2, x))
    return s, mad(r * r, polynomial(r, c.EXPM1[x.format]), r)


def _half_exp(x: Lanes) -> Lanes:
    """e^|x| / 2 = 4 (s + s g) with s = 2^(n-3): it overflows only where sinh and cosh do."""
    s, g = _expm1_factors(at_most(absolute(x), c.COSH_INFINITE[x.format]), offset=-3)
    return mad(s, g, s) * 4.0
