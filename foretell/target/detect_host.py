"""The CPU under this process: the nearest named CPU, corrected by what the system says."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from foretell.target.features import host_architecture, host_features
from foretell.target.hardware_spec import CacheLevel, HardwareSpec, with_cores, with_features
from foretell.target.read_spec import cpu_names, read_named

SYSTEM_CPUS = Path("/sys/devices/system/cpu")
X86_LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")
UNIT_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def detect_host(nearest: HardwareSpec, triple: str) -> HardwareSpec:
    """`nearest`, with the features, cores and caches that this process really has."""
    spec = with_features(replace(nearest, triple=triple), host_features())
    cores = core_groups(usable_cpus())
    return replace(with_cores(spec, len(cores)), caches=detect_caches(spec.caches, cores))


def generic_host() -> HardwareSpec | None:
    """The spec of the widest instruction-set level that this CPU has; None for an architecture we do not know."""
    if host_architecture() != "x86_64":
        return read_named(host_architecture()) if host_architecture() in cpu_names() else None
    levels = (read_named(name) for name in X86_LEVELS)
    return next(level for level in levels if host_features().issuperset(level.features))


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What the maker calls this CPU, where the system says so."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_cpus() -> frozenset[int]:
    """The CPUs this process may run on: its affinity, where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def core_groups(cpus: Iterable[int], root: Path = SYSTEM_CPUS) -> frozenset[frozenset[int]]:
    """The CPUs grouped by physical core: the hardware threads of one share its ports and its nearest caches."""
    usable = frozenset(cpus)
    siblings = {cpu: _cpu_list(_read(root / f"cpu{cpu}/topology/thread_siblings_list")) for cpu in usable}
    return frozenset((siblings[cpu] & usable) | {cpu} for cpu in usable)


def detect_caches(
    known: tuple[CacheLevel, ...], cores: frozenset[frozenset[int]], root: Path = SYSTEM_CPUS
) -> tuple[CacheLevel, ...]:
    """Sizes, lines, sharing and ways from sysfs; bandwidths, which it does not tell, from the same level of `known`."""
    first_cpu = min(min(core) for core in cores)
    found: dict[int, CacheLevel] = {}
    for folder in (root / f"cpu{first_cpu}/cache").glob("index*"):
        level, size_bytes, line_bytes = (
            _size_bytes(_read(folder / name)) for name in ("level", "size", "coherency_line_size")
        )
        if level and size_bytes and line_bytes and _read(folder / "type") != "Instruction":
            sharing = _cpu_list(_read(folder / "shared_cpu_list"))
            shared_by_cores = max(1, sum(not core.isdisjoint(sharing) for core in cores))
            same = known[min(level, len(known)) - 1]
            ways = _size_bytes(_read(folder / "ways_of_associativity")) or same.ways
            found[level] = CacheLevel(size_bytes, line_bytes, shared_by_cores, same.bandwidth_bytes_per_cycle, ways)
    return tuple(found[level] for level in sorted(found)) or known


def _read(path: Path) -> str:
    """One line of sysfs, or "" where there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _size_bytes(text: str) -> int:
    """ "48K" -> 49152; 0 for what is not a size."""
    unit = UNIT_BYTES.get(text[-1:], 1)
    digits = text[:-1] if unit > 1 else text
    return int(digits) * unit if digits.isdecimal() else 0


def _cpu_list(text: str) -> frozenset[int]:
    """ "0-2,8" -> {0, 1, 2, 8}"""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)
