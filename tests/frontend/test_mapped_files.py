"""External data: what is mapped, and every way out of the model's folder that is refused."""

from __future__ import annotations

import dataclasses
import os
import socket
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from foretell.frontend.read_onnx import StoredModel, read_onnx
from foretell.support.errors import BadExternalData, FileTooLarge, ForetellError, UnsafeExternalData
from foretell.support.limits import DEFAULT_LIMITS, Limits

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def tensor(*dims: int, **entries: str) -> onnx.TensorProto:
    proto = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=dims or (3, 4))
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        proto.external_data.add(key=key, value=value)
    return proto


def save(folder: Path, *tensors: onnx.TensorProto, limits: Limits = DEFAULT_LIMITS) -> StoredModel:
    """Write a model with these tensors into `folder` and read it again."""
    proto = helper.make_model(helper.make_graph([], "g", [], [], list(tensors)))
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return read_onnx(folder / "m.onnx", limits)


def arrays(stored: StoredModel) -> list[np.ndarray]:
    return [stored.array(initializer) for initializer in stored.proto.graph.initializer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with data in it, beside a secret."""
    inside = tmp_path / "model"
    (inside / "data").mkdir(parents=True)
    (inside / "w.bin").write_bytes(bytes(16) + VALUES.tobytes())
    (inside / "data" / "w.bin").write_bytes(VALUES.tobytes())
    (tmp_path / "secret").write_bytes(VALUES.tobytes())
    return inside


def refuse(folder: Path, kind: type[ForetellError], *expected: str, **entries: str) -> None:
    stored = save(folder, tensor(**entries))
    with pytest.raises(kind) as caught:
        arrays(stored)
    message = str(caught.value)
    assert len(message.splitlines()) == 3
    for text in ("tensor 'w'", *expected):
        assert text in message


@pytest.mark.parametrize("location", ["w.bin", "./w.bin", ".//w.bin"])
def test_external_data_is_mapped(folder: Path, location: str):
    (found,) = arrays(save(folder, tensor(location=location, offset="16", length="48")))
    np.testing.assert_array_equal(found, VALUES)
    assert not found.flags.writeable and not found.flags.owndata


def test_external_data_in_a_subfolder(folder: Path):
    np.testing.assert_array_equal(arrays(save(folder, tensor(location="data/w.bin")))[0], VALUES)


def test_a_name_with_colons_is_not_a_drive(folder: Path):
    (folder / "onnx::MatMul_12").write_bytes(VALUES.tobytes())
    np.testing.assert_array_equal(arrays(save(folder, tensor(location="onnx::MatMul_12")))[0], VALUES)


def test_what_onnx_saves_we_read(tmp_path: Path):
    weights = {f"w{size}": np.random.default_rng(size).random(size, np.float32) for size in (1, 1000, 4097)}
    initializers = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    proto = helper.make_model(helper.make_graph([], "g", [], [], initializers))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    stored = read_onnx(str(tmp_path / "m.onnx"))
    for initializer in stored.proto.graph.initializer:
        np.testing.assert_array_equal(stored.array(initializer), weights[initializer.name])


def test_each_file_is_mapped_once(folder: Path):
    stored = save(folder, *(tensor(location=location) for location in ("w.bin", "./w.bin", "w.bin", "data/w.bin")))
    found = arrays(stored)
    assert np.shares_memory(found[0], found[1]) and np.shares_memory(found[0], found[2])
    assert stored.external is not None and len(stored.external.mapped) == 2


def test_arrays_outlive_the_model_and_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch):
    save(folder, tensor(location="data/w.bin"))
    monkeypatch.chdir(folder)
    stored = read_onnx("m.onnx")
    monkeypatch.chdir("/")
    (found,) = arrays(stored)
    del stored
    np.testing.assert_array_equal(found, VALUES)


def test_the_model_itself_may_be_a_link_that_the_user_made(folder: Path, tmp_path: Path):
    save(folder, tensor(location="data/w.bin"))
    (tmp_path / "link").symlink_to(folder)
    np.testing.assert_array_equal(arrays(read_onnx(tmp_path / "link" / "m.onnx"))[0], VALUES)


def test_no_elements_need_no_bytes(folder: Path):
    (folder / "empty").touch()
    assert arrays(save(folder, tensor(0, 4, location="empty")))[0].shape == (0, 4)


@pytest.mark.parametrize("location", ["../secret", "data/../../secret", "data/..", "..", "data/../w.bin"])
def test_climbing_is_refused(folder: Path, location: str):
    refuse(folder, UnsafeExternalData, "a path below the model's folder", location=location)


def test_absolute_paths_are_refused(folder: Path):
    for location in (str(folder / "w.bin"), "//w.bin", "C:w.bin", "C:/w.bin", "c:\\w.bin", "\\\\host\\share\\w.bin"):
        refuse(folder, UnsafeExternalData, "got an absolute path", location=location)


def test_backslashes_are_refused(folder: Path):
    refuse(folder, UnsafeExternalData, "a backslash", location="data\\w.bin")


@pytest.mark.parametrize(("location", "got"), [("", "no name"), (".", "no name"), ("w\0.bin", "a NUL character")])
def test_what_is_no_name_is_refused(folder: Path, location: str, got: str):
    refuse(folder, UnsafeExternalData, f"got {got}", location=location)


def test_a_link_to_a_file_is_refused(folder: Path):
    (folder / "link").symlink_to(folder.parent / "secret")
    refuse(folder, UnsafeExternalData, "no symbolic link; got a link at 'link'", location="link")


def test_a_link_inside_the_folder_is_refused_too(folder: Path):
    (folder / "link").symlink_to("w.bin")
    refuse(folder, UnsafeExternalData, "no symbolic link", location="link")


def test_a_link_to_a_folder_is_refused(folder: Path):
    (folder / "link").symlink_to(folder.parent)
    refuse(folder, UnsafeExternalData, "a link at 'link'", location="link/secret")


def test_a_link_put_there_after_we_looked_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The kernel refuses what our look did not see: `os.stat` is made to lie as in a race."""
    (folder / "link").symlink_to(folder.parent / "secret")
    stored = save(folder, tensor(location="link"))
    plain = os.stat(folder / "w.bin")
    monkeypatch.setattr(os, "stat", lambda *_, **__: plain)
    with pytest.raises(UnsafeExternalData, match="is refused"):
        arrays(stored)


def test_a_hard_link_is_refused(folder: Path):
    os.link(folder.parent / "secret", folder / "hard")
    refuse(folder, UnsafeExternalData, "a hard link (2 names)", location="hard")


def test_a_fifo_is_refused_and_does_not_block(folder: Path):
    os.mkfifo(folder / "fifo")
    refuse(folder, UnsafeExternalData, "a regular file; got a FIFO", location="fifo")


def test_a_fifo_put_there_after_we_looked_does_not_block(folder: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(folder / "fifo")
    stored = save(folder, tensor(location="fifo"))
    plain = os.stat(folder / "w.bin")
    monkeypatch.setattr(os, "stat", lambda *_, **__: plain)
    with pytest.raises(UnsafeExternalData, match="is refused"):
        arrays(stored)


def test_a_socket_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        refuse(folder, UnsafeExternalData, "got a socket", location="socket")


def test_a_folder_is_refused(folder: Path):
    refuse(folder, UnsafeExternalData, "got a directory", location="data")


def test_a_missing_file(folder: Path):
    refuse(folder, BadExternalData, "No such file", "put the file next to the model", location="gone.bin")
    refuse(folder, BadExternalData, "Not a directory", location="w.bin/below")
    refuse(folder, BadExternalData, "File name too long", location="x" * 5000)


def test_a_short_file(folder: Path):
    refuse(folder, BadExternalData, "too short", "48 bytes at offset 17", location="w.bin", offset="17")
    refuse(folder, BadExternalData, "too short", location="w.bin", offset=str(2**63 - 1))


@pytest.mark.parametrize("number", ["-1", "1e3", "0x10", " 1", "1_0", "\N{ARABIC-INDIC DIGIT ONE}", "", "9" * 5000])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_numbers_that_are_none(folder: Path, key: str, number: str):
    refuse(folder, BadExternalData, f"has a bad {key}", **{"location": "w.bin", key: number})


def test_a_length_that_does_not_fit_the_shape(folder: Path):
    refuse(folder, BadExternalData, "48 bytes, as its type and shape say; got 44", location="w.bin", length="44")


def test_a_location_must_be_given_and_only_once(folder: Path):
    refuse(folder, BadExternalData, "no location", offset="0")
    twice = tensor(location="w.bin")
    twice.external_data.add(key="location", value="data/w.bin")
    with pytest.raises(BadExternalData, match="a key twice"):
        arrays(save(folder, twice))


def test_external_data_counts_against_the_limit(folder: Path):
    proto = (tensor(location="w.bin"), tensor(location="data/w.bin"))
    size = len(save(folder, *proto).proto.SerializeToString())
    arrays(save(folder, *proto, limits=dataclasses.replace(DEFAULT_LIMITS, file_bytes=size + 64 + 48)))
    with pytest.raises(FileTooLarge, match="external data are too large"):
        arrays(save(folder, *proto, limits=dataclasses.replace(DEFAULT_LIMITS, file_bytes=size + 64 + 47)))


def test_too_many_open_files_say_so(folder: Path):
    resource = pytest.importorskip("resource")
    stored = save(folder, tensor(location="w.bin"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(BadExternalData) as caught:
            arrays(stored)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "ulimit -n" in str(caught.value)


def test_without_a_folder_there_is_no_external_data(folder: Path):
    proto = save(folder, tensor(location="w.bin")).proto
    for source in (proto, proto.SerializeToString()):
        with pytest.raises(UnsafeExternalData) as caught:
            arrays(read_onnx(source))
        assert "pass the path of the model" in str(caught.value)


def test_no_descriptor_leaks(folder: Path):
    def open_descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    (folder / "link").symlink_to("data")
    stored = save(folder, *(tensor(location=name) for name in ("link/w.bin", "gone", "data/gone", "data", "../x")))
    before = open_descriptors()
    for initializer in stored.proto.graph.initializer:
        with pytest.raises(ForetellError):
            stored.array(initializer)
    assert open_descriptors() == before
