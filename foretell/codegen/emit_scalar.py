"""Scalar operations on LLVM values, one lane or many: what each primitive of a tensor expression becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ir

from foretell.codegen.math_lanes import Instructions
from foretell.codegen.narrow_floats import decode, encode, is_narrow_float
from foretell.codegen.types import (
    DOUBLE,
    FLOAT,
    I1,
    I8,
    I32,
    I64,
    Splat,
    declare_intrinsic,
    integer,
    is_vector,
    lane_constants,
    lanes_of,
    register_type,
    scalar_type,
    stored_type,
    undefined,
    widened,
)
from foretell.codegen.vector_math import MATH_FUNCTIONS, math_function
from foretell.ir.dtypes import BF16, BOOL, F16, F32, F64, DType
from foretell.ir.tensor_expr import REDUCTION_OPERATIONS

CONTRACT = ("contract",)
"""Lets LLVM fuse a multiplication and an addition, and nothing else."""


class ScalarEmitter:
    """Emits operations at the end of the current block. Values of one lane are broadcast where they meet vectors."""

    def __init__(self, module: ir.Module, builder: ir.IRBuilder, instructions: Instructions) -> None:
        self.module = module
        self.builder = builder
        self.instructions = instructions

    # --- shapes of values ---

    def splat(self, value: ir.Value, lanes: int) -> ir.Value:
        """The value in every lane."""
        if lanes == 1 or is_vector(value):
            return value
        type = widened(value.type, lanes)
        if isinstance(value, ir.Constant) and not isinstance(value.constant, str):
            return Splat(type, value)
        first = self.builder.insert_element(undefined(type), value, integer(0, I32))
        return self.builder.shuffle_vector(first, undefined(type), lane_constants((0,) * lanes))

    def alike(self, *values: ir.Value) -> list[ir.Value]:
        lanes = max(lanes_of(value) for value in values)
        return [self.splat(value, lanes) for value in values]

    def part(self, value: ir.Value, first: int, lanes: int) -> ir.Value:
        """So many lanes from one of them on."""
        if lanes == 1:
            return self.builder.extract_element(value, integer(first, I32))
        return self.shuffled(value, undefined(value.type), range(first, first + lanes))

    def shuffled(self, left: ir.Value, right: ir.Value, places: Sequence[int]) -> ir.Value:
        """A lane of either vector at each place; those of the right one are counted after those of the left."""
        return self.builder.shuffle_vector(left, right, lane_constants(tuple(places)))

    def constant(self, value: bool | int | float, dtype: DType) -> ir.Constant:
        type = register_type(dtype.compute)
        if dtype.is_float:
            return ir.Constant(type, float(value))
        bits = dtype.compute.bits if dtype is not BOOL else 1
        return ir.Constant(type, int(value) & ((1 << bits) - 1))

    def number(self, value: float | int, like: ir.Value) -> ir.Value:
        """A constant of the type of another value."""
        element = scalar_type(like)
        constant = ir.Constant(element, value)
        return constant if not is_vector(like) else Splat(like.type, constant)

    def intrinsic(self, name: str, *values: ir.Value) -> ir.Value:
        """A call of an overloaded LLVM intrinsic whose result has the type of its first argument."""
        type = values[0].type
        function = declare_intrinsic(self.module, name, [type], type, [value.type for value in values])
        return self.builder.call(function, list(values))

    # --- memory types ---

    def from_memory(self, value: ir.Value, dtype: DType) -> ir.Value:
        """A loaded element in its compute type."""
        lanes, build = lanes_of(value), self.builder
        if dtype is BOOL:
            return build.icmp_unsigned("!=", value, self.number(0, value))
        if dtype is F16:
            return build.fpext(value, widened(register_type(F32), lanes))
        if dtype is BF16:
            wide = build.zext(value, widened(I32, lanes))
            return build.bitcast(build.shl(wide, self.number(16, wide)), widened(register_type(F32), lanes))
        if is_narrow_float(dtype):
            return decode(build, value, dtype)
        if dtype.bits < 8:
            spare = self.number(8 - dtype.bits, value)
            shifted = build.shl(value, spare)
            return build.ashr(shifted, spare) if dtype.kind == "int" else build.lshr(shifted, spare)
        return value

    def to_memory(self, value: ir.Value, dtype: DType, saturate: bool = False) -> ir.Value:
        """A value of the compute type as it is stored, rounded to nearest even; `saturate` is for narrow floats."""
        lanes, build = lanes_of(value), self.builder
        if dtype is BOOL:
            return build.zext(value, widened(I8, lanes))
        if dtype is F16:
            return build.fptrunc(value, widened(stored_type(F16), lanes))
        if dtype is BF16:
            return self._to_bfloat16(value)
        if is_narrow_float(dtype):
            return encode(build, value, dtype, saturate)
        if dtype.bits < 8:
            return self.from_memory(value, dtype)
        return value

    def _to_bfloat16(self, value: ir.Value) -> ir.Value:
        """The upper half of a float32, after adding what rounds it to nearest even; NaN keeps a bit set."""
        build, lanes = self.builder, lanes_of(value)
        bits = build.bitcast(value, widened(I32, lanes))
        odd = build.and_(build.lshr(bits, self.number(16, bits)), self.number(1, bits))
        rounded = build.add(bits, build.add(odd, self.number(0x7FFF, bits)))
        quiet = build.or_(bits, self.number(0x400000, bits))
        is_nan = build.fcmp_unordered("uno", value, value)
        chosen = build.select(is_nan, quiet, rounded)
        return build.trunc(build.lshr(chosen, self.number(16, bits)), widened(ir.IntType(16), lanes))

    # --- conversions ---

    def cast(self, value: ir.Value, source: DType, target: DType, saturate: bool = False) -> ir.Value:
        """C's conversion between compute types, then rounding to `target` if that is narrower."""
        wide = self._convert(value, source.compute, target.compute)
        if target.compute == target:
            return wide
        return self.from_memory(self.to_memory(wide, target, saturate), target)

    def _convert(self, value: ir.Value, source: DType, target: DType) -> ir.Value:
        if source == target:
            return value
        build, type = self.builder, widened(register_type(target), lanes_of(value))
        if target is BOOL:
            zero = self.number(0, value)
            return build.fcmp_unordered("!=", value, zero) if source.is_float else build.icmp_signed("!=", value, zero)
        if source.is_float and target.is_float:
            return build.fpext(value, type) if target.bits > source.bits else build.fptrunc(value, type)
        if source.is_float:
            return self._float_to_integer(value, target, type)
        if target.is_float:
            return build.sitofp(value, type) if source.kind == "int" else build.uitofp(value, type)
        return self._resize(value, source, target, type)

    def _float_to_integer(self, value: ir.Value, target: DType, type: ir.Type) -> ir.Value:
        """Truncation; what does not fit a narrow type wraps around, as through a wider one."""
        lanes = lanes_of(value)
        if target.bits == 64:
            name = "llvm.fptosi.sat" if target.kind == "int" else "llvm.fptoui.sat"
            return self._saturating(name, value, type)
        through = widened(I32 if target.bits < 32 or target.kind == "int" else I64, lanes)
        wide = self._saturating("llvm.fptosi.sat", value, through)
        return wide if wide.type == type else self.builder.trunc(wide, type)

    def _saturating(self, name: str, value: ir.Value, type: ir.Type) -> ir.Value:
        function = declare_intrinsic(self.module, name, [type, value.type], type, [value.type])
        return self.builder.call(function, [value])

    def _resize(self, value: ir.Value, source: DType, target: DType, type: ir.Type) -> ir.Value:
        width = 1 if source is BOOL else source.bits
        if target.bits < width:
            return self.builder.trunc(value, type)
        if target.bits == width:
            return value
        return self.builder.sext(value, type) if source.kind == "int" else self.builder.zext(value, type)

    # --- primitives ---

    def apply(self, op: str, values: list[ir.Value], dtype: DType) -> ir.Value:
        """A primitive on operands of compute type `dtype` (that of the first operand)."""
        values = self.alike(*values)
        if op in _COMPARISONS:
            return self._compare(op, values[0], values[1], dtype)
        if op == "bits":
            other = {F32: I32, F64: I64}.get(dtype) or {32: FLOAT, 64: DOUBLE}[dtype.bits]
            return self.builder.bitcast(values[0], widened(other, lanes_of(values[0])))
        if dtype.is_float:
            return self._float(op, values)
        if dtype is BOOL:
            return self._bool(op, values)
        return self._integer(op, values, dtype)

    def _compare(self, op: str, left: ir.Value, right: ir.Value, dtype: DType) -> ir.Value:
        sign = _COMPARISONS[op]
        if dtype.is_float:
            compare = self.builder.fcmp_unordered if op == "ne" else self.builder.fcmp_ordered
            return compare(sign, left, right)
        compare = self.builder.icmp_signed if dtype.kind == "int" else self.builder.icmp_unsigned
        return compare(sign, left, right)

    def _float(self, op: str, values: list[ir.Value]) -> ir.Value:
        build, first = self.builder, values[0]
        if op in _FLOAT_INTRINSICS:
            return self.intrinsic(_FLOAT_INTRINSICS[op], *values)
        if op in MATH_FUNCTIONS:
            return build.call(math_function(self.module, op, first.type, self.instructions), values)
        match op:
            case "add" | "sub" | "mul" | "div":
                return getattr(build, f"f{op}")(*values, flags=CONTRACT)
            case "max" | "min":
                return self._float_extreme(op, *values)
            case "neg":
                return build.fneg(first)
            case "reciprocal":
                return build.fdiv(self.number(1.0, first), first)
            case "sign":
                return self._float_sign(first)
            case "isnan":
                return build.fcmp_unordered("uno", first, first)
            case "isinf":
                return build.fcmp_ordered("==", self.intrinsic("llvm.fabs", first), self.number(float("inf"), first))
            case "mod":
                return self._float_mod(*values)
            case _:
                raise AssertionError(f"{op} is not defined on floats")

    def _float_extreme(self, op: str, left: ir.Value, right: ir.Value) -> ir.Value:
        """The larger or smaller, or NaN if either is; of zeros of two signs, one of them.

        A compare and select is one instruction on most machines, and passes a NaN on the right; one on the left
        takes another select, unless it is a constant.
        """
        if isinstance(right, ir.Constant):
            left, right = right, left
        chosen = self.combine_ordered(op, left, right)
        if isinstance(left, ir.Constant):
            return chosen
        return self.builder.select(self.builder.fcmp_unordered("uno", left, left), left, chosen)

    def _float_sign(self, value: ir.Value) -> ir.Value:
        zero = self.number(0.0, value)
        one = self.intrinsic("llvm.copysign", self.number(1.0, value), value)
        return self.builder.select(self.builder.fcmp_ordered("one", value, zero), one, value)

    def _float_mod(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """fmod, moved to the sign of the divisor."""
        rest = self._float("fmod", [left, right])
        zero, build = self.number(0.0, left), self.builder
        differs = build.xor(build.fcmp_ordered("<", rest, zero), build.fcmp_ordered("<", right, zero))
        wrong = build.and_(differs, build.fcmp_ordered("one", rest, zero))
        return build.select(wrong, build.fadd(rest, right), rest)

    def _bool(self, op: str, values: list[ir.Value]) -> ir.Value:
        match op:
            case "and" | "min" | "mul":
                return self.builder.and_(*values)
            case "or" | "max" | "add":
                return self.builder.or_(*values)
            case "xor" | "sub":
                return self.builder.xor(*values)
            case "not":
                return self.builder.xor(values[0], self.number(1, values[0]))
            case _:
                raise AssertionError(f"{op} is not defined on booleans")

    def _integer(self, op: str, values: list[ir.Value], dtype: DType) -> ir.Value:
        build, first = self.builder, values[0]
        signed = dtype.kind == "int"
        plain: dict[str, Callable[..., ir.Value]] = {
            "add": build.add,
            "sub": build.sub,
            "mul": build.mul,
            "and": build.and_,
            "or": build.or_,
            "xor": build.xor,
        }
        if op in plain:
            return plain[op](*values)
        match op:
            case "max" | "min":
                return self.intrinsic(f"llvm.{'s' if signed else 'u'}{op}", *values)
            case "neg":
                return build.sub(self.number(0, first), first)
            case "not":
                return build.xor(first, self.number(-1, first))
            case "abs":
                return first if not signed else self._absolute(first)
            case "sign":
                return self._integer_sign(first, signed)
            case "floor" | "ceil" | "round":
                return first
            case "div":
                return self._divide(values[0], values[1], signed)
            case "mod" | "fmod":
                return self._remainder(op, values[0], values[1], signed)
            case "shl" | "shr":
                return self._shift(op, values[0], values[1], signed, dtype.bits)
            case "pow":
                name = "ipow" if signed else "upow"
                return build.call(math_function(self.module, name, first.type), values)
            case "isnan" | "isinf":
                return self.splat(integer(0, I1), lanes_of(first))
            case _:
                raise AssertionError(f"{op} is not defined on integers")

    def _absolute(self, value: ir.Value) -> ir.Value:
        function = declare_intrinsic(self.module, "llvm.abs", [value.type], value.type, [value.type, I1])
        return self.builder.call(function, [value, integer(0, I1)])

    def _integer_sign(self, value: ir.Value, signed: bool) -> ir.Value:
        zero, one, build = self.number(0, value), self.number(1, value), self.builder
        positive = build.select(build.icmp_unsigned("!=", value, zero), one, zero)
        return (
            build.select(build.icmp_signed("<", value, zero), self.number(-1, value), positive) if signed else positive
        )

    def _safe_divisor(self, left: ir.Value, right: ir.Value, signed: bool) -> ir.Value:
        """A divisor that never traps: 1 stands in for 0, and for -1 (which only negates, or overflows)."""
        build = self.builder
        bad = build.icmp_unsigned("==", right, self.number(0, right))
        if signed:
            bad = build.or_(bad, build.icmp_signed("==", right, self.number(-1, right)))
        return build.select(bad, self.number(1, right), right)

    def _divide(self, left: ir.Value, right: ir.Value, signed: bool) -> ir.Value:
        build = self.builder
        safe = self._safe_divisor(left, right, signed)
        if not signed:
            return build.udiv(left, safe)
        negated = build.sub(self.number(0, left), left)
        return build.select(build.icmp_signed("==", right, self.number(-1, right)), negated, build.sdiv(left, safe))

    def _remainder(self, op: str, left: ir.Value, right: ir.Value, signed: bool) -> ir.Value:
        build = self.builder
        safe = self._safe_divisor(left, right, signed)
        rest = build.srem(left, safe) if signed else build.urem(left, safe)
        if op == "fmod" or not signed:
            return rest
        zero = self.number(0, rest)
        differs = build.xor(build.icmp_signed("<", rest, zero), build.icmp_signed("<", right, zero))
        wrong = build.and_(differs, build.icmp_signed("!=", rest, zero))
        return build.select(wrong, build.add(rest, safe), rest)

    def _shift(self, op: str, left: ir.Value, right: ir.Value, signed: bool, bits: int) -> ir.Value:
        """A shift by the width or more leaves nothing, or the sign."""
        build = self.builder
        most = self.number(bits - 1, right)
        far = build.icmp_unsigned(">", right, most)
        amount = build.select(far, most, right)
        if op == "shr" and signed:
            return build.ashr(left, amount)
        shifted = build.shl(left, amount) if op == "shl" else build.lshr(left, amount)
        return build.select(far, self.number(0, left), shifted)

    # --- reductions ---

    def combine(self, reduction: str, left: ir.Value, right: ir.Value, dtype: DType) -> ir.Value:
        return self.apply(REDUCTION_OPERATIONS[reduction], [left, right], dtype)

    def combine_ordered(self, reduction: str, left: ir.Value, right: ir.Value) -> ir.Value:
        """The larger or smaller of floats, where NaN on the left is taken care of elsewhere: one instruction."""
        sign = {"max": ">", "min": "<"}[reduction]
        return self.builder.select(self.builder.fcmp_ordered(sign, left, right), left, right)

    def across(self, combine: Callable[[ir.Value, ir.Value], ir.Value], value: ir.Value) -> ir.Value:
        """All lanes combined into one, halving the vector each time: a fixed order, whatever the machine."""
        lanes = lanes_of(value)
        while lanes > 1:
            half = lanes // 2
            low, high = (
                self.builder.shuffle_vector(
                    value, undefined(value.type), lane_constants(tuple(range(start, start + half)))
                )
                for start in (0, half)
            )
            value, lanes = combine(low, high), half
        return self.builder.extract_element(value, integer(0, I32)) if is_vector(value) else value

    def any(self, mask: ir.Value) -> ir.Value:
        """Whether some lane is true."""
        function = declare_intrinsic(self.module, "llvm.vector.reduce.or", [mask.type], I1, [mask.type])
        return self.builder.call(function, [mask])


_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLOAT_INTRINSICS = {
    **{"abs": "llvm.fabs", "floor": "llvm.floor", "ceil": "llvm.ceil", "round": "llvm.roundeven", "sqrt": "llvm.sqrt"},
}
