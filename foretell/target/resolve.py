"""What the user calls a target -> the CPU that code is generated for.

native                                  the CPU under this process
znver3, x86-64-v3, neoverse-n1          a CPU of the package (`foretell targets` lists them)
cascadelake, zen, thunderx2             a name of archspec's: the nearest of those, with its own features
aarch64-unknown-linux-gnu:cortex-a76    an LLVM triple, and any of those names
TRIPLE:CPU:+avx512vnni,-gfni            the same with features changed: this is how a target prints itself
measured.toml                           a spec file, such as `foretell calibrate` writes
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from foretell.support.errors import TargetError, UsageError
from foretell.target.detect_host import detect_host, generic_host
from foretell.target.features import KERNEL_NAMES, UNWANTED, from_kernel_names, host_architecture, host_features
from foretell.target.hardware_spec import ARCHITECTURES, HardwareSpec, with_features
from foretell.target.read_spec import cpu_aliases, cpu_names, read_named, read_spec
from foretell.target.toml_table import unreadable

SYSTEMS = {"linux": "linux", "darwin": "darwin", "macosx": "darwin", "windows": "win32"}
"""A word in a triple -> `sys.platform`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU to generate code for."""

    spec: HardwareSpec

    @property
    def triple(self) -> str:
        return self.spec.triple

    @property
    def cpu(self) -> str:
        return self.spec.cpu

    @property
    def features(self) -> tuple[str, ...]:
        return self.spec.features

    @property
    def architecture(self) -> str:
        return self.spec.architecture

    @property
    def feature_changes(self) -> tuple[str, ...]:
        """How the features differ from what the CPU's name stands for: ("+avx512vnni", "-gfni")."""
        usual = set(read_named(self.spec.name).features) if self.spec.name in cpu_names() else set[str]()
        present = set(self.features)
        return (*(f"+{name}" for name in sorted(present - usual)), *(f"-{name}" for name in sorted(usual - present)))

    @property
    def llvm_features(self) -> str:
        """For LLVM: every feature that may be used, and those that the CPU's name promises but are missing or
        unwanted."""
        missing = [change for change in self.feature_changes if change.startswith("-")]
        missing += [f"-{name}" for name in UNWANTED.get(self.architecture, ())]
        return ",".join([*(f"+{name}" for name in self.features), *missing])

    @property
    def resolved(self) -> str:
        """TRIPLE:CPU or TRIPLE:CPU:CHANGES: which machines can run the code, and what `resolve_target` reads back."""
        changes = ",".join(self.feature_changes)
        return f"{self.triple}:{self.spec.name}" + (f":{changes}" if changes else "")

    def __str__(self) -> str:
        return self.resolved


def resolve_target(name: str = "native") -> Target:
    """Find a target; an unknown name is a `UsageError` with the nearest ones."""
    if name.endswith(".toml"):
        return Target(_read_file(Path(name)))
    match name.split(":"):
        case ["native"]:
            return Target(_native())
        case [cpu]:
            return Target(_find_cpu(cpu))
        case [triple, cpu]:
            return Target(_with_triple(_find_cpu(cpu), triple))
        case [triple, cpu, changes]:
            return Target(_with_changes(_with_triple(_find_cpu(cpu), triple), changes))
        case _:
            raise UsageError(
                "a target cannot be read",
                expected="native, CPU, TRIPLE:CPU, TRIPLE:CPU:FEATURES or FILE.toml",
                got=name,
                hint="`foretell targets` lists the CPUs",
            )


def check_runs_here(target: Target) -> None:
    """Raise `TargetError` unless the machine under this process can run code made for `target`."""
    system = next((system for word, system in SYSTEMS.items() if word in target.triple), "no system")
    needed, here = (target.architecture, system), (host_architecture(), sys.platform)
    if needed != here:
        raise TargetError(
            "the code is for another kind of machine",
            where=target.resolved,
            expected=" ".join(here),
            got=" ".join(needed),
            hint="compile it again with the target 'native'",
        )
    missing = sorted(set(target.features) - host_features())
    if missing:
        raise TargetError(
            "this CPU does not have instructions that the code uses",
            where=target.resolved,
            expected=", ".join(missing),
            got="a CPU without them",
            hint="compile it again with the target 'native', or for an older CPU: `foretell targets` lists them",
        )


def runs_here(target: Target) -> bool:
    """Whether the machine under this process can run code made for `target`."""
    try:
        check_runs_here(target)
    except TargetError:
        return False
    return True


