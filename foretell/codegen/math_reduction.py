"""Angles modulo pi/2: x = n pi/2 + r with |r| <= pi/4; the two low bits of n are the quadrant.

For |x| up to `FAST_REDUCTION`, three fused steps subtract n pi/2 (Cody and Waite, Software Manual for the Elementary
Functions, 1980): each removes what is left of the leading bits, and only the last two round. A vector with a larger
lane is rare and leaves the straight line: such lanes are reduced one at a time, in integer arithmetic, with as many
bits of 2/pi as they need (Payne and Hanek, SIGNUM Newsletter 18, 1983).
"""

from __future__ import annotations

import math
from itertools import pairwise

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
    intrinsic,
    mad,
    select,
    type_name,
)


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
    2^(1-E) on matter, and of the product, which begins with the quadrant, the first 128. No double is nearer to a
    multiple of pi/2 than 2^-62 (Muller, Elementary Functions, on worst cases of range reduction): so at least 64 bits
    are left to r.
    """
    name = "foretell.reduce_huge.scalar"
    if name in module.globals:
        return module.globals[name]
    function = _cold_function(module, name, [ir.DoubleType(), ir.IntType(64)], ir.DoubleType())
    builder = ir.IRBuilder(function.append_basic_block())
    x = Lanes(builder, function.args[0])

    high, low = _leading_words(((x.bits() & (2**52 - 1)) | 2**52), _window_of_two_over_pi(x))
    quadrant = ((high >> 61) + 1) >> 1
    fraction, fraction_low = intrinsic("fshl", high, low, high.lift(2)), low << 2
    is_below = fraction >= 2**63
    flip = select(is_below, fraction.lift(-1), 0)
    magnitude, magnitude_low = fraction ^ flip, fraction_low ^ flip

    leading_zeros = x.like(builder.ctlz(magnitude.value, ir.IntType(1)(0)))
    top = intrinsic("fshl", magnitude, magnitude_low, leading_zeros)
    unit = ((FLOAT64.bias - 62 - leading_zeros) << FLOAT64.stored).as_float()
    r = x.like(builder.sitofp(_upper_product(top, c.EIGHTH_PI_64).value, ir.DoubleType())) * unit

    is_negative = x < 0.0
    r = select(is_below ^ is_negative, -r, r)
    _return_both(builder, function, r.value, select(is_negative, -quadrant, quadrant).value)
    return function


def _window_of_two_over_pi(x: Lanes) -> list[Lanes]:
    """Three words of 2/pi from weight 2^(1-E) on, the leading one first: from bit 64 + E - 2 of the table on."""
    builder, module = x.builder, x.builder.module
    table_type = ir.ArrayType(ir.IntType(64), len(c.TWO_OVER_PI))
    table = module.globals.get("foretell.two_over_pi")
    if table is None:
        table = ir.GlobalVariable(module, table_type, "foretell.two_over_pi")
        table.linkage, table.initializer = "internal", table_type(c.TWO_OVER_PI)
        table.global_constant = True  # pyright: ignore[reportAttributeAccessIssue]
    field = (x.bits() >> FLOAT64.stored) & 0x7FF
    smallest = FLOAT64.bias + 16
    position = select(field > smallest, field, smallest) - (FLOAT64.bias + FLOAT64.stored - 64 + 2)
    words: list[Lanes] = []
    for i in range(4):
        address = builder.gep(table, [((position >> 6) + i).value], source_etype=ir.IntType(64))
        words.append(x.like(builder.load(address, typ=ir.IntType(64))))
    return [intrinsic("fshl", first, second, position & 63) for first, second in pairwise(words)]


def _leading_words(a: Lanes, words: list[Lanes]) -> tuple[Lanes, Lanes]:
    """The first two words of a times the words, modulo their width: the schoolbook method, in halves of words."""
    mask = 0xFFFFFFFF
    halves = [half for word in reversed(words) for half in (word & mask, word >> 32)]
    product = [a.lift(0)] * len(halves)
    for i, digit in enumerate((a & mask, a >> 32)):
        carry = a.lift(0)
        for j, half in enumerate(halves[: len(halves) - i]):
            total = digit * half + product[i + j] + carry
            product[i + j], carry = total & mask, total >> 32
    return (product[5] << 32) | product[4], (product[3] << 32) | product[2]


def _upper_product(a: Lanes, b: int) -> Lanes:
    """a b / 2^64, at most 3 too small."""
    a1, a0, b1, b0 = a >> 32, a & 0xFFFFFFFF, b >> 32, b & 0xFFFFFFFF
    return a1 * b1 + ((a1 * b0) >> 32) + ((a0 * b1) >> 32)


def _cold_function(module: ir.Module, name: str, results: list[ir.Type], argument: ir.Type) -> ir.Function:
    function = ir.Function(module, ir.FunctionType(ir.LiteralStructType(results), [argument]), name)
    function.linkage = "internal"
    for attribute in ("cold", "noinline", "nounwind"):
        function.attributes.add(attribute)
    return function


def _return_both(builder: ir.IRBuilder, function: ir.Function, first: ir.Value, second: ir.Value) -> None:
    both = ir.Constant(function.ftype.return_type, ir.Undefined)
    builder.ret(builder.insert_value(builder.insert_value(both, first, 0), second, 1))
