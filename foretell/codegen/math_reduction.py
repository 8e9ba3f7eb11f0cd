"""Angles modulo pi/2: x = n pi/2 + r with |r| <= pi/4; the two low bits of n are the quadrant.

For |x| up to `FAST_REDUCTION`, three fused steps subtract n pi/2 (Cody and Waite, Software Manual for the Elementary
Functions, 1980): each removes what is left of the leading bits, and only the last two round. A vector with a larger
lane is rare and leaves the straight line: such lanes are reduced one at a time, in integer arithmetic, with as many
bits of 2/pi as they need (Payne and Hanek, SIGNUM Newsletter 18, 1983).
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
    fma,
    mad,
    select,
    type_name,
)

_I64 = ir.IntType(64)
_WIDE = ir.IntType(192)
"""Holds x 2/pi modulo 4: two bits of quadrant and 190 of fraction."""


def reduced_angle(x: Lanes) -> tuple[Lanes, Lanes]:
    """r, and an integer whose two low bits are the quadrant."""
    f = x.format
    shifted = mad(x, 2 / math.pi, f.shifter)
    n = shifted - f.shifter
    r = x
    for part in c.HALF_PI_PARTS[f]:
        r = fma(n, -part, r)
    return _unless_huge(x, (r, shifted.bits()))


def _unless_huge(x: Lanes, fast: tuple[Lanes, Lanes]) -> tuple[Lanes, Lanes]:
    """`fast`, but in lanes where x is huge what a call out of line returns, made only if there are such lanes."""
    is_huge = absolute(x) > c.FAST_REDUCTION[x.format]
    straight = x.builder.basic_block
    with x.builder.if_then(is_huge.any(), likely=False):
        exact = [select(is_huge, there, here) for there, here in zip(_reduced_huge(x), fast, strict=True)]
        aside = x.builder.basic_block
    merged: list[Lanes] = []
    for here, there in zip(fast, exact, strict=True):
        phi = x.builder.phi(here.type)
        phi.add_incoming(here.value, straight)
        phi.add_incoming(there.value, aside)
        merged.append(x.like(phi))
    return merged[0], merged[1]


def _reduced_huge(x: Lanes) -> tuple[Lanes, Lanes]:
    """r and quadrant of lanes beyond the fast range; r of an infinity is NaN."""
    name = f"foretell.reduce_huge.{type_name(x.type)}"
    function = x.builder.module.globals.get(name) or _define_reduce_lanes(x, name)
    both = x.builder.call(function, [x.value])
    r, quadrant = (x.like(x.builder.extract_value(both, i)) for i in (0, 1))
    return select(absolute(x) < INFINITY, r, NAN), quadrant


def _define_reduce_lanes(like: Lanes, name: str) -> ir.Function:
    """The reduction of one lane after the other."""
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
    """The reduction of a finite double of 2^16 or more; r is rounded once.

    x = M 2^E with an integer M < 2^53, so that x 2/pi mod 4 = M (2^E 2/pi mod 4): of 2/pi only the 192 bits from weight
    2^(1-E) on matter. No double is nearer to a multiple of pi/2 than 2^-62 (Muller, Elementary Functions, on worst
    cases of range reduction), so the fraction has 192 - 2 - 53 - 62 = 75 bits that are right; 64 of them are kept.
    """
    name = "foretell.reduce_huge.scalar"
    if name in module.globals:
        return module.globals[name]
    function = _cold_function(module, name, [ir.DoubleType(), _I64], ir.DoubleType())
    builder = ir.IRBuilder(function.append_basic_block())
    x = Lanes(builder, function.args[0])

    product = _long_product((x.bits() & (2**52 - 1)) | 2**52, _window_of_two_over_pi(x))
    quadrant = _resized(((product >> 189) + 1) >> 1, _I64)
    fraction = product << 2
    is_below = fraction > 2**191 - 1
    magnitude = select(is_below, -fraction, fraction)

    leading_zeros = x.like(builder.ctlz(magnitude.value, ir.IntType(1)(0)))
    top = _resized((magnitude << leading_zeros) >> 128, _I64)
    times_eighth_pi = _resized(_long_product(top, magnitude.lift(c.EIGHTH_PI_64)) >> 64, _I64)
    unit = ((FLOAT64.bias - 62 - _resized(leading_zeros, _I64)) << FLOAT64.stored).as_float()
    r = x.like(builder.sitofp(times_eighth_pi.value, ir.DoubleType())) * unit

    is_negative = x < 0.0
    r = select(is_below ^ is_negative, -r, r)
    _return_both(builder, function, r.value, select(is_negative, -quadrant, quadrant).value)
    return function


def _window_of_two_over_pi(x: Lanes) -> Lanes:
    """2^E 2/pi modulo 4, in units of 2^-190; whatever, of an x that is too small."""
    all_bits = x.like(ir.Constant(ir.IntType(c.TWO_OVER_PI_BITS), c.TWO_OVER_PI))
    biased_exponent = (x.bits() >> FLOAT64.stored) & 0x7FF
    distance = (c.TWO_OVER_PI_BITS - 190 + FLOAT64.bias + FLOAT64.stored) - biased_exponent
    distance = select(distance < c.TWO_OVER_PI_BITS, distance, 0)
    return _resized(all_bits >> _resized(distance, all_bits.type), _WIDE)


def _long_product(a: Lanes, b: Lanes) -> Lanes:
    """a b modulo the width of b, a of 64 bits, from products of 32 by 32 bits: some targets call a library for more."""
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