def _native() -> HardwareSpec:
    import archspec.cpu
    import llvmlite.binding

    names = (llvmlite.binding.get_host_cpu_name(), archspec.cpu.host().name)
    found = (_try_find_cpu(name) for name in names)
    nearest = next((spec for spec in found if spec and spec.architecture == host_architecture()), generic_host())
    if nearest is None:
        raise TargetError(
            "foretell does not generate code for this machine",
            expected=" or ".join(KERNEL_NAMES),
            got=host_architecture(),
            hint="compile for another target: `foretell targets` lists them",
        )
    return detect_host(_newer_kin(nearest, host_features()), llvmlite.binding.get_process_triple())


def _newer_kin(spec: HardwareSpec, features: frozenset[str]) -> HardwareSpec:
    """The descendant of `spec` by the same maker that has most of `features` and no others, or `spec` itself.

    LLVM goes by model numbers, and virtual machines may show an older CPU's.
    """
    import archspec.cpu

    newest = spec
    for kin in archspec.cpu.TARGETS.values():
        parents = (_try_named(parent.name) for parent in kin.ancestors if parent.vendor == kin.vendor)
        named = _try_named(kin.name)
        if named and spec in parents and set(newest.features) < set(named.features) <= features:
            newest = named
    return newest


def _read_file(path: Path) -> HardwareSpec:
    """Its `name` must be that of a named CPU: a saved model says by that name which machines can run it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = error.strerror if isinstance(error, OSError) else "bytes that are no text"
        raise unreadable(str(path), "a spec file", got or str(error)) from error
    spec = read_spec(text, str(path))
    if spec.name not in cpu_names() or read_named(spec.name).architecture != spec.architecture:
        raise unreadable(f"{path}, name", f"a named CPU of {spec.architecture}", spec.name)
    return spec


def _find_cpu(name: str) -> HardwareSpec:
    if found := _try_find_cpu(name):
        return found
    close = difflib.get_close_matches(name, sorted({"native", *cpu_names(), *cpu_aliases(), *_archspec_names()}))
    raise UsageError(
        f"no CPU is called {name!r}",
        expected=" or ".join(close) if close else "native or a named CPU",
        got=name,
        hint="`foretell targets` lists the CPUs; archspec's names work too",
    )


def _try_find_cpu(name: str) -> HardwareSpec | None:
    return _try_named(name) or _try_archspec(name)


def _try_named(name: str) -> HardwareSpec | None:
    """archspec writes `skylake_avx512` where LLVM has `skylake-avx512`."""
    spelled = name.replace("_", "-")
    found = spelled if spelled in cpu_names() else cpu_aliases().get(spelled)
    return read_named(found) if found else None


def _try_archspec(name: str) -> HardwareSpec | None:
    """Archspec's nearest ancestor of that CPU that we know, with the features of the CPU itself."""
    import archspec.cpu

    kin = archspec.cpu.TARGETS.get(name.replace("-", "_"))
    nearest = next((spec for parent in kin.ancestors if (spec := _try_named(parent.name))), None) if kin else None
    if kin is None or nearest is None:
        return None
    return with_features(
        nearest, {*nearest.features, *from_kernel_names(nearest.architecture, frozenset(kin.features))}
    )


def _archspec_names() -> list[str]:
    import archspec.cpu

    return [kin.name for kin in archspec.cpu.TARGETS.values() if kin.family.name in KERNEL_NAMES]


def _with_triple(spec: HardwareSpec, triple: str) -> HardwareSpec:
    if re.fullmatch(r"[\w.-]+", triple) and ARCHITECTURES.get(triple.partition("-")[0]) == spec.architecture:
        return replace(spec, triple=triple)
    raise UsageError(
        f"{spec.name} is not a CPU of that architecture",
        expected=f"a triple such as {spec.triple}",
        got=triple,
        hint="write TRIPLE:CPU, both for one architecture",
    )


def _with_changes(spec: HardwareSpec, changes: str) -> HardwareSpec:
    features = set(spec.features)
    known = KERNEL_NAMES[spec.architecture]
    for change in changes.split(","):
        sign, feature = change[:1], change[1:]
        if sign not in ("+", "-") or feature not in known:
            close = difflib.get_close_matches(feature or change, known, n=3)
            raise UsageError(
                "a feature cannot be read",
                expected=" or ".join(f"+{name}" for name in close) or "+NAME or -NAME with LLVM's names",
                got=change,
                hint="only features that LLVM may use of its own accord count: foretell/target/features.py lists them",
            )
        features = features | {feature} if sign == "+" else features - {feature}
    return with_features(spec, features)
