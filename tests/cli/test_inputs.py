from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from foretell.cli.inputs import fill_feeds, load_feeds, parse_shapes
from foretell.graph.nodes import Value
from foretell.ir.dtypes import BF16, F32, I64, DType
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import InputError, TensorTooLarge, UsageError


def value(name: str, *shape: Dim, dtype: DType = F32) -> Value:
    return Value(name, TensorType(dtype, shape))


def test_parse_shapes() -> None:
    assert parse_shapes(["x=1x3x224x224", "a=b=7", "scalar="]) == {"x": (1, 3, 224, 224), "a=b": (7,), "scalar": ()}


@pytest.mark.parametrize("word", ["x", "=1x2", "x=1x", "x=-1", "x=1,2", "x=²", "x=N"])
def test_shape_that_cannot_be_read(word: str) -> None:
    with pytest.raises(UsageError, match="a shape cannot be read") as caught:
        parse_shapes([word])
    assert str(caught.value).splitlines()[1] == f"  expected NAME=1x3x224x224; got {word}"


def test_load_by_name_and_in_order(tmp_path: Path) -> None:
    for index in range(3):
        np.save(tmp_path / f"{index}.npy", np.full(2, index, np.float32))
    inputs = (value("a", 2), value("b", 2), value("c", 2), value("d", 2))
    feeds = load_feeds([str(tmp_path / "1.npy"), f"a={tmp_path / '0.npy'}", str(tmp_path / "2.npy")], inputs)
    assert {name: int(array[0]) for name, array in feeds.items()} == {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_any_shape_loads(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "x.npy", np.ones(shape, np.float32))
    assert load_feeds([str(tmp_path / "x.npy")], (value("x", *shape),))["x"].shape == shape


def test_too_many_inputs() -> None:
    with pytest.raises(UsageError) as caught:
        load_feeds(["x=1.npy", "2.npy"], (value("x", 2),))
    assert "expected x: f32[2]; got 2.npy" in str(caught.value)


def test_dtypes_numpy_cannot_name_survive_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([1.5, 2], ml_dtypes.bfloat16))
    (array,) = load_feeds([str(tmp_path / "x.npy")], (value("x", 2, dtype=BF16),)).values()
    assert array.dtype == BF16.numpy and array.tolist() == [1.5, 2]


def test_unreadable_input(tmp_path: Path) -> None:
    files = {
        "missing": None,
        "empty": b"",
        "text": b"hello",
        # A header that claims far more than the file holds must not allocate it.
        "bomb": b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117)
        + b"\n",
        "objects": b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117)
        + b"\n",
    }
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="cannot be read") as caught:
            load_feeds([str(tmp_path / name)], (value("x", 2),))
        assert len(str(caught.value).splitlines()) == 3


def test_random_inputs_are_repeatable_and_typed() -> None:
    inputs = (value("x", 2, 3), value("ids", 5, dtype=I64))
    first, second = (fill_feeds({}, inputs, seed=1) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert first["x"].dtype == np.float32 and first["x"].shape == (2, 3)
    assert first["ids"].dtype == np.int64 and set(first["ids"].tolist()) <= {0, 1}
    assert not np.array_equal(first["x"], fill_feeds({}, inputs, seed=2)["x"])


def test_free_dimensions_agree_with_given_arrays() -> None:
    batch, length = Sym("batch", 1), Sym("length", 1, None, 8)
    inputs = (value("ids", batch, length, dtype=I64), value("mask", batch, length), value("other", length))
    assert fill_feeds({}, inputs, seed=0)["mask"].shape == (1, 8)
    feeds = fill_feeds({"ids": np.zeros((3, 16), np.int64)}, inputs, seed=0)
    assert list(feeds) == ["ids", "mask", "other"]
    assert (feeds["mask"].shape, feeds["other"].shape) == ((3, 16), (16,))


def test_random_input_has_a_limit() -> None:
    with pytest.raises(TensorTooLarge, match="a random input would be too large"):
        fill_feeds({}, (value("x", 1 << 20, 1 << 20),), seed=0)
