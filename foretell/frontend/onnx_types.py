"""ONNX's element types and value types in terms of ours."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import onnx
from onnx import TensorProto, TypeProto

from foretell.ir import dtypes
from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.printable import printable

DTYPE_OF_ONNX: dict[int, DType] = {
    TensorProto.BOOL: dtypes.BOOL,
    TensorProto.INT2: dtypes.I2,
    TensorProto.INT4: dtypes.I4,
    TensorProto.INT8: dtypes.I8,
    TensorProto.INT16: dtypes.I16,
    TensorProto.INT32: dtypes.I32,
    TensorProto.INT64: dtypes.I64,
    TensorProto.UINT2: dtypes.U2,
    TensorProto.UINT4: dtypes.U4,
    TensorProto.UINT8: dtypes.U8,
    TensorProto.UINT16: dtypes.U16,
    TensorProto.UINT32: dtypes.U32,
    TensorProto.UINT64: dtypes.U64,
    TensorProto.FLOAT16: dtypes.F16,
    TensorProto.FLOAT: dtypes.F32,
    TensorProto.DOUBLE: dtypes.F64,
    TensorProto.BFLOAT16: dtypes.BF16,
    TensorProto.FLOAT8E4M3FN: dtypes.F8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ: dtypes.F8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: dtypes.F8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: dtypes.F8E5M2FNUZ,
    TensorProto.FLOAT8E8M0: dtypes.F8E8M0,
    TensorProto.FLOAT4E2M1: dtypes.F4E2M1,
}
LONGEST_DIM_NAME = 64
ONNX_OF_DTYPE: dict[DType, int] = {dtype: code for code, dtype in DTYPE_OF_ONNX.items()}


def type_string(dtype: DType) -> str:
    """How operator schemas spell a tensor of this type: `tensor(float)`."""
    name = TensorProto.DataType.Name(ONNX_OF_DTYPE[dtype]).lower()  # pyright: ignore[reportArgumentType]
    return f"tensor({name})"


def to_type_proto(type: TensorType, names: dict[Dim, str]) -> TypeProto:
    """The same type for onnx's shape inference, where `names` tells what a symbolic dimension is called."""
    proto = TypeProto()
    proto.tensor_type.elem_type = ONNX_OF_DTYPE[type.dtype]
    proto.tensor_type.shape.SetInParent()
    for dim in type.shape:
        entry = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        else:
            entry.dim_param = names.setdefault(dim, f"d{len(names)}")
    return proto


def dims_of_proto(shape: onnx.TensorShapeProto, symbol: Callable[[str, int], Dim]) -> tuple[Dim, ...]:
    """The dimensions of an ONNX shape; `symbol(name, position)` stands for a named ("" if unnamed) one."""
    dims: list[Dim] = []
    for position, entry in enumerate(shape.dim):
        kind = entry.WhichOneof("value")
        dims.append(entry.dim_value if kind == "dim_value" else symbol(entry.dim_param, position))
    return tuple(dims)


def named_dim(name: str) -> Sym:
    """A dimension that the model names: some positive number, the same wherever the name stands.

    Names are written out wherever a shape is, so a long or unprintable one is replaced by a short one of its own.
    """
    if len(name) > LONGEST_DIM_NAME or not name.isprintable():
        name = f"{printable(name[:20])}~{sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"
    return Sym(name, 1)
