"""The cache of object code: right or absent, whatever happens to the disk or to the process."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import llvmlite.ir as ir
import pytest

from foretell.codegen import compile_module as stage
from foretell.codegen.compile_module import compile_module
from foretell.codegen.object_cache import FOLDER, cache_key, keep, try_cached
from foretell.support.cache_folder import VARIABLE, try_cache_folder
from foretell.target.resolve import resolve_target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "objects"


def test_what_is_kept_is_found(folder: Path) -> None:
    key = cache_key("module", "cpu")
    assert try_cached(key) is None
    keep(key, b"code")
    assert try_cached(key) == b"code"
    assert [path.name for path in folder.iterdir()] == [f"{key}.object"]


def test_keys_tell_parts_apart() -> None:
    keys = [cache_key(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ())]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("damage", [b"", b"short", bytes(40)])
def test_damaged_entries_are_ignored_and_rewritten(folder: Path, damage: bytes) -> None:
    key = cache_key("module")
    keep(key, b"code")
    (folder / f"{key}.object").write_bytes(damage)
    assert try_cached(key) is None
    keep(key, b"code")
    assert try_cached(key) == b"code"


@pytest.mark.parametrize("value", ["", "off", " OFF "])
def test_turned_off(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    keep("key", b"code")
    assert try_cache_folder(FOLDER) is None and try_cached("key") is None


def test_a_folder_that_cannot_be_made_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    keep("key", b"code")
    assert try_cached("key") is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs Unix permissions")
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    keep("key", b"code")
    folder.chmod(0o777)
    assert try_cached("key") is None


def test_the_oldest_are_dropped(folder: Path) -> None:
    for number in range(4):
        keep(str(number), bytes(1000))
        os.utime(folder / f"{number}.object", (number, number))
    assert try_cached("0") is not None, "which makes it the youngest"
    keep("4", bytes(1000), max_bytes=3200)
    assert sorted(path.stem for path in folder.iterdir()) == ["0", "3", "4"]


def test_abandoned_files_are_removed(folder: Path) -> None:
    keep("a", b"code")
    (folder / ".old.tmp").touch()
    (folder / ".young.tmp").touch()
    os.utime(folder / ".old.tmp", (0, 0))
    keep("b", b"code")
    assert not (folder / ".old.tmp").exists() and (folder / ".young.tmp").exists()


def doubling() -> ir.Module:
    module = ir.Module("doubling")
    function = ir.Function(module, ir.FunctionType(ir.IntType(64), [ir.IntType(64)]), "double")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.add(function.args[0], function.args[0]))
    return module


def test_a_module_is_compiled_once_for_each_target(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = (compile_module(doubling(), resolve_target(name)) for name in ("x86-64-v2", "x86-64-v3"))
    assert len(list(folder.iterdir())) == 2

    def refuse(text: str, machine: object) -> bytes:
        raise AssertionError("it is in the cache")

    monkeypatch.setattr(stage, "_optimised", refuse)
    assert compile_module(doubling(), resolve_target("x86-64-v2")) == first
    assert compile_module(doubling(), resolve_target("x86-64-v3")) == other


def assert_entries_are_whole(folder: Path) -> None:
    for path in folder.glob("*.object"):
        content = path.read_bytes()
        assert hashlib.sha256(content[32:]).digest() == content[:32]


def kill_when_something_is_there(process: subprocess.Popen[bytes], folder: Path, delay_s: float) -> None:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s and process.poll() is None and not (folder.is_dir() and any(folder.iterdir())):
        time.sleep(0.001)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs Unix signals")
@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.01, 0.03])
def test_kill_while_writing_leaves_no_broken_entry(folder: Path, delay_s: float) -> None:
    script = (
        "import os; from foretell.codegen.object_cache import keep\n"
        "for number in range(10_000): keep(str(number % 50), os.urandom(1 << 20))"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env=os.environ.copy())
    kill_when_something_is_there(process, folder, delay_s)
    assert_entries_are_whole(folder)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs Unix signals")
def test_kill_during_compile_leaves_a_cache_that_works(folder: Path, tmp_path: Path) -> None:
    script = (
        "import sys, foretell; from examples.demo import build_model; foretell.compile(build_model()).save(sys.argv[1])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "model.foretell")]
    kill_when_something_is_there(subprocess.Popen(command, env=os.environ.copy()), folder, 0.0)
    assert_entries_are_whole(folder)
    subprocess.run(command, check=True)
    assert_entries_are_whole(folder)
    assert (tmp_path / "model.foretell").stat().st_size > 0
