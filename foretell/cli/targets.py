"""What `foretell targets` reports: the CPUs that code can be generated for, and the one under this process."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.table import Table

from foretell.report.tables import table
from foretell.report.units import plural
from foretell.support.errors import TargetError
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.read_spec import cpu_aliases, cpu_names, read_named
from foretell.target.resolve import Target, resolve_target

COLUMNS = ("name", "architecture", "vector bits", "GFLOP/s a core", "cores", "caches KiB", "memory GB/s")


@dataclass(frozen=True, slots=True)
class Targets:
    native: Target | None
    """None on a machine that foretell does not generate code for."""
    named: tuple[HardwareSpec, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "native": {"resolved": self.native.resolved, **self.native.spec.to_json()} if self.native else None,
            "targets": [spec.to_json() for spec in self.named],
            "aliases": cpu_aliases(),
        }

    def to_table(self) -> Table:
        specs = (("native", self.native.spec),) if self.native else ()
        named = ((spec.name, spec) for spec in self.named)
        return table(*COLUMNS, rows=[_row(name, spec) for name, spec in (*specs, *named)])


def describe_targets() -> Targets:
    try:
        native = resolve_target()
    except TargetError:
        native = None
    return Targets(native, tuple(read_named(name) for name in cpu_names()))


def _row(name: str, spec: HardwareSpec) -> tuple[object, ...]:
    caches = " / ".join(str(cache.size_bytes // 1024) for cache in spec.caches)
    memory = spec.dram_bandwidth_bytes_per_s / 1e9
    return (
        name,
        spec.architecture,
        8 * spec.vector_bytes,
        spec.peak_flops_per_s() / 1e9,
        spec.cores,
        caches,
        memory,
    )


def numbers_table(target: Target) -> Table:
    """Every number of one CPU."""
    own = ("caches", "features", "coefficients")
    numbers = {name: value for name, value in target.spec.to_json().items() if name not in own}
    coefficients = [(f"coefficient of {name}", value) for name, value in asdict(target.spec.coefficients).items()]
    caches = [
        (
            f"cache {index + 1}",
            f"{level.size_bytes // 1024} KiB, lines of {level.line_bytes} bytes, "
            f"{level.bandwidth_bytes_per_cycle:.4g} bytes a cycle, of {plural(level.shared_by_cores, 'core')}",
        )
        for index, level in enumerate(target.spec.caches)
    ]
    rows = [("resolved", target.resolved), *((name, value) for name, value in numbers.items()), *caches, *coefficients]
    return table("", "", rows=rows)
