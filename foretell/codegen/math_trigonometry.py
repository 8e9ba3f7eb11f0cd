"""sin, cos, tan and their inverses.

An angle is x = n pi/2 + r with |r| <= pi/4; the two low bits of n are its quadrant. For |x| up to `FAST_REDUCTION` three
fused steps subtract n pi/2 (Cody and Waite 1980): each removes the leading part that the one before left, and only the
last two round. The rare vectors with a larger lane leave the straight line and reduce such lanes with as many bits of
2/pi as they need (Payne and Hanek, SIGNUM Newsletter 18, 1983), in integer arithmetic, one lane at a time.
"""

from __future__ import annotations

import math

import llvmlite.ir as ir

from foretell.codegen import math_coefficients as c
from foretell.codegen.math_lanes import (
    FLOAT32,
    FLOAT64,
    INFINITY,
    NAN,
    Lanes,
    absolute,
    copysign,
    fma,
    horner,
    mad,
    polynomial,
    select,
    sqrt,
    type_name,
)


def sin(x: Lanes) -> Lanes:
    """sin x is sin r, cos r, -sin r or -cos r by quadrant."""
    r, quadrant = _reduced(x)
    return select(x.equals(0.0), x, _sine_or_cosine(r, quadrant))


def cos(x: Lanes) -> Lanes:
    """cos x = sin(x + pi/2): one quadrant on."""
    r, quadrant = _reduced(x)
    return _sine_or_cosine(r, quadrant + 1)


def tan(x: Lanes) -> Lanes:
    """tan x is tan r = r + r^3 T(r^2) in even quadrants, -1 / tan r in odd ones."""
    r, quadrant = _reduced(x)
    z = r * r
    t = mad(r * z, polynomial(z, c.TAN[x.format]), r)
    return select(x.equals(0.0), x, select(_is_odd(quadrant), -1.0 / t, t))


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
    return (select(_is_odd(quadrant), cosine, sine).bits() ^ sign).as_float()


def _is_odd(n: Lanes) -> Lanes:
    return (n & 1).equals(1)


def _reduced(x: Lanes) -> tuple[Lanes, Lanes]:
    """r, and an integer whose two low bits are the quadrant."""
    f = x.format
    shifted = mad(x, 2 / math.pi, f.shifter)
    n = shifted - f.shifter
    r = x
    for part in c.HALF_PI_PARTS[f]:
        r = fma(n, -part, r)
    fast = (r, shifted.bits())
    is_huge = absolute(x) > c.FAST_REDUCTION[f]
    fast_block = x.builder.basic_block
    with x.builder.if_then(is_huge.any(), likely=False):
        slow = [select(is_huge, there, here) for there, here in zip(_reduced_huge(x), fast, strict=True)]
        slow_block = x.builder.basic_block
    merged: list[Lanes] = []
    for here, there in zip(fast, slow, strict=True):
        phi = x.builder.phi(here.type)
        phi.add_incoming(here.value, fast_block)
        phi.add_incoming(there.value, slow_block)
        merged.append(x.like(phi))
    return merged[0], merged[1]


def _reduced_huge(x: Lanes) -> tuple[Lanes, Lanes]:
    """r and quadrant of every lane beyond the fast range, by a call that stays out of line; r is NaN of an infinity."""
    name = f"foretell.reduce_huge.{type_name(x.type)}"
    function = x.builder.module.globals.get(name) or _define_reduce_lanes(x, name)
    both = x.builder.call(function, [x.value])
    r, quadrant = (x.like(x.builder.extract_value(both, i)) for i in (0, 1))
    return select(absolute(x) < INFINITY, r, NAN), quadrant


def _define_reduce_lanes(like: Lanes, name: str) -> ir.Function:
    """The reduction of each lane in turn."""
    integers = like.with_element(ir.IntType(like.format.bits))
    function = _cold_function(like.builder.module, name, [like.type, integers], like.type)
    builder = ir.IRBuilder(function.append_basic_block())
    results = [ir.Constant(like.type, ir.Undefined), ir.Constant(integers, ir.Undefined)]
    reduce_scalar = _reduce_scalar(builder.module)
    for lane in [None] if like.width is None else [ir.IntType(32)(index) for index in range(like.width)]:
        x = Lanes(builder, function.args[0] if lane is None else builder.extract_element(function.args[0], lane))
        both = builder.call(reduce_scalar, [(x if x.format is FLOAT64 else x.to_double()).value])
        r, quadrant = (builder.extract_value(both, i) for i in (0, 1))
        if x.format is FLOAT32:
            r, quadrant = builder.fptrunc(r, ir.FloatType()), builder.trunc(quadrant, ir.IntType(32))
        for i, value in enumerate((r, quadrant)):
            results[i] = value if lane is None else builder.insert_element(results[i], value, lane)
    _return_both(builder, function, *results)
    return function


