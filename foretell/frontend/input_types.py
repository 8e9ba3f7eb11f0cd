"""Types of inputs: as the model declares them, as the caller binds them, within the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import onnx
from onnx import ValueInfoProto

from foretell.frontend.onnx_types import DTYPE_OF_ONNX, dims_of_proto, named_dim
from foretell.graph.nodes import Array
from foretell.ir import dtypes, expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import (
    ConstantTooLarge,
    InvalidShape,
    RankTooHigh,
    TensorTooLarge,
    UnsupportedType,
    UsageError,
)
from foretell.support.limits import Limits


def input_type(
    info: ValueInfoProto, wish: Sequence[int | str | None] | None, bound: dict[Sym, Dim], limits: Limits
) -> TensorType:
    """The type of an input, its dimensions bound as the caller wishes; what symbols become is noted in `bound`."""
    type = value_type(info, limits, rank_if_unknown=None if wish is None else len(wish))
    if wish is None:
        return type
    if len(wish) != type.rank:
        raise UsageError(
            f"shapes gives {info.name!r} the wrong number of dimensions",
            expected=str(type),
            got=str(tuple(wish)),
            hint="give one number per dimension",
        )
    shape: list[Dim] = []
    for dim, wanted in zip(type.shape, wish, strict=True):
        new = dim if wanted is None else named_dim(wanted) if isinstance(wanted, str) else wanted
        if isinstance(new, int) and (new < 0 or (isinstance(dim, int) and new != dim)):
            raise UsageError(
                f"shapes contradicts the model's input {info.name!r}",
                expected=str(type),
                got=str(tuple(wish)),
                hint="only dimensions that are symbolic in the model can be bound",
            )
        if isinstance(dim, Sym) and bound.setdefault(dim, new) != new:
            raise UsageError(
                f"shapes binds the dimension {dim} to two numbers",
                expected=f"{dim} = {bound[dim]}",
                got=str(new),
                hint="dimensions of one name are equal in all inputs",
            )
        shape.append(new)
    return replace(type, shape=tuple(shape))


def value_type(info: ValueInfoProto, limits: Limits, rank_if_unknown: int | None = None) -> TensorType:
    """The declared type of an input."""
    kind = info.type.WhichOneof("value")
    tensor = info.type.tensor_type
    if kind != "tensor_type" or tensor.elem_type not in DTYPE_OF_ONNX:
        raise UnsupportedType(
            f"the input {info.name!r} is not a tensor of numbers",
            expected="a dense tensor of a numeric or boolean type",
            got=kind or "no type"
            if kind != "tensor_type"
            else onnx.TensorProto.DataType.Name(tensor.elem_type)
            if tensor.elem_type in onnx.TensorProto.DataType.values()
            else f"element type {tensor.elem_type}",
            hint="strings, sequences, maps and optionals are not supported",
        )

    def symbol(name: str, position: int) -> Dim:
        return named_dim(name) if name else named_dim(f"{info.name}_{position}")

    if not tensor.HasField("shape"):
        if rank_if_unknown is None:
            raise UnsupportedType(
                f"the rank of input {info.name!r} is not known",
                expected="an input with a shape, whose dimensions may be symbolic",
                got="no shape",
                hint=f"bind it: shapes={{{info.name!r}: (1, 3, 224, 224)}}",
            )
        dims = tuple(symbol("", position) for position in range(rank_if_unknown))
    else:
        dims = dims_of_proto(tensor.shape, symbol)
    type = TensorType(DTYPE_OF_ONNX[tensor.elem_type], dims)
    check_type(type, info.name, limits)
    return type


def check_value(name: str, type: TensorType, array: Array, bound: dict[Sym, Dim]) -> None:
    """Raise `UsageError` unless an array has the type of an input; symbolic dimensions are bound to what it has."""
    fits = dtypes.try_from_numpy(array.dtype) == type.dtype and array.ndim == type.rank
    for dim, extent in zip(type.shape, array.shape, strict=False):
        wanted = bound.setdefault(dim, extent) if isinstance(dim, Sym) else expr.substitute(dim, bound)
        fits = fits and wanted == extent
    if not fits:
        raise UsageError(
            f"values gives the input {name!r} something of another type",
            expected=str(type),
            got=f"{array.dtype}{list(array.shape)}",
            hint="`foretell check` lists the types of inputs",
        )


def check_type(type: TensorType, where: str, limits: Limits, constant: bool = False) -> None:
    """Refuse a type that breaks a limit or makes no sense; nothing of it exists yet."""
    if type.rank > limits.rank:
        raise RankTooHigh(
            "a tensor has too many dimensions",
            where=where,
            expected=f"rank at most {limits.rank}",
            got=f"rank {type.rank}",
            hint="raise Limits.rank if you trust the file",
        )
    if any(isinstance(dim, int) and not 0 <= dim < 1 << 62 for dim in type.shape):
        raise InvalidShape(
            "a dimension is negative or overflows",
            where=where,
            expected="dimensions from 0 to 2**62",
            got=str(type),
            hint="the file is damaged, or was made to do harm",
        )
    smallest = prod(max(0, expr.bounds(dim)[0] or 0) for dim in type.shape) * type.dtype.itemsize
    limit = limits.constant_bytes if constant else limits.tensor_bytes
    if smallest > limit:
        kind, name = (ConstantTooLarge, "constant_bytes") if constant else (TensorTooLarge, "tensor_bytes")
        raise kind(
            "a tensor computed from constants alone is too large" if constant else "a tensor is too large",
            where=where,
            expected=f"at most {limit} bytes",
            got=f"{type}, {smallest} bytes",
            hint=f"raise Limits.{name} if you trust the file",
        )
