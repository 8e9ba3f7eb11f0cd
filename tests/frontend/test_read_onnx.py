"""Reading a model: every element type, what is mapped, what is refused, and that nothing else can happen."""

from __future__ import annotations

import dataclasses
import mmap
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.frontend.read_onnx import StoredModel, read_onnx
from foretell.frontend.wire import KEY_BYTES, PAYLOAD_BYTES, encode_varint
from foretell.ir import dtypes
from foretell.support.errors import (
    FileTooLarge,
    ForetellError,
    InvalidShape,
    InvalidTensor,
    RankTooHigh,
    UnreadableModel,
    UnsupportedModel,
    UnsupportedType,
    UsageError,
)
from foretell.support.limits import DEFAULT_LIMITS

REPOSITORY = Path(__file__).parents[2]
LARGE = np.arange(PAYLOAD_BYTES, dtype=np.float32)


def model(*initializers: TensorProto, nodes: tuple[onnx.NodeProto, ...] = ()) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(list(nodes), "g", [], [], list(initializers)))


def tensors(message: Message) -> Iterator[TensorProto]:
    """Every tensor of a model, wherever it is."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for inner in value if descriptor.is_repeated else (value,):
                if isinstance(inner, TensorProto):
                    yield inner
                yield from tensors(inner)


def stored_array(tensor: TensorProto) -> np.ndarray:
    """The tensor through a file's bytes."""
    stored = read_onnx(model(tensor).SerializeToString())
    return stored.array(stored.proto.graph.initializer[0])


def refuse(tensor: TensorProto, kind: type[ForetellError], *expected: str) -> None:
    tensor.name = "w"
    for source in (model(tensor), model(tensor).SerializeToString()):
        stored = read_onnx(source)
        with pytest.raises(kind) as caught:
            stored.array(stored.proto.graph.initializer[0])
        message = str(caught.value)
        assert len(message.splitlines()) == 3
        for text in ("tensor 'w'", *expected):
            assert text in message