def _reduce_scalar(module: ir.Module) -> ir.Function:
    """x = n pi/2 + r for a finite double of 2^16 or more, r rounded once.

    x = M 2^E with an integer M < 2^53, so that x 2/pi mod 4 = M (2^E 2/pi mod 4): of 2/pi only the 192 bits from weight
    2^(1-E) on matter. A multiple of pi/2 comes no nearer to a double than 2^-62 (Muller, Elementary Functions, 11.3), so
    the fraction keeps 192 - 2 - 53 - 62 = 75 good bits, of which 64 are multiplied by pi/2.
    """
    name = "foretell.reduce_huge.scalar"
    if name in module.globals:
        return module.globals[name]
    function = _cold_function(module, name, [ir.DoubleType(), ir.IntType(64)], ir.DoubleType())
    builder = ir.IRBuilder(function.append_basic_block())
    x = Lanes(builder, function.args[0])
    wide, i64 = ir.IntType(192), ir.IntType(64)

    field = (x.bits() >> 52) & 0x7FF
    distance = (c.TWO_OVER_PI_BITS - 190 + 1075) - field
    two_over_pi = x.like(ir.Constant(ir.IntType(c.TWO_OVER_PI_BITS), c.TWO_OVER_PI))
    distance = _resized(select(distance < c.TWO_OVER_PI_BITS, distance, 0), two_over_pi.type)
    window = _resized(two_over_pi >> distance, wide)
    significand = (x.bits() & (2**52 - 1)) | 2**52
    product = _long_product(significand, window)
    quadrant = _resized(((product >> 189) + 1) >> 1, i64)

    fraction = product << 2
    is_below = fraction > 2**191 - 1
    magnitude = select(is_below, -fraction, fraction)
    leading_zeros = x.like(builder.ctlz(magnitude.value, ir.IntType(1)(0)))
    top = _resized((magnitude << leading_zeros) >> 128, i64)
    r_bits = _resized(_long_product(top, magnitude.lift(c.EIGHTH_PI_64)) >> 64, i64)
    scale = ((1023 - 62 - _resized(leading_zeros, i64)) << 52).as_float()
    r = x.like(builder.sitofp(r_bits.value, ir.DoubleType())) * scale
    r = select(is_below, -r, r)
    is_negative = x < 0.0
    _return_both(builder, function, select(is_negative, -r, r).value, select(is_negative, -quadrant, quadrant).value)
    return function


def _long_product(a: Lanes, b: Lanes) -> Lanes:
    """a b modulo the width of b, for 64-bit a, from products of 32 by 32 bits: some targets call a library for more."""
    total = b.lift(0)
    for i in (0, 32):
        for j in range(0, b.element.width - i, 32):
            part = ((a >> i) & 0xFFFFFFFF) * (_resized(b >> j, a.element) & 0xFFFFFFFF)
            total = total + (_resized(part, b.element) << (i + j))
    return total


def _resized(value: Lanes, type: ir.Type) -> Lanes:
    cast = value.builder.zext if type.width > value.element.width else value.builder.trunc
    return value.like(cast(value.value, type))


def _cold_function(module: ir.Module, name: str, results: list[ir.Type], argument: ir.Type) -> ir.Function:
    function = ir.Function(module, ir.FunctionType(ir.LiteralStructType(results), [argument]), name)
    function.linkage = "internal"
    for attribute in ("cold", "noinline", "nounwind"):
        function.attributes.add(attribute)
    return function


def _return_both(builder: ir.IRBuilder, function: ir.Function, first: ir.Value, second: ir.Value) -> None:
    both = ir.Constant(function.ftype.return_type, ir.Undefined)
    builder.ret(builder.insert_value(builder.insert_value(both, first, 0), second, 1))
