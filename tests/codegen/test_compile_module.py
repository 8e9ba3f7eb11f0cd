"""LLVM in several threads: it is let in, and gives what it gives to one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import llvmlite.binding.ffi as ffi
import llvmlite.ir as ir
import pytest

from foretell.codegen.compile_module import LONG_CALLS, compile_text, module_text
from foretell.support.cache_folder import VARIABLE
from foretell.target.resolve import resolve_target

TARGET = resolve_target("x86-64-v3")


def repeated(times: int) -> str:
    """A function that multiplies a number by itself again and again."""
    module = ir.Module("repeated")
    function = ir.Function(module, ir.FunctionType(ir.FloatType(), [ir.FloatType()]), "repeated")
    builder = ir.IRBuilder(function.append_basic_block())
    value = function.args[0]
    for _ in range(times):
        value = builder.fmul(value, value)
    builder.ret(value)
    return module_text(module, TARGET)


def test_threads_get_what_one_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [repeated(times) for times in range(100, 1600, 100)]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "one"))
    expected = [compile_text(text, TARGET) for text in texts]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "several"))
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda text: compile_text(text, TARGET), texts)) == expected


def test_long_calls_do_not_wait_for_each_other() -> None:
    compile_text(repeated(1), TARGET)
    assert all(isinstance(getattr(ffi.lib, name)._lock, nullcontext) for name in LONG_CALLS)
