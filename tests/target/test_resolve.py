from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from foretell.support.errors import TargetError, UsageError
from foretell.target import resolve
from foretell.target.features import host_architecture, host_features
from foretell.target.read_spec import cpu_names, read_named
from foretell.target.resolve import Target, check_runs_here, resolve_target
from foretell.target.write_spec import write_spec


def test_native() -> None:
    target = resolve_target()
    assert target.triple == llvm.get_process_triple()
    assert target.architecture == host_architecture()
    assert set(target.features) == host_features()
    check_runs_here(target)
    again = resolve_target(target.resolved)
    assert (again.triple, again.cpu, again.features) == (target.triple, target.cpu, target.features)


@pytest.mark.parametrize(
    ("shown", "features_of", "native"),
    [
        ("rocketlake", "sapphirerapids", "sapphirerapids"),  # a virtual machine that hides its model number
        ("rocketlake", "icelake-server", "icelake-server"),
        ("haswell", "icelake-server", "icelake-server"),
        ("x86-64-v3", "sapphirerapids", "x86-64-v4"),  # no maker is known
        ("znver3", "znver5", "znver5"),
        ("sapphirerapids", "haswell", "sapphirerapids"),
    ],
)
def test_features_tell_what_a_model_number_hides(
    shown: str, features_of: str, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = frozenset(read_named(features_of).features)
    for module in (resolve, sys.modules["foretell.target.detect_host"]):
        monkeypatch.setattr(module, "host_features", lambda: features)
        monkeypatch.setattr(module, "host_architecture", lambda: "x86_64")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: shown)
    found = resolve_target()
    assert found.spec.name == native
    assert set(found.features) == features


@pytest.mark.parametrize("name", cpu_names())
def test_named(name: str) -> None:
    target = resolve_target(name)
    assert target.spec == read_named(name)
    assert target.resolved == str(target) == f"{target.triple}:{name}"
    assert resolve_target(target.resolved) == target


@pytest.mark.parametrize(
    ("name", "resolved"),
    [
        ("cascadelake", "x86_64-unknown-linux-gnu:skylake-avx512:+avx512vnni"),
        ("skylake_avx512", "x86_64-unknown-linux-gnu:skylake-avx512"),
        ("x86_64_v3", "x86_64-unknown-linux-gnu:x86-64-v3"),
        ("zen3", "x86_64-unknown-linux-gnu:znver3"),
        ("zen", "x86_64-unknown-linux-gnu:x86-64-v3"),
        ("thunderx2", "aarch64-unknown-linux-gnu:aarch64:+crc,+lse,+rdm"),
        ("m2", "arm64-apple-macosx11.0.0:apple-m1"),
        ("graviton3", "aarch64-unknown-linux-gnu:neoverse-v1"),
        ("x86_64-pc-linux-musl:haswell", "x86_64-pc-linux-musl:haswell"),
        ("aarch64-linux-android:cortex-a78", "aarch64-linux-android:cortex-a76"),
        ("x86_64-linux-gnu:znver4:-avx512f,+avxvnni", "x86_64-linux-gnu:znver4:+avxvnni,-avx512f"),
    ],
)
def test_other_names(name: str, resolved: str) -> None:
    target = resolve_target(name)
    assert target.resolved == resolved
    assert resolve_target(resolved) == target


def test_llvm_must_not_use_what_takes_long() -> None:
    assert "-sse4a" in resolve_target("znver3").llvm_features.split(",")
    assert "sse4a" not in resolve_target("neoverse-n1").llvm_features


