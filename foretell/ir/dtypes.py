"""The element types of tensors: every one that numpy and ml-dtypes can hold."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `kind` is one of bool, int, uint, float; `bits` the width of a stored element."""

    name: str
    kind: str
    bits: int

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return _NUMPY[self.name]

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory, where sub-byte elements take a byte each."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def compute(self) -> DType:
        """The type arithmetic is done in: float32 for narrower floats, a byte for narrower integers."""
        if self.is_float:
            return F32 if self.bits < 32 else self
        if self.bits < 8:
            return I8 if self.kind == "int" else U8
        return self

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


BOOL = DType("bool", "bool", 8)
I2, I4, I8, I16, I32, I64 = (DType(f"i{bits}", "int", bits) for bits in (2, 4, 8, 16, 32, 64))
U2, U4, U8, U16, U32, U64 = (DType(f"u{bits}", "uint", bits) for bits in (2, 4, 8, 16, 32, 64))
F16, F32, F64 = (DType(f"f{bits}", "float", bits) for bits in (16, 32, 64))
BF16 = DType("bf16", "float", 16)
F8E4M3FN = DType("f8e4m3fn", "float", 8)
F8E4M3FNUZ = DType("f8e4m3fnuz", "float", 8)
F8E5M2 = DType("f8e5m2", "float", 8)
F8E5M2FNUZ = DType("f8e5m2fnuz", "float", 8)
F8E8M0 = DType("f8e8m0", "float", 8)
F4E2M1 = DType("f4e2m1", "float", 4)

_NUMPY: dict[str, np.dtype[np.generic]] = {
    name: np.dtype(scalar)
    for name, scalar in {
        "bool": np.bool_,
        "i2": ml_dtypes.int2,
        "i4": ml_dtypes.int4,
        "i8": np.int8,
        "i16": np.int16,
        "i32": np.int32,
        "i64": np.int64,
        "u2": ml_dtypes.uint2,
        "u4": ml_dtypes.uint4,
        "u8": np.uint8,
        "u16": np.uint16,
        "u32": np.uint32,
        "u64": np.uint64,
        "f16": np.float16,
        "f32": np.float32,
        "f64": np.float64,
        "bf16": ml_dtypes.bfloat16,
        "f8e4m3fn": ml_dtypes.float8_e4m3fn,
        "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "f8e8m0": ml_dtypes.float8_e8m0fnu,
        "f4e2m1": ml_dtypes.float4_e2m1fn,
    }.items()
}

ALL: tuple[DType, ...] = (
    *(BOOL, I2, I4, I8, I16, I32, I64, U2, U4, U8, U16, U32, U64, F16, F32, F64, BF16),
    *(F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F4E2M1),
)
_BY_NUMPY = {dtype.numpy: dtype for dtype in ALL}
_BY_NAME = {dtype.name: dtype for dtype in ALL}


def try_from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """The DType of a numpy dtype, or None for what tensors cannot hold (strings, objects, complex)."""
    return _BY_NUMPY.get(np.dtype(dtype))


def from_numpy(dtype: np.dtype[np.generic]) -> DType:
    """The DType of a numpy dtype that is known to be one of ours."""
    found = try_from_numpy(dtype)
    assert found is not None, f"no element type for numpy's {dtype}"
    return found


def from_name(name: str) -> DType:
    return _BY_NAME[name]
