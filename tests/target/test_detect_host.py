from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretell.target import detect_host
from foretell.target.detect_host import core_groups, detect_caches, generic_host, usable_cpus
from foretell.target.features import KERNEL_NAMES
from foretell.target.hardware_spec import CacheLevel
from foretell.target.read_spec import read_named

KNOWN = read_named("skylake").caches


def write_cache(root: Path, index: int, level: str, type: str, size: str, shared: str, ways: str = "") -> None:
    folder = root / f"cpu0/cache/index{index}"
    folder.mkdir(parents=True)
    facts = {"level": level, "type": type, "size": size, "coherency_line_size": "64", "shared_cpu_list": shared}
    for name, text in (facts | {"ways_of_associativity": ways}).items():
        (folder / name).write_text(f"{text}\n")


def test_caches_from_sysfs(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, "1", "Data", "48K", "0,2", ways="12")
    write_cache(tmp_path, 1, "1", "Instruction", "32K", "0,2")
    write_cache(tmp_path, 2, "2", "Unified", "2M", "0,2")
    write_cache(tmp_path, 3, "3", "Unified", "36864K", "0-7")
    cores = frozenset({frozenset({0, 2}), frozenset({1, 3}), frozenset({4})})
    assert detect_caches(KNOWN, cores, tmp_path) == (
        CacheLevel(48 << 10, 64, 1, KNOWN[0].bandwidth_bytes_per_cycle, ways=12),
        CacheLevel(2 << 20, 64, 1, KNOWN[1].bandwidth_bytes_per_cycle),
        CacheLevel(36 << 20, 64, 3, KNOWN[2].bandwidth_bytes_per_cycle),
    )


@pytest.mark.parametrize("size", ["", "K", "unknown", "0K"])
def test_caches_without_a_size_are_as_known(size: str, tmp_path: Path) -> None:
    write_cache(tmp_path, 0, "1", "Data", size, "0")
    assert detect_caches(KNOWN, frozenset({frozenset({0})}), tmp_path) == KNOWN


def test_hardware_threads_are_one_core(tmp_path: Path) -> None:
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4"}.items():
        folder = tmp_path / f"cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert core_groups({0, 1, 4}, tmp_path) == {frozenset({0, 4}), frozenset({1})}
    assert core_groups({2, 3}, tmp_path) == {frozenset({2}), frozenset({3})}


def test_host_has_at_least_one_cpu() -> None:
    assert len(usable_cpus()) >= 1


@pytest.mark.parametrize("level", detect_host.X86_LEVELS)
def test_generic_host_is_the_widest_level(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect_host, "host_architecture", lambda: "x86_64")
    monkeypatch.setattr(detect_host, "host_features", lambda: frozenset({*read_named(level).features, "gfni"}))
    assert generic_host() == read_named(level)


def test_generic_host_of_other_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    for architecture in ("aarch64", "riscv64"):
        monkeypatch.setattr(detect_host, "host_architecture", lambda name=architecture: name)
        assert generic_host() == read_named(architecture)
    monkeypatch.setattr(detect_host, "host_architecture", lambda: "sparc64")
    assert generic_host() is None


def test_detect_host_keeps_the_numbers_that_no_system_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect_host, "host_features", lambda: frozenset(KERNEL_NAMES["x86_64"]))
    monkeypatch.setattr(detect_host, "usable_cpus", lambda: frozenset({0}))
    nearest = read_named("skylake")
    found = detect_host.detect_host(nearest, "x86_64-pc-linux-musl")
    assert (found.cores, found.triple) == (1, "x86_64-pc-linux-musl")
    assert (
        replace(
            found,
            triple=nearest.triple,
            features=nearest.features,
            cores=nearest.cores,
            caches=nearest.caches,
            dram_bandwidth_bytes_per_s=nearest.dram_bandwidth_bytes_per_s,
            barrier_cost_s=nearest.barrier_cost_s,
        )
        == nearest
    )
