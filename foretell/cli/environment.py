"""What `foretell env` reports: versions, the CPU, and the threads this process may use."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata

import archspec.cpu

PACKAGES = ("llvmlite", "onnx", "numpy", "ml-dtypes", "archspec")


@dataclass(frozen=True, slots=True)
class Environment:
    foretell: str
    python: str
    platform: str
    packages: dict[str, str]
    cpu: str
    cpu_family: str
    cpu_features: tuple[str, ...]
    threads: int

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def describe_environment() -> Environment:
    """Read everything afresh; nothing here measures or imports a compiler stage."""
    cpu = archspec.cpu.host()
    return Environment(
        foretell=metadata.version("foretell"),
        python=platform.python_version(),
        platform=platform.platform(),
        packages={name: metadata.version(name) for name in PACKAGES},
        cpu=cpu.name,
        cpu_family=cpu.generic.name,
        cpu_features=tuple(sorted(cpu.features)),
        threads=available_threads(),
    )


def available_threads() -> int:
    """CPUs this process may run on (affinity where the system has it)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
