"""sin, cos, tan and their inverses."""

from __future__ import annotations

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_lanes import (
    Lanes,
    absolute,
    copysign,
    horner,
    is_odd,
    mad,
    polynomial,
    select,
    sqrt,
)
from foretell.codegen.math_reduction import reduced_angle


def sin(x: Lanes) -> Lanes:
    """sin x is sin r, cos r, -sin r or -cos r by quadrant."""
    r, quadrant = reduced_angle(x)
    return select(x.equals(0.0), x, _sine_or_cosine(r, quadrant))


def cos(x: Lanes) -> Lanes:
    """cos x = sin(x + pi/2): one quadrant on."""
    r, quadrant = reduced_angle(x)
    return _sine_or_cosine(r, quadrant + 1)


def tan(x: Lanes) -> Lanes:
    """tan x is tan r = r + r^3 T(r^2) in even quadrants, -1 / tan r in odd ones."""
    r, quadrant = reduced_angle(x)
    z = r * r
    t = mad(r * z, polynomial(z, c.TAN[x.format]), r)
    return select(x.equals(0.0), x, select(is_odd(quadrant), -1.0 / t, t))


def asin(x: Lanes) -> Lanes:
    """asin a for a = |x| <= 1/2, else pi/2 - 2 asin sqrt((1 - a) / 2)."""
    a = absolute(x)
    is_small, s = _asin_up_to_half(a)
    high, low = c.HALF_PI[x.format]
    return copysign(select(is_small, s, (high - 2.0 * s) + low), x)


def acos(x: Lanes) -> Lanes:
    """pi/2 - asin x for |x| <= 1/2; else 2 asin sqrt((1 - |x|) / 2), and for negative x pi minus that."""
    is_small, s = _asin_up_to_half(absolute(x))
    high, low = c.HALF_PI[x.format]
    signed = copysign(s, x)
    middle = (high - signed) + low
    twice = s + s
    return select(is_small, middle, select(x < 0.0, (2.0 * high - twice) + 2.0 * low, twice))


def atan(x: Lanes) -> Lanes:
    """atan a = a + a^3 A(a^2) for a = |x| <= 1, else pi/2 - atan(1/a)."""
    a = absolute(x)
    is_large = a > 1.0
    t = select(is_large, 1.0, a) / select(is_large, a, 1.0)
    z = t * t
    correction = (t * z) * horner(z, c.ATAN[x.format])
    high, low = c.HALF_PI[x.format]
    return copysign(select(is_large, high - (t + (correction - low)), t + correction), x)


def _asin_up_to_half(a: Lanes) -> tuple[Lanes, Lanes]:
    """a <= 1/2, and asin of a or of sqrt((1 - a) / 2): t + t^3 S(t^2)."""
    is_small = a <= 0.5
    z = select(is_small, a * a, (1.0 - a) * 0.5)
    t = select(is_small, a, sqrt(z))
    return is_small, mad(t * z, polynomial(z, c.ASIN[a.format]), t)


def _sine_or_cosine(r: Lanes, quadrant: Lanes) -> Lanes:
    """sin r = r + r^3 S(r^2) in even quadrants, cos r = 1 - r^2 / 2 + r^4 C(r^2) in odd ones, negative in 2 and 3."""
    z = r * r
    sine = mad(r * z, polynomial(z, c.SIN[r.format]), r)
    cosine = mad(z, mad(z, polynomial(z, c.COS[r.format]), -0.5), 1.0)
    sign = (quadrant & 2) << (r.format.bits - 2)
    return (select(is_odd(quadrant), cosine, sine).bits() ^ sign).as_float()
