"""What `foretell env` reports: versions, the CPU, and the threads this process may use."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata

import archspec.cpu

from foretell.target.threads import default_threads

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
        threads=default_threads(),
    )
