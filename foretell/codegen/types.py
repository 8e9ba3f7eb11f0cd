"""Element types in LLVM: how they are stored in memory and what registers hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import llvmlite.ir as ir

from foretell.ir.dtypes import BF16, BOOL, F16, F32, F64, DType

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
FLOAT, DOUBLE, HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()


class Splat(ir.Constant):
    """A vector constant of equal elements, printed as one: there are many of them in some kernels."""

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


class Word(ir.FormattedConstant):
    """A constant that one word stands for, whatever its type; llvmlite would repeat it for each lane."""

    def __init__(self, type: ir.Type, word: str) -> None:
        self.type = type
        self.constant = word


@lru_cache(1 << 14)
def integer(value: int, type: ir.IntType = I64) -> ir.Constant:
    """A whole number: the same ones are met again and again."""
    return ir.Constant(type, int(value))


@cache
def undefined(type: ir.Type) -> ir.Constant:
    """Any value, whichever suits LLVM; in all lanes."""
    return Word(type, "undef")


@cache
def zeros(type: ir.Type) -> ir.Constant:
    """Zero, or false, in all lanes."""
    return Word(type, "zeroinitializer")


@lru_cache(1 << 10)
def lane_constants(values: tuple[int, ...], type: ir.IntType = I32) -> ir.Constant:
    """A whole number for each lane."""
    return ir.Constant(ir.VectorType(type, len(values)), values)


@cache
def stored_type(dtype: DType) -> ir.Type:
    """One element in memory; what is narrower than a byte takes one."""
    if dtype in (F32, F64, F16):
        return {F32: FLOAT, F64: DOUBLE, F16: HALF}[dtype]
    if dtype is BF16:
        return I16
    return ir.IntType(max(8, dtype.bits))


@cache
def register_type(dtype: DType) -> ir.Type:
    """One value of a compute type."""
    if dtype is BOOL:
        return I1
    return {F32: FLOAT, F64: DOUBLE}.get(dtype) or ir.IntType(dtype.bits)


@cache
def widened(type: ir.Type, lanes: int) -> ir.Type:
    return type if lanes == 1 else ir.VectorType(type, lanes)


def is_vector(value: ir.Value) -> bool:
    return isinstance(value.type, ir.VectorType)


def lanes_of(value: ir.Value) -> int:
    return value.type.count if is_vector(value) else 1


def lanes_of_type(type: ir.Type) -> int:
    return type.count if isinstance(type, ir.VectorType) else 1


def scalar_type(value: ir.Value) -> ir.Type:
    return value.type.element if is_vector(value) else value.type


def declare_intrinsic(
    module: ir.Module, name: str, overloads: Sequence[ir.Type], result: ir.Type, arguments: Sequence[ir.Type]
) -> ir.Function:
    """An LLVM intrinsic with its overloaded types spelled out in its name: llvm.fma.v8f32."""
    full = ".".join((name, *(_suffix(type) for type in overloads)))
    return module.globals.get(full) or ir.Function(module, ir.FunctionType(result, arguments), full)


def _suffix(type: ir.Type) -> str:
    if isinstance(type, ir.PointerType):
        return "p0"
    if isinstance(type, ir.VectorType):
        return f"v{type.count}{_suffix(type.element)}"
    return type.intrinsic_name
