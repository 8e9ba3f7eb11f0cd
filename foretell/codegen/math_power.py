"""Functions of two arguments: pow and fmod of floats, powers of integers."""

from __future__ import annotations

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_exponential import exp2_factors, exp_of_sum
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
    repeat_while,
    select,
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
    is_odd = is_integer & ~intrinsic("floor", half).equals(half)
    sign = select(is_odd, x.bits() & (1 << (bits - 1)), 0)
    is_undefined = unordered(x, y) | ((x < 0.0) & (a < INFINITY) & ~is_integer)
    signed = select(is_undefined, NAN, (power.bits() ^ sign).as_float())
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
    (rest,) = repeat_while(
        lambda r: absolute(r[0]) >= d, lambda r: (_fmod_step(r[0], d),), (select(is_valid, a * down, 0.0),)
    )
    rest = select(rest < 0.0, rest + d, rest) * up
    return select(is_valid, copysign(select(a < divisor, a, rest), x), NAN)


def ipow(x: Lanes, n: Lanes) -> Lanes:
    """x^n of signed integers, modulo 2^bits; for n < 0 that is 1 / x^|n| cut to an integer: 0, or a power of +-1 (or of 0)."""
    is_negative = (n >> (n.element.width - 1)).equals(1)
    is_unit = (x + 1) <= 2
    return upow(select(is_negative & ~is_unit, 0, x), n)


def upow(x: Lanes, n: Lanes) -> Lanes:
    """x^n of unsigned integers, modulo 2^bits, by squaring (Knuth, TAOCP 2, 4.6.3)."""
    result, _, _ = repeat_while(
        lambda state: state[2] > 0,
        lambda state: (
            select((state[2] & 1).equals(1), state[0] * state[1], state[0]),
            state[1] * state[1],
            state[2] >> 1,
        ),
        (x.lift(1), x, n),
    )
    return result


def _fmod_step(r: Lanes, d: Lanes) -> Lanes:
    """r - q d, q the integer quotient as far as it is known; a quotient that would overflow is one by a multiple of d."""
    for _ in range(2):
        d = select(absolute(r) * 2.0**-600 > d, d * 2.0**600, d)
    return fma(-intrinsic("trunc", r / d), d, r)


def _pow_float32(a: Lanes, y: Lanes) -> Lanes:
    """2^(y log2 a) for a normal or denormal a, in float64, where all float32 are normal and errors hardly matter."""
    wide = a.to_double()
    minus_k, f = split_normal(wide)
    exponent = y.to_double() * mad(f, polynomial(f, c.LOG2_FOR_POW), -minus_k)
    exponent = at_least(at_most(exponent, 200.0), -200.0)
    p, s = exp2_factors(exponent, c.EXP2_FOR_POW)
    return (p * s).to_float()


def _pow_float64(a: Lanes, y: Lanes) -> Lanes:
    """e^(y log a), both the logarithm and its product with y in two parts: y log a may be 745, whose digits all count."""
    high, low = _log_in_two_parts(a)
    product, error = exact_product(y, high)
    error = mad(y, low, error)
    is_inside = absolute(product) < 800.0
    return exp_of_sum(product, select(is_inside, error, 0.0))


def _log_in_two_parts(a: Lanes) -> tuple[Lanes, Lanes]:
    """log a = k ln 2 + 2 s + s^3 L(s^2), s = f / (2 + f), to about 2^-65; all but the tail of L in two parts.

    (h, l) stands for h + l with |l| <= ulp(h); products of two l are dropped.
    """
    minus_k, f = split(a)
    d, d_low = exact_sum_ordered(f.lift(2.0), f)
    reciprocal = 1.0 / d
    s = f * reciprocal
    s_low = mad(-s, d_low, fma(-s, d, f)) * reciprocal
    z, z_low = exact_product(s, s)
    z_low = mad(s + s, s_low, z_low)
    two_thirds, two_thirds_low = c.TWO_THIRDS
    tail = polynomial(z, c.LOG_IN_S_TAIL)
    t, t_low = exact_product(z, tail)
    l, l_low = exact_sum_ordered(z.lift(two_thirds), t)
    l_low = l_low + (t_low + mad(z_low, tail, two_thirds_low))
    cube, cube_low = exact_product(s, z)
    cube_low = cube_low + mad(s, z_low, s_low * z)
    v, v_low = exact_product(cube, l)
    v_low = v_low + mad(cube, l_low, cube_low * l)
    high, low = exact_sum_ordered(s + s, v)
    low = low + (mad(s_low, 2.0, v_low))
    ln2, ln2_low = c.LN2[a.format]
    total, error = exact_sum_ordered(minus_k * -ln2, high)
    return total, error + mad(minus_k, -ln2_low, low)