def test_changed_features_reach_llvm_and_the_vectors() -> None:
    target = resolve_target("x86_64-linux-gnu:icelake-server:-avx512f,-avx512vl")
    assert target.spec.vector_bytes == 32
    assert "+avx2" in target.llvm_features.split(",") and "+avx512f" not in target.llvm_features
    assert target.llvm_features.endswith(",-avx512f,-avx512vl,-sse4a")


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("skylakee", "no CPU is called 'skylakee'", "skylake or kabylake"),
        ("neoverse-n3", "no CPU is called 'neoverse-n3'", "neoverse"),
        ("power9", "no CPU is called 'power9'", "native or a named CPU"),
        ("", "no CPU is called ''", "native or a named CPU"),
        ("a:b:c:d", "a target cannot be read", "TRIPLE:CPU:FEATURES"),
        ("aarch64-linux-gnu:znver3", "znver3 is not a CPU of that architecture", "x86_64-unknown-linux-gnu"),
        ("x86_64-linux gnu:znver3", "znver3 is not a CPU of that architecture", "x86_64-unknown-linux-gnu"),
        ("x86_64-linux-gnu:znver3:+avx512", "a feature cannot be read", "avx512"),
        ("x86_64-linux-gnu:znver3:avx2", "a feature cannot be read", "+avx2"),
    ],
)
def test_unknown_names_are_refused(name: str, message: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_target(name)
    assert caught.value.what == message
    assert expected in caught.value.expected


def test_a_missing_feature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    target = native_of("x86_64", monkeypatch)
    monkeypatch.setattr(resolve, "host_features", lambda: frozenset(target.features) - {"fma", "avx2"})
    with pytest.raises(TargetError, match="this CPU does not have instructions that the code uses") as caught:
        check_runs_here(target)
    assert caught.value.expected == "avx2, fma"
    assert caught.value.where == target.resolved


@pytest.mark.parametrize("name", ["aarch64", "x86_64-apple-macosx11.0.0:x86-64", "x86_64-unknown-none:x86-64"])
def test_another_kind_of_machine_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    native_of("x86_64", monkeypatch)
    with pytest.raises(TargetError, match="the code is for another kind of machine") as caught:
        check_runs_here(resolve_target(name))
    assert caught.value.expected == "x86_64 linux"


def test_an_unknown_machine_has_no_native_target(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (resolve, sys.modules["foretell.target.detect_host"]):
        monkeypatch.setattr(module, "host_architecture", lambda: "sparc64")
    with pytest.raises(TargetError, match="foretell does not generate code for this machine"):
        resolve_target()


def test_checking_an_artifact_does_not_import_llvm() -> None:
    script = (
        "import sys; from foretell.support.errors import TargetError\n"
        "from foretell.target.resolve import check_runs_here, resolve_target\n"
        "try: check_runs_here(resolve_target('x86_64-unknown-linux-gnu:haswell'))\n"
        "except TargetError: pass\n"
        "sys.exit(', '.join({'llvmlite', 'numpy', 'archspec'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def native_of(architecture: str, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Pretend to run on the Linux machine that haswell describes."""
    spec = read_named("haswell")
    answers: dict[str, Callable[[], object]] = {
        "host_architecture": lambda: architecture,
        "host_features": lambda: frozenset(spec.features),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(resolve, name, answer)
    monkeypatch.setattr(sys, "platform", "linux")
    return Target(spec)


def test_a_spec_file_is_a_target(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    spec = replace(read_named("znver3"), cores=3)
    path.write_text(write_spec(spec))
    assert resolve_target(str(path)).spec == spec
    assert resolve_target(str(path)).resolved == "x86_64-unknown-linux-gnu:znver3"


@pytest.mark.parametrize(
    ("content", "where", "got"),
    [
        (None, "", "No such file or directory"),
        (b"\xff\xfe", "", "bytes that are no text"),
        (write_spec(replace(read_named("znver3"), name="mine")).encode(), ", name", "mine"),
        (write_spec(replace(read_named("znver3"), name="apple-m1")).encode(), ", name", "apple-m1"),
    ],
)
def test_a_file_that_is_no_target(content: bytes | None, where: str, got: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="the description of a CPU cannot be read") as caught:
        resolve_target(str(path))
    assert (caught.value.where, caught.value.got) == (f"{path}{where}", got)
