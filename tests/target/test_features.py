from __future__ import annotations

import platform
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from foretell.target import features
from foretell.target.features import KERNEL_NAMES, from_kernel_names, host_architecture, host_features


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/cpuinfo")
@pytest.mark.skipif(host_architecture() != "x86_64", reason="LLVM lists fewer features on other hosts")
def test_the_kernel_and_llvm_agree() -> None:
    known = KERNEL_NAMES[host_architecture()]
    by_llvm = {name for name, present in llvm.get_host_cpu_features().items() if present and name in known}
    assert host_features() == by_llvm


def test_llvm_is_asked_where_there_is_no_cpuinfo(tmp_path: Path) -> None:
    assert host_features(tmp_path / "missing") <= KERNEL_NAMES[host_architecture()].keys()


@pytest.mark.parametrize(
    ("machine", "text", "expected"),
    [
        ("AMD64", "flags\t\t: fpu abm avx2\n\nflags\t\t: fpu abm\n", {"lzcnt"}),
        ("aarch64", "Features\t: fp asimd atomics asimddp\n", {"fp-armv8", "neon", "lse", "dotprod"}),
        ("riscv64", "isa\t\t: rv64imafdc_zicsr\n", {"m", "a", "f", "d", "c"}),
        ("sparc64", "flags: x\n", set()),
    ],
)
def test_cpuinfo(machine: str, text: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    (tmp_path / "cpuinfo").write_text(text)
    assert features.host_features(tmp_path / "cpuinfo") == expected


def test_from_kernel_names() -> None:
    assert from_kernel_names("x86_64", frozenset({"bmi1", "avx512_vnni", "pni"})) == {"bmi", "avx512vnni"}
