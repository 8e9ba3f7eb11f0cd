"""Saved models: the same bytes every time, the same results, and a clear refusal of everything else."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import foretell
from examples.demo import build_model
from foretell.runtime.artifact import FIRST_HALF, FORMAT, HEADER_BYTES
from foretell.support.errors import (
    ArtifactError,
    DamagedArtifact,
    NewerArtifact,
    NotAnArtifact,
    TargetError,
    UnsavableModel,
    UsageError,
)
from foretell.target.features import host_architecture

OTHER_MACHINE = "znver3" if host_architecture() == "aarch64" else "neoverse-n1"
IMAGE = np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)


@pytest.fixture(scope="module")
def model() -> foretell.CompiledModel:
    return foretell.compile(build_model(), threads=1)


@pytest.fixture
def saved(model: foretell.CompiledModel, tmp_path: Path) -> Path:
    model.save(tmp_path / "demo.foretell")
    return tmp_path / "demo.foretell"


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], version: int = FORMAT) -> None:
    """Change the manifest and make the file sound again, so that only the change can be refused."""
    content = path.read_bytes()
    size = FIRST_HALF.unpack(content[: FIRST_HALF.size])[3]
    manifest = json.loads(content[HEADER_BYTES : HEADER_BYTES + size])
    change(manifest)
    text = json.dumps(manifest).encode()
    data = content[HEADER_BYTES + -(-size // 64) * 64 :]
    body = text + bytes(-len(text) % 64) + data
    head = FIRST_HALF.pack(b"foretell", version, 0, len(text), HEADER_BYTES + len(body))
    path.write_bytes(head + hashlib.sha256(head + body).digest() + body)


def test_results_are_the_same(model: foretell.CompiledModel, saved: Path) -> None:
    loaded = foretell.load(saved, threads=1)
    assert np.array_equal(loaded(IMAGE), model(IMAGE))
    assert (loaded.input_names, loaded.output_names) == (model.input_names, model.output_names)
    assert (loaded.program, loaded.target.resolved) == (model.program, model.target.resolved)
    assert loaded.weight_bytes == model.weight_bytes > 0


def test_constants_are_mapped_not_copied(saved: Path) -> None:
    loaded = foretell.load(saved)
    for array in loaded._constants.values():
        assert not array.flags.writeable and not array.flags.owndata and array.ctypes.data % 64 == 0


def test_a_rewritten_manifest_is_sound(saved: Path, model: foretell.CompiledModel) -> None:
    rewrite(saved, lambda manifest: None)
    assert np.array_equal(foretell.load(saved)(IMAGE), model(IMAGE))


def test_two_compilations_are_byte_identical(saved: Path, tmp_path: Path) -> None:
    """In other processes with other hash seeds, without the cache."""
    script = (
        "import sys, foretell; from examples.demo import build_model; foretell.compile(build_model()).save(sys.argv[1])"
    )
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.foretell"
        environment = os.environ | {"PYTHONHASHSEED": seed, "FORETELL_CACHE_DIR": "off"}
        subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=True)
        assert path.read_bytes() == saved.read_bytes()


def test_loading_imports_no_compiler(saved: Path) -> None:
    script = (
        "import sys, numpy, foretell\n"
        "model = foretell.load(sys.argv[1])\n"
        "assert model(numpy.zeros((1, 3, 32, 32), numpy.float32)).shape == (1, 10)\n"
        "stages = 'frontend graph partition loops schedule cost search codegen compiler link_program'.split()\n"
        "heavy = {'onnx', 'torch', *(f'foretell.{stage}' for stage in stages)} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(saved)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_changed_byte_is_noticed(saved: Path) -> None:
    whole = saved.read_bytes()
    for place in (*range(0, 128), *range(128, len(whole), 997), len(whole) - 1):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(ArtifactError):
            foretell.load(saved)


@pytest.mark.parametrize("size", [1, 7, 8, 40, 64, 100, -1])
def test_truncated(saved: Path, size: int) -> None:
    saved.write_bytes(saved.read_bytes()[:size])
    with pytest.raises(ArtifactError) as caught:
        foretell.load(saved)
    assert isinstance(caught.value, NotAnArtifact if 0 < size < 8 else DamagedArtifact)


def test_damage_in_words(saved: Path) -> None:
    whole = saved.read_bytes()
    saved.write_bytes(whole[:-1])
    with pytest.raises(DamagedArtifact) as caught:
        foretell.load(saved)
    assert str(caught.value).splitlines() == [
        f"FT602: the file of a compiled model is damaged (at {saved})",
        f"  expected {len(whole)} bytes; got {len(whole) - 1} bytes",
        "  hint: copy it again, or compile the model again",
    ]


def test_other_files_are_not_artifacts(tmp_path: Path) -> None:
    onnx.save(build_model(), tmp_path / "demo.onnx")
    (tmp_path / "empty").touch()
    for name in ("demo.onnx", "empty"):
        with pytest.raises(NotAnArtifact, match="this is not a compiled model"):
            foretell.load(tmp_path / name)
    with pytest.raises(NotAnArtifact, match="this is not a compiled model"):
        foretell.load(tmp_path)
    with pytest.raises(ArtifactError, match="cannot be opened"):
        foretell.load(tmp_path / "nothing")


def test_older_formats_are_refused(saved: Path) -> None:
    rewrite(saved, lambda manifest: None, version=FORMAT - 1)
    with pytest.raises(NotAnArtifact, match="compile the model again"):
        foretell.load(saved)


def test_newer_versions_are_refused(saved: Path) -> None:
    rewrite(saved, lambda manifest: None, version=FORMAT + 1)
    with pytest.raises(NewerArtifact) as caught:
        foretell.load(saved)
    assert str(caught.value).splitlines()[1] == f"  expected format {FORMAT}; got format {FORMAT + 1}"


def test_code_for_another_machine(tmp_path: Path) -> None:
    compiled = foretell.compile(build_model(), target=OTHER_MACHINE)
    compiled.save(tmp_path / "other.foretell")
    with pytest.raises(TargetError, match="another kind of machine"):
        foretell.load(tmp_path / "other.foretell")
    with pytest.raises(TargetError, match="another kind of machine"):
        compiled(IMAGE)


def test_code_that_uses_instructions_this_cpu_has_not(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.target.resolve.host_features", lambda: frozenset[str]())
    with pytest.raises(TargetError, match="this CPU does not have instructions that the code uses"):
        foretell.load(saved)


def set_slot(number: int, field: int, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest["program"]["slots"][number].__setitem__(field, value)


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no target": lambda manifest: manifest.pop("target"),
    "unknown key": lambda manifest: manifest.update(extra=1),
    "code outside the file": lambda manifest: manifest.update(kernels=[0, 1 << 40]),
    "code before the file": lambda manifest: manifest.update(kernels=[-64, 64]),
    "code at an odd place": lambda manifest: manifest.update(kernels=[1, 64]),
    "numbers that are words": lambda manifest: manifest.update(pool=["0", "64"]),
    "numbers that are truths": lambda manifest: manifest.update(pool=[False, True]),
    "a constant outside the file": lambda manifest: manifest["constants"][0].__setitem__(1, 1 << 30),
    "a missing constant": lambda manifest: manifest["constants"].pop(),
    "unknown element type": set_slot(0, 1, "f33"),
    "unknown role": set_slot(0, 2, "thief"),
    "negative dimension": set_slot(0, 3, [-1, 3, 32, 32]),
    "enormous constant": set_slot(1, 3, [1 << 40, 1 << 40]),
    "dimension that is a word": set_slot(0, 3, ["n", 3, 32, 32]),
    "unknown symbol": set_slot(0, 3, [["symbol", 9], 3, 32, 32]),
    "division by zero": set_slot(0, 3, [["//", 4, 0], 3, 32, 32]),
    "too deep a dimension": set_slot(0, 3, [json.loads('["//",' * 200 + "1" + ",2]" * 200)]),
    "two slots of one name": lambda manifest: manifest["program"]["slots"].append(manifest["program"]["slots"][0]),
    "a step beyond the slots": lambda manifest: manifest["program"]["steps"][0].update(kernels=[[[99], [0]]]),
    "a kernel that writes a constant": lambda manifest: manifest["program"]["steps"][0].update(kernels=[[[1], [0]]]),
    "an output that nobody writes": lambda manifest: manifest["program"]["steps"][0].update(kernels=[]),
    "an input too few": lambda manifest: manifest["program"].update(inputs=[]),
    "an output name too many": lambda manifest: manifest["program"]["output_names"].append("more"),
    "a symbol with bounds reversed": lambda manifest: manifest["program"]["symbols"][0].__setitem__(2, -5),
    "a program that is a list": lambda manifest: manifest.update(program=[]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_manifests(saved: Path, change: Callable[[dict[str, Any]], object]) -> None:
    rewrite(saved, change)
    with pytest.raises(DamagedArtifact, match="the manifest of a compiled model is wrong"):
        foretell.load(saved)


def test_manifest_that_is_no_json(saved: Path) -> None:
    content = saved.read_bytes()
    for text in (b"{", b"[" * 100_000, b"\xff", b"9" * 5000):
        body = text + bytes(-len(text) % 64)
        head = FIRST_HALF.pack(b"foretell", FORMAT, 0, len(text), HEADER_BYTES + len(body))
        saved.write_bytes(head + hashlib.sha256(head + body).digest() + body)
        with pytest.raises(DamagedArtifact):
            foretell.load(saved)
    huge = struct.pack("<Q", 1 << 62)
    saved.write_bytes(content[:16] + huge + content[24:])
    with pytest.raises(DamagedArtifact):
        foretell.load(saved)


def test_unknown_target_of_a_newer_foretell(saved: Path) -> None:
    rewrite(saved, lambda manifest: manifest.update(target="x86_64-unknown-linux-gnu:znver99"))
    with pytest.raises(NewerArtifact, match="newer foretell"):
        foretell.load(saved)


def test_models_that_need_python_are_not_saved(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("Unique", ["x"], ["y"])], "g", [x], [y])
    with pytest.warns(UserWarning, match="Unique"):
        compiled = foretell.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    with pytest.raises(UnsavableModel) as caught:
        compiled.save(tmp_path / "model.foretell")
    assert caught.value.got == "Unique"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(model: foretell.CompiledModel, tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "model.foretell", tmp_path):
        with pytest.raises(UsageError, match="cannot be written"):
            model.save(path)
    assert list(tmp_path.iterdir()) == []


def test_engines_in_a_cycle_are_freed_in_any_order(saved: Path) -> None:
    for _ in range(8):
        loaded = foretell.load(saved)
        cycle: list[object] = [loaded]
        cycle.append(cycle)
        loaded.__dict__["cycle"] = cycle
    del loaded, cycle
    gc.collect()


def test_narrow_and_empty_constants(tmp_path: Path) -> None:
    """Constants of any type and size come back bit by bit."""
    arrays = {"half": np.array([1, 2, 3], np.float16), "none": np.zeros((0,), np.float16), "one": np.float16(4)}
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["a"]),
        helper.make_node("Add", ["a", "one"], ["b"]),
        helper.make_node("Concat", ["b", "none"], ["y"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "narrow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [3])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    foretell.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])).save(tmp_path / "narrow")
    assert foretell.load(tmp_path / "narrow")(np.ones(3, np.float16)).tolist() == [5, 6, 7]
