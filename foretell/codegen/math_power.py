"""Functions of two arguments: pow and fmod of floats, powers of integers."""

from __future__ import annotations

from collections.abc import Callable

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_exponential import exp2_factors, exp_of_sum
from foretell.codegen.math_lanes import (
    FLOAT32,
    INFINITY,
    NAN,
    Lanes,
    State,
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
    is_odd = is_integer & ~intrinsic("floor", half).equals(half)
    sign = select(is_odd, x.bits() & (1 << (bits - 1)), 0)
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


def _fmod(x: Lanes, y: Lanes, subtract: Callable[[Lanes, Lanes], Lanes]) -> Lanes:
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
    bits. Either way r - q d is representable (Muller et al., Handbook of Floating-Point Arithmetic, 4.3).
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