def backing(array: np.ndarray) -> object:
    """The object whose memory an array is a view of."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


# Element types ---------------------------------------------------------------------------------------------------


def sample(dtype: dtypes.DType, count: int) -> np.ndarray:
    """Every bit pattern that `count` elements have room for, those of nan and -0 among them."""
    if dtype is dtypes.BOOL:
        return np.arange(count) % 3 == 0
    if dtype.bits < 8:
        return (np.arange(count) % (1 << dtype.bits)).astype(np.uint8).view(dtype.numpy)
    return np.random.default_rng(dtype.bits).integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype.numpy)


def typed(value: np.ndarray, onnx_type: int) -> TensorProto:
    """The tensor of `value` in a typed field rather than in raw_data, written out by hand."""
    tensor, dtype = TensorProto(dims=value.shape, data_type=onnx_type), DTYPE_OF_ONNX[onnx_type]
    field = helper.tensor_dtype_to_field(onnx_type)
    if dtype.bits < 8:
        entries = np.frombuffer(numpy_helper.from_array(value).raw_data, np.uint8)
    elif dtype.is_float and dtype.bits < 32:
        entries = value.reshape(-1).view(f"u{dtype.itemsize}")
    else:
        entries = value.reshape(-1)
    getattr(tensor, field).extend(entries.tolist() if dtype is not dtypes.BOOL else entries.astype(int).tolist())
    return tensor


def assert_same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()
    assert not found.flags.writeable


def test_every_type_of_ours_has_a_number_in_onnx():
    assert set(DTYPE_OF_ONNX.values()) == set(dtypes.ALL)
    for number, dtype in DTYPE_OF_ONNX.items():
        assert helper.tensor_dtype_to_np_dtype(number) == dtype.numpy


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 0, 3), (41, 97)])
@pytest.mark.parametrize("onnx_type", DTYPE_OF_ONNX)
def test_raw_tensors_are_read(onnx_type: int, shape: tuple[int, ...]):
    value = sample(DTYPE_OF_ONNX[onnx_type], int(np.prod(shape))).reshape(shape)
    tensor = numpy_helper.from_array(value)
    assert tensor.data_type == onnx_type and tensor.HasField("raw_data")
    assert_same_bits(stored_array(tensor), value)
    assert_same_bits(read_onnx(model()).array(tensor), value)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (2, 0, 3)])
@pytest.mark.parametrize("onnx_type", DTYPE_OF_ONNX)
def test_typed_tensors_are_read(onnx_type: int, shape: tuple[int, ...]):
    dtype = DTYPE_OF_ONNX[onnx_type]
    value = sample(dtype, int(np.prod(shape))).reshape(shape)
    if dtype.is_float and dtype.bits >= 32:  # a signalling nan may not survive Python's float
        value = np.nan_to_num(value)
    tensor = typed(value, onnx_type)
    assert_same_bits(stored_array(tensor), value)
    np.testing.assert_array_equal(
        numpy_helper.to_array(tensor).view(f"u{dtype.itemsize}"), value.view(f"u{dtype.itemsize}")
    )


def test_extreme_integers_survive_typed_fields():
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        value = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        assert_same_bits(stored_array(typed(value, helper.np_dtype_to_tensor_dtype(value.dtype))), value)


def test_signed_elements_under_a_byte_keep_their_sign():
    value = np.array([-8, 7, -1], ml_dtypes.int4)
    assert stored_array(numpy_helper.from_array(value)).astype(int).tolist() == [-8, 7, -1]


@pytest.mark.parametrize(
    ("tensor", "got"),
    [
        (TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"a"]), "STRING"),
        (TensorProto(data_type=TensorProto.COMPLEX64, dims=[1], float_data=[1, 2]), "COMPLEX64"),
        (TensorProto(data_type=TensorProto.COMPLEX128, dims=[1], raw_data=bytes(16)), "COMPLEX128"),
        (TensorProto(dims=[1], raw_data=bytes(4)), "UNDEFINED"),
        (TensorProto(data_type=99, dims=[1], raw_data=bytes(4)), "type 99"),
    ],
)
def test_other_types_are_refused(tensor: TensorProto, got: str):
    refuse(tensor, UnsupportedType, f"got {got}")


# Shapes and sizes ------------------------------------------------------------------------------------------------


def f32(*dims: int, **fields: object) -> TensorProto:
    return TensorProto(data_type=TensorProto.FLOAT, dims=dims, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "dims", [(-1,), (2, -3), (2**62, 2**62), (2**63 - 1,), (2**61,), (0, 2**62, 2**62), (0, 2**61)]
)
def test_impossible_shapes_are_refused(dims: tuple[int, ...]):
    refuse(f32(*dims, raw_data=bytes(4)), InvalidShape, "impossible shape", str(list(dims)))


def test_the_rank_is_limited():
    assert stored_array(f32(*[1] * 32, raw_data=bytes(4))).ndim == 32
    refuse(f32(*[1] * 33, raw_data=bytes(4)), RankTooHigh, "at most 32; got 33", "Limits.rank")


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (f32(10**12, float_data=[1]), "1,000,000,000,000 entries in float_data"),
        (f32(10**12, raw_data=b"1234"), "4,000,000,000,000 bytes in raw_data"),
        (f32(10**12), "got 0 bytes"),
        (f32(2, raw_data=b"1234567"), "8 bytes in raw_data, as its type and shape say; got 7 bytes"),
        (f32(2, raw_data=b"123456789"), "got 9 bytes"),
        (f32(0, raw_data=b"1234"), "0 bytes in raw_data"),
        (f32(2, float_data=[1]), "2 entries in float_data, as its type and shape say; got 1 entries"),
        (f32(1, int32_data=[1]), "1 entries in float_data, as its type and shape say; got 0 entries"),
        (TensorProto(data_type=TensorProto.INT4, dims=[3], raw_data=b"1"), "2 bytes in raw_data"),
        (TensorProto(data_type=TensorProto.UINT2, dims=[9], int32_data=[1]), "3 entries in int32_data"),
        (TensorProto(data_type=TensorProto.INT4, dims=[10**12], int32_data=[1]), "500,000,000,000 entries"),
        (f32(1, raw_data=bytes(4), float_data=[1]), "got raw_data and float_data"),
        (f32(1, raw_data=bytes(4), data_location=TensorProto.EXTERNAL), "got raw_data and external_data"),
        (TensorProto(data_type=TensorProto.BOOL, dims=[2], raw_data=b"\0\2"), "a byte that is 2"),
        (TensorProto(data_type=TensorProto.BOOL, dims=[1], int32_data=[-1]), "a byte that is 255"),
    ],
)
def test_values_that_do_not_fit_are_refused_before_anything_is_allocated(tensor: TensorProto, expected: str):
    refuse(tensor, InvalidTensor, expected)


def test_no_elements_need_no_value():
    for tensor in (f32(0), f32(0, 3, int32_data=[1]), f32(3, 0, string_data=[b"x"])):
        assert_same_bits(stored_array(tensor), np.empty(tuple(tensor.dims), np.float32))


def test_segments_are_refused():
    refuse(f32(1, raw_data=bytes(4), segment=TensorProto.Segment(begin=0, end=1)), UnsupportedModel, "segments")


# Sources ---------------------------------------------------------------------------------------------------------


def test_large_weights_are_mapped_from_the_file(tmp_path: Path):
    weights = [np.random.default_rng(seed).random((256, 1024), np.float32) for seed in range(4)]
    named = [numpy_helper.from_array(value, f"w{index}") for index, value in enumerate(weights)]
    (tmp_path / "m.onnx").write_bytes(model(*named).SerializeToString())
    stored = read_onnx(tmp_path / "m.onnx")
    assert stored.proto.ByteSize() < 1000
    for tensor, value in zip(stored.proto.graph.initializer, weights, strict=True):
        array = stored.array(tensor)
        assert isinstance(backing(array), mmap.mmap)
        assert np.shares_memory(array, stored.array(tensor))
        assert_same_bits(array, value)
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_large_weights_are_views_of_given_bytes():
    data = model(numpy_helper.from_array(LARGE, "w")).SerializeToString()
    stored = read_onnx(data)
    array = stored.array(stored.proto.graph.initializer[0])
    assert backing(array) is data
    assert_same_bits(array, LARGE)


def test_a_parsed_model_is_taken_as_it_is():
    proto = model(numpy_helper.from_array(LARGE, "w"))
    stored = read_onnx(proto)
    assert stored.proto is proto
    assert_same_bits(stored.array(proto.graph.initializer[0]), LARGE)


def test_large_constants_of_subgraphs_and_functions_are_read():
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(LARGE, "inner"))
    branch = helper.make_graph([constant], "branch", [], [])
    node = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    proto = model(nodes=(node,))
    proto.functions.append(helper.make_function("d", "f", [], ["c"], [constant], [helper.make_opsetid("", 21)]))
    data = proto.SerializeToString()
    stored = read_onnx(data)
    found = list(tensors(stored.proto))
    assert len(found) == 3
    for tensor in found:
        assert backing(stored.array(tensor)) is data
        assert_same_bits(stored.array(tensor), LARGE)


def test_a_copy_of_a_tensor_stands_for_the_same_value():
    stored = read_onnx(model(numpy_helper.from_array(LARGE, "w")).SerializeToString())
    copy = TensorProto()
    copy.CopyFrom(stored.proto.graph.initializer[0])
    assert_same_bits(stored.array(copy), LARGE)


def test_a_forged_key_is_only_bytes():
    """A model may hold what looks like a key, even one that an earlier reading has used."""
    earlier = read_onnx(model(numpy_helper.from_array(LARGE, "w")).SerializeToString())
    (key,) = earlier.tensors
    forged = TensorProto(name="forged", data_type=TensorProto.UINT8, dims=[KEY_BYTES], raw_data=key)
    stored = read_onnx(model(numpy_helper.from_array(LARGE, "w"), forged).SerializeToString())
    real, fake = (stored.array(tensor) for tensor in stored.proto.graph.initializer)
    assert_same_bits(real, LARGE)
    assert_same_bits(fake, np.frombuffer(key, np.uint8))


def test_a_path_may_be_a_string_or_a_path(tmp_path: Path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model().SerializeToString())
    assert read_onnx(path).proto == read_onnx(str(path)).proto


@pytest.mark.parametrize("source", [None, 7, ["m.onnx"], bytearray(b"x")])
def test_what_is_no_source_is_refused(source: object):
    with pytest.raises(UsageError, match="expected a path, the bytes of a model, or an onnx"):
        read_onnx(source)  # pyright: ignore[reportArgumentType]


def unreadable(source: str | bytes | Path, *expected: str) -> None:
    with pytest.raises(UnreadableModel) as caught:
        read_onnx(source)
    assert len(str(caught.value).splitlines()) == 3
    for text in expected:
        assert text in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path):
    (tmp_path / "empty.onnx").touch()
    os.mkfifo(tmp_path / "fifo")
    unreadable(tmp_path / "gone.onnx", "No such file")
    unreadable(tmp_path / "empty.onnx", "an empty file")
    unreadable(tmp_path, "a regular file; got a directory")
    unreadable(tmp_path / "fifo", "a regular file; got a FIFO")
    unreadable("/dev/zero", "a regular file; got a device")
    unreadable("nul\0.onnx", "embedded null")


def test_what_is_no_model_is_refused():
    unreadable(b"", "a ModelProto with a graph; got no graph")
    unreadable(b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull")
    unreadable(b"hello, world", "not a complete ONNX model")
    unreadable(model().graph.SerializeToString(), "")
    # Packed numbers are left to protobuf to judge.
    unreadable(b"\x3a\x07\x2a\x05\x0a\x03\x80\x80\x80", "a ModelProto")


def test_the_size_is_limited(tmp_path: Path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model().SerializeToString())
    size = path.stat().st_size
    for source in (path, path.read_bytes()):
        read_onnx(source, dataclasses.replace(DEFAULT_LIMITS, file_bytes=size))
        with pytest.raises(FileTooLarge, match="external data are too large"):
            read_onnx(source, dataclasses.replace(DEFAULT_LIMITS, file_bytes=size - 1))


def test_a_huge_sparse_file_is_refused_by_its_size(tmp_path: Path):
    with open(tmp_path / "m.onnx", "wb") as file:
        file.truncate(DEFAULT_LIMITS.file_bytes + 1)
    with pytest.raises(FileTooLarge):
        read_onnx(tmp_path / "m.onnx")


def test_the_published_limits_are_those_of_the_code():
    text = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    published = re.findall(r"^\| `(\w+)` \| ([\d,]+)( [MG]iB)? \|", text, re.MULTILINE)
    units = {"": 1, " MiB": 1 << 20, " GiB": 1 << 30}
    assert {name: int(number.replace(",", "")) * units[unit] for name, number, unit in published} == {
        field.name: getattr(DEFAULT_LIMITS, field.name) for field in dataclasses.fields(DEFAULT_LIMITS)
    }


# Damage ----------------------------------------------------------------------------------------------------------


def varied_model() -> bytes:
    """A small model with something of every kind that the reader looks at."""
    values = [sample(dtype, 9) for dtype in dtypes.ALL]
    initializers = [numpy_helper.from_array(value, f"w{index}") for index, value in enumerate(values)]
    initializers += [typed(np.arange(5, dtype=np.float64), TensorProto.DOUBLE), typed(values[3], TensorProto.INT8)]
    external = f32(3, name="e", data_location=TensorProto.EXTERNAL)
    external.external_data.add(key="location", value="w.bin")
    external.external_data.add(key="offset", value="4")
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(LARGE, "large"))
    node = helper.make_node("If", ["x"], ["y"], then_branch=helper.make_graph([constant], "b", [], []))
    return model(*initializers, external, nodes=(node,)).SerializeToString()


def read_all(data: bytes, path: Path) -> bool:
    """Read a model and all its tensors; whether that went well. Nothing but our own errors may come out."""
    path.write_bytes(data)
    try:
        stored = read_onnx(path)
    except ForetellError:
        return False
    return all([read_one(stored, tensor) for tensor in tensors(stored.proto)])


def read_one(stored: StoredModel, tensor: TensorProto) -> bool:
    try:
        array = stored.array(tensor)
    except ForetellError as error:
        assert len(str(error).splitlines()) == 3
        return False
    assert array.shape == tuple(tensor.dims)
    return True


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    return tmp_path / "m.onnx"


def test_the_varied_model_is_sound(model_path: Path):
    assert read_all(varied_model(), model_path)


def test_a_file_cut_short_is_refused(model_path: Path):
    data = varied_model()
    for cut in (*range(1, 600, 3), *range(600, len(data) - 1, 97), len(data) - 1):
        assert not read_all(data[:cut], model_path)


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_gives_only_our_errors(seed: int, model_path: Path):
    pick = random.Random(seed)
    sound = varied_model()
    # Damage where the structure is; the large constant is only bytes.
    structure = [*range(200), *range(sound.index(b"large") + len(LARGE.tobytes()), len(sound))]
    outcomes = set[bool]()
    for _ in range(250):
        data = bytearray(sound)
        for _ in range(pick.choice((1, 1, 2, 5))):
            place = pick.choice(structure)
            match pick.randrange(4):
                case 0:
                    data[place % len(data)] = pick.randrange(256)
                case 1:
                    data[place % len(data)] ^= 1 << pick.randrange(8)
                case 2:
                    del data[place % len(data) : place % len(data) + pick.randrange(1, 9)]
                case _:
                    data[place % len(data) : 0] = pick.randbytes(pick.randrange(1, 9))
        outcomes.add(read_all(bytes(data), model_path))
    assert outcomes == {True, False}


def test_random_bytes_give_only_our_errors(model_path: Path):
    pick = random.Random(0)
    for _ in range(500):
        read_all(pick.randbytes(pick.randrange(1, 200)), model_path)


# Size ------------------------------------------------------------------------------------------------------------

MEASURE = """
import re, sys, time
from foretell.frontend.read_onnx import read_onnx
def anonymous_bytes():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
before, start = anonymous_bytes(), time.perf_counter()
stored = read_onnx(sys.argv[1])
arrays = [stored.array(tensor) for tensor in stored.proto.graph.initializer]
time_s, grown = time.perf_counter() - start, anonymous_bytes() - before
assert sum(array.nbytes for array in arrays) == int(sys.argv[2])
assert sum(float(array[-1, -1]) for array in arrays) == 0
assert time_s < 3, f"{time_s} s"
assert grown < 100 << 20, f"{grown} bytes"
"""


def write_large_model(folder: Path, tensor_bytes: int, count: int) -> Path:
    """A model with `count` embedded and `count` external tensors of zeros, as holes in sparse files."""
    path, dims = folder / "m.onnx", (tensor_bytes >> 12, 1 << 10)
    body: list[bytes | int] = []
    for index in range(count):
        head = f32(*dims, name=f"w{index}").SerializeToString() + b"\x4a" + encode_varint(tensor_bytes)
        body += [b"\x2a" + encode_varint(len(head) + tensor_bytes) + head, tensor_bytes]
        external = f32(*dims, name=f"e{index}", data_location=TensorProto.EXTERNAL)
        external.external_data.add(key="location", value="w.bin")
        external.external_data.add(key="offset", value=str(index * tensor_bytes))
        body.append(b"\x2a" + encode_varint(external.ByteSize()) + external.SerializeToString())
    size = sum(piece if isinstance(piece, int) else len(piece) for piece in body)
    with open(path, "wb") as file:
        file.write(onnx.ModelProto(ir_version=10).SerializeToString() + b"\x3a" + encode_varint(size))
        for piece in body:
            file.seek(piece, os.SEEK_CUR) if isinstance(piece, int) else file.write(piece)
    with open(folder / "w.bin", "wb") as file:
        file.truncate(count * tensor_bytes)
    return path


@pytest.mark.slow
def test_400_megabytes_are_mapped_not_read(tmp_path: Path):
    path = write_large_model(tmp_path, tensor_bytes=20 << 20, count=10)
    assert path.stat().st_size > 200 << 20
    subprocess.run([sys.executable, "-c", MEASURE, str(path), str(400 << 20)], check=True, cwd=REPOSITORY)
