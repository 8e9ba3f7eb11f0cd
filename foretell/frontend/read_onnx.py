"""Read an ONNX model that nobody vouches for, with its weights mapped and never duplicated.

The file is mapped, its large raw tensors are cut out where they lie (wire.py), and protobuf parses the little that is
left. A tensor becomes an array only when asked for, and only after its type, shape and size agree.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from foretell.frontend.mapped_files import ExternalFiles, check_file_bytes, map_model, quoted
from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.frontend.wire import KEY_BYTES, strip_payloads
from foretell.ir import dtypes
from foretell.ir.dtypes import DType
from foretell.support.errors import (
    BadExternalData,
    InvalidShape,
    InvalidTensor,
    RankTooHigh,
    UnreadableModel,
    UnsafeExternalData,
    UnsupportedModel,
    UnsupportedType,
    UsageError,
)
from foretell.support.limits import DEFAULT_LIMITS, Limits

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

_ENTRIES: Final[Mapping[str, np.dtype[np.generic]]] = {
    "float_data": np.dtype(np.float32),
    "double_data": np.dtype(np.float64),
    "int32_data": np.dtype(np.int32),
    "int64_data": np.dtype(np.int64),
    "uint64_data": np.dtype(np.uint64),
}
"""The fields that may hold a value as numbers, and their types."""

_TYPED_FIELDS: Final[Mapping[DType, str]] = {
    dtypes.F32: "float_data",
    dtypes.F64: "double_data",
    dtypes.I64: "int64_data",
    dtypes.U32: "uint64_data",
    dtypes.U64: "uint64_data",
}
_OTHER_TYPED_FIELD: Final = "int32_data"
_EXTERNAL_KEYS: Final = frozenset({"location", "offset", "length"})
_LFS_POINTER: Final = b"version https://git-lfs.github.com/"
_BYTES_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, eq=False)
class StoredModel:
    """A model as it is stored. Ask `array` for the value of any tensor in `proto`, and nothing else.

    A large tensor has a key of `tensors` as its `raw_data`: the payload itself stays in the file. Copies of such a
    tensor stand for the same payload.
    """

    proto: onnx.ModelProto
    tensors: Mapping[bytes, memoryview]
    external: ExternalFiles | None
    limits: Limits
    arrays: dict[int, tuple[object, Array]] = field(default_factory=dict[int, tuple[object, Array]])
    """By identity of the message that holds it, which is kept: one in a function is asked for at every call."""

    def array(self, tensor: onnx.TensorProto) -> Array:
        """The value of an initializer or of a tensor attribute, read-only; mapped when it is stored raw or external.

        A mapped array may be unaligned: protobuf puts it anywhere. Elements narrower than a byte are unpacked to a
        byte each.

        raises: before anything is allocated, when type, shape, size or place are not what they must be.
        """
        if id(tensor) not in self.arrays:
            self.arrays[id(tensor)] = (tensor, self._read(tensor))
        return self.arrays[id(tensor)][1]

    def numbers(self, attribute: onnx.AttributeProto, dtype: np.dtype[np.generic]) -> Array:
        """The numbers or the number that an attribute holds, read-only."""
        if id(attribute) not in self.arrays:
            fields = {onnx.AttributeProto.INT: "i", onnx.AttributeProto.FLOAT: "f", onnx.AttributeProto.INTS: "ints"}
            array = np.array(getattr(attribute, fields.get(attribute.type, "floats")), dtype)
            array.flags.writeable = False
            self.arrays[id(attribute)] = (attribute, array)
        return self.arrays[id(attribute)][1]

    def _read(self, tensor: onnx.TensorProto) -> Array:
        where = f"tensor {quoted(tensor.name)}"
        dtype = _check_dtype(tensor, where)
        shape = _check_shape(tensor, dtype, self.limits, where)
        stored_bytes = -(-math.prod(shape) * dtype.bits // 8)
        fields = _check_storage(tensor, where)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            data = self._external_bytes(tensor, stored_bytes, where)
        elif fields and fields[0] != "raw_data":
            data = _typed_bytes(tensor, dtype, stored_bytes, where)
        else:
            raw_data = tensor.raw_data
            data = self.tensors.get(raw_data, raw_data) if len(raw_data) == KEY_BYTES else raw_data
            _check_size("raw_data", len(data), stored_bytes, "bytes", where)
        return _decode(data, dtype, shape, where)

    def _external_bytes(self, tensor: onnx.TensorProto, stored_bytes: int, where: str) -> memoryview:
        if self.external is None:
            raise UnsafeExternalData(
                "external data has no folder to be read from",
                where=where,
                expected="a model given as a path, or tensors stored inside it",
                got="a model given as bytes or as a ModelProto",
                hint="pass the path of the model, whose folder holds the external data",
            )
        location, offset, length = _check_external(tensor, stored_bytes, where)
        data = self.external.open(location, where)
        if offset + length > len(data):
            raise BadExternalData(
                f"external data at {quoted(location)} is too short",
                where=where,
                expected=f"{length:,} bytes at offset {offset:,}",
                got=f"a file of {len(data):,} bytes",
                hint="the file may be cut short or belong to another model: copy or export it again",
            )
        return data[offset : offset + length]


def read_onnx(source: str | os.PathLike[str] | bytes | onnx.ModelProto, limits: Limits = DEFAULT_LIMITS) -> StoredModel:
    """Read a model from its path, its bytes, or a ModelProto that is parsed already.

    requires: the files stay as they are while the model or one of its arrays is in use.
    raises: UnreadableModel, or a LimitExceeded before anything large is allocated. A ModelProto is taken as it is, and
    its own memory is beyond our limits.
    """
    if isinstance(source, onnx.ModelProto):
        return StoredModel(source, {}, None, limits)
    if isinstance(source, bytes):
        where, data, external = "the bytes of the model", memoryview(source), None
        check_file_bytes(len(data), limits.file_bytes, limits, where)
    else:
        where = _check_path(source)
        data = map_model(where, limits)
        # Absolute, for the working directory may change before a tensor is asked for.
        folder = os.path.dirname(os.path.abspath(where))
        external = ExternalFiles(folder, limits, bytes_left=limits.file_bytes - len(data))
    _check_not_pointer(data, where)
    stripped = strip_payloads(data, limits, where)
    return StoredModel(_parse(stripped.structure, where), stripped.payloads, external, limits)


def _check_path(source: object) -> str:
    try:
        path = os.fspath(source)  # pyright: ignore[reportArgumentType, reportCallIssue, reportUnknownVariableType]
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise UsageError(
            "this is not a model",
            expected="a path, the bytes of a model, or an onnx.ModelProto",
            got=type(source).__name__,
            hint="pass the path of an .onnx file",
        )
    return path


def _check_not_pointer(data: memoryview, where: str) -> None:
    """The commonest file that is no model."""
    if bytes(data[: len(_LFS_POINTER)]) == _LFS_POINTER:
        raise UnreadableModel(
            "this is a Git LFS pointer, not the model it stands for",
            where=where,
            expected="an ONNX model",
            got=f"{len(data)} bytes of text",
            hint="run `git lfs pull` where the file is",
        )


def _parse(structure: bytes, where: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(structure)
    except DecodeError as error:
        raise _not_onnx(where, str(error) or "a protobuf error") from None
    if not proto.HasField("graph"):
        raise _not_onnx(where, "no graph")
    return proto


def _not_onnx(where: str, got: str) -> UnreadableModel:
    return UnreadableModel(
        "this is not an ONNX model",
        where=where,
        expected="a ModelProto with a graph",
        got=got,
        hint="the file may be cut short or of another format: download or export it again",
    )


def _check_dtype(tensor: onnx.TensorProto, where: str) -> DType:
    dtype = DTYPE_OF_ONNX.get(tensor.data_type)
    if dtype is not None:
        return dtype
    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    raise UnsupportedType(
        "a stored tensor has an element type that foretell does not read",
        where=where,
        expected="bool, or an integer or a real number of a width ONNX defines",
        got=names.get(tensor.data_type, f"type {tensor.data_type}"),
        hint="convert the tensor before export; strings and complex numbers have no counterpart here",
    )


def _check_shape(tensor: onnx.TensorProto, dtype: DType, limits: Limits, where: str) -> tuple[int, ...]:
    """The shape, when an array can have it at all."""
    rank = len(tensor.dims)
    if rank > limits.rank:
        raise RankTooHigh(
            "a stored tensor has too many dimensions",
            where=where,
            expected=f"at most {limits.rank}",
            got=f"{rank:,}",
            hint="raise Limits.rank if you trust the model",
        )
    shape = tuple(tensor.dims)
    # A dimension of 0 does not excuse the others: numpy counts strides without it.
    if min(shape, default=0) < 0 or math.prod(dim or 1 for dim in shape) * dtype.itemsize > _BYTES_MAX:
        raise InvalidShape(
            "a stored tensor has an impossible shape",
            where=where,
            expected=f"no negative dimension, and at most {_BYTES_MAX:,} bytes",
            got=str(list(shape)),
            hint="export the model again",
        )
    return shape


def _check_storage(tensor: onnx.TensorProto, where: str) -> list[str]:
    """The fields that hold the value: one, or none when it is external or has no elements."""
    if tensor.HasField("segment"):
        raise UnsupportedModel(
            "a stored tensor is cut into segments",
            where=where,
            expected="a whole tensor",
            got=f"elements {tensor.segment.begin} to {tensor.segment.end}",
            hint="export the model again; no operator set uses segments",
        )
    fields = ["raw_data"] if tensor.HasField("raw_data") else []
    fields += [name for name in (*_ENTRIES, "string_data") if len(getattr(tensor, name))]
    places = [*fields, "external_data"] if tensor.data_location == onnx.TensorProto.EXTERNAL else fields
    if len(places) > 1:
        raise InvalidTensor(
            "a stored tensor has more than one value",
            where=where,
            expected="one field that holds it",
            got=" and ".join(places),
            hint="export the model again",
        )
    return fields


def _check_size(field: str, size: int, needed: int, unit: str, where: str) -> None:
    if size != needed:
        raise InvalidTensor(
            "a stored tensor does not fit its shape",
            where=where,
            expected=f"{needed:,} {unit} in {field}, as its type and shape say",
            got=f"{size:,} {unit}",
            hint="the model is damaged: export it again",
        )


def _typed_bytes(tensor: onnx.TensorProto, dtype: DType, stored_bytes: int, where: str) -> memoryview:
    """A value in a typed field as the bytes that `raw_data` would hold."""
    field = _TYPED_FIELDS.get(dtype, _OTHER_TYPED_FIELD)
    entries = getattr(tensor, field)
    _check_size(field, len(entries), stored_bytes // dtype.itemsize, "entries", where)
    numbers = np.asarray(entries, _ENTRIES[field])
    if numbers.dtype != dtype.numpy:
        # An entry is the bits of an element, or a byte of packed ones: what raw_data has are its low bytes.
        numbers = numbers.astype(f"u{dtype.itemsize}")
    return numbers.data


def _check_external(tensor: onnx.TensorProto, stored_bytes: int, where: str) -> tuple[str, int, int]:
    """Location, offset and length of external data, which ONNX spells as text."""
    entries = [(entry.key, entry.value) for entry in tensor.external_data if entry.key in _EXTERNAL_KEYS]
    texts = dict(entries)
    if len(texts) < len(entries) or "location" not in texts:
        keys = ", ".join(key for key, _ in entries[:5]) or "none"
        raise _bad_external("has a key twice or no location", where, "one location, offset and length", keys)
    numbers: dict[str, int] = {"offset": 0, "length": stored_bytes}
    for key in numbers.keys() & texts.keys():
        if not re.fullmatch(r"[0-9]{1,19}", texts[key]):
            raise _bad_external(f"has a bad {key}", where, "a number that is not negative", quoted(texts[key]))
        numbers[key] = int(texts[key])
    if numbers["length"] != stored_bytes:
        wanted = f"{stored_bytes:,} bytes, as its type and shape say"
        raise _bad_external("does not fit its shape", where, wanted, f"{numbers['length']:,} bytes")
    return texts["location"], numbers["offset"], numbers["length"]


def _bad_external(what: str, where: str, expected: str, got: str) -> BadExternalData:
    return BadExternalData(
        f"the external data of a tensor {what}",
        where=where,
        expected=expected,
        got=got,
        hint="save the model again with onnx.save(..., save_as_external_data=True)",
    )


def _decode(data: bytes | memoryview, dtype: DType, shape: tuple[int, ...], where: str) -> Array:
    """The read-only array of `data`, whose size has been checked; not a copy, except of elements under a byte."""
    if dtype.bits < 8:
        flat = _unpack(np.frombuffer(data, np.uint8), dtype.bits, math.prod(shape)).view(dtype.numpy)
    else:
        flat = np.frombuffer(data, dtype.numpy)
    if dtype is dtypes.BOOL:
        _check_bools(flat.view(np.uint8), where)
    array = flat.reshape(shape)
    array.flags.writeable = False
    return array


def _unpack(packed: np.ndarray[tuple[int], np.dtype[np.uint8]], bits: int, count: int) -> Array:
    """One element a byte, from elements of 2 or 4 bits, the first of them lowest: 0x21 -> 1, 2."""
    unpacked = np.empty((len(packed), 8 // bits), np.uint8)
    for lane in range(8 // bits):
        unpacked[:, lane] = (packed >> (lane * bits)) & ((1 << bits) - 1)
    return unpacked.reshape(-1)[:count]


def _check_bools(stored: Array, where: str) -> None:
    """numpy and compiled code rely on a bool being 0 or 1, and differ on what else it might mean."""
    if stored.size and int(stored.max()) > 1:
        raise InvalidTensor(
            "a stored tensor of bools holds something else",
            where=where,
            expected="bytes that are 0 or 1",
            got=f"a byte that is {int(stored.max())}",
            hint="the model is damaged: export it again",
        )
