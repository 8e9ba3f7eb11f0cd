"""Steps of vector math that AVX-512 has instructions for: 64 bytes at a time, whatever the number of lanes.

Fewer lanes are a part of a register, more of them several, so that each lane goes through the same instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ir

from foretell.codegen.math_lanes import Lanes
from foretell.codegen.types import I32, declare_intrinsic

REGISTER_BITS = 512
AS_IS = 4
"""The rounding that is set, and no exceptions."""
SMALLER_MAGNITUDE, SIGN_OF_FIRST = 2, 0


def scaled(x: Lanes, n: Lanes) -> Lanes:
    """x 2^n for n of any size, infinities included, cut to an integer; rounds once, denormal or not (vscalef)."""

    def emit(arguments: Sequence[ir.Value]) -> ir.Value:
        a, b = arguments
        return _masked_call(x, "scalef", [a, b], [a])

    return _by_registers(emit, x, n)


def within(x: Lanes, bound: float) -> Lanes:
    """x where |x| <= bound, else the bound with the sign of x; and the bound for NaN (vrange)."""

    def emit(arguments: Sequence[ir.Value]) -> ir.Value:
        a, b = arguments
        return _masked_call(x, "range", [a, b, ir.Constant(I32, SMALLER_MAGNITUDE | SIGN_OF_FIRST << 2)], [a])

    return _by_registers(emit, x, x.lift(bound))


def picked(table: Sequence[float], index: Lanes) -> Lanes:
    """table[index mod its length] for a table of 64 bytes (vperm)."""
    element = index.format.element
    values = ir.Constant(ir.VectorType(element, len(table)), [ir.Constant(element, value) for value in table])
    name = f"llvm.x86.avx512.permvar.{_letter(index)}f.512"

    def emit(arguments: Sequence[ir.Value]) -> ir.Value:
        (places,) = arguments
        function = declare_intrinsic(index.builder.module, name, [], values.type, [values.type, places.type])
        return index.builder.call(function, [values, places])

    assert len(table) * index.format.bits == REGISTER_BITS, "a table is a register"
    return _by_registers(emit, index)


def _letter(x: Lanes) -> str:
    return "s" if x.format.bits == 32 else "d"


def _masked_call(x: Lanes, name: str, arguments: Sequence[ir.Value], rest: Sequence[ir.Value]) -> ir.Value:
    """A call of an intrinsic that could leave some lanes of `rest` as they are, and leaves none."""
    lanes = ir.IntType(REGISTER_BITS // x.format.bits)
    every = [*arguments, *rest, ir.Constant(lanes, (1 << lanes.width) - 1), ir.Constant(I32, AS_IS)]
    full = f"llvm.x86.avx512.mask.{name}.p{_letter(x)}.512"
    types = [argument.type for argument in every]
    return x.builder.call(declare_intrinsic(x.builder.module, full, [], types[0], types), every)


def _by_registers(emit: Callable[[Sequence[ir.Value]], ir.Value], *operands: Lanes) -> Lanes:
    """What `emit` makes of full registers, for each register's worth of the operands; spare lanes are undefined."""
    first = operands[0]
    lanes, width = REGISTER_BITS // first.format.bits, first.width or 1
    pieces = [emit([_register(operand, start, lanes) for operand in operands]) for start in range(0, width, lanes)]
    while len(pieces) > 1:
        pieces += pieces[-1:] if len(pieces) % 2 else []
        pieces = [_joined(first.builder, *pieces[pair : pair + 2]) for pair in range(0, len(pieces), 2)]
    (whole,) = pieces
    if first.width is None:
        return first.like(first.builder.extract_element(whole, ir.Constant(I32, 0)))
    return first.like(whole if whole.type.count == width else _shuffled(first.builder, whole, range(width)))


def _register(operand: Lanes, start: int, lanes: int) -> ir.Value:
    build, value, width = operand.builder, operand.value, operand.width
    if width is None:
        undefined = ir.Constant(ir.VectorType(operand.element, lanes), ir.Undefined)
        return build.insert_element(undefined, value, ir.Constant(I32, 0))
    return value if width == lanes else _shuffled(build, value, range(start, start + lanes))


def _joined(build: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
    places = [ir.Constant(I32, place) for place in range(2 * low.type.count)]
    return build.shuffle_vector(low, high, ir.Constant(ir.VectorType(I32, len(places)), places))


def _shuffled(build: ir.IRBuilder, value: ir.Value, places: range) -> ir.Value:
    """Some lanes of a vector; those that it does not have are undefined."""
    count = value.type.count
    order = [ir.Constant(I32, min(place, count)) for place in places]
    undefined = ir.Constant(value.type, ir.Undefined)
    return build.shuffle_vector(value, undefined, ir.Constant(ir.VectorType(I32, len(order)), order))
