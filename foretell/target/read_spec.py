"""A spec file (TOML) -> `HardwareSpec`, and the CPUs that come with the package.

Its keys are the fields of `HardwareSpec` and `CacheLevel`, all required but `unit_bytes`, which is `vector_bytes`
unless told, `add_ports`, which is 0, and `ways`, which are 8; `aliases` may list other names, and a table
`[coefficients]` has those of `Coefficients` that were fitted.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import resources

from foretell.target.features import KERNEL_NAMES
from foretell.target.hardware_spec import ARCHITECTURES, USUAL_WAYS, CacheLevel, Coefficients, HardwareSpec
from foretell.target.toml_table import TomlTable, parse_table, unreadable

VECTOR_BYTES = (0, 16, 32, 64)
_FOLDER = resources.files("foretell.target").joinpath("cpus")


def read_spec(text: str, where: str) -> HardwareSpec:
    """Read one spec; a missing, unknown or impossible field is a `UsageError` that names it."""
    table = parse_table(text, where)
    table.words("aliases", default=[])
    vector_bytes = table.count("vector_bytes", least=0)
    spec = HardwareSpec(
        name=table.word("name"),
        triple=table.word("triple"),
        cpu=table.word("cpu"),
        features=table.words("features"),
        vector_bytes=vector_bytes,
        unit_bytes=table.count("unit_bytes", least=0, default=vector_bytes),
        vector_registers=table.count("vector_registers"),
        fma_ports=table.count("fma_ports"),
        add_ports=table.count("add_ports", least=0, default=0),
        fma_latency_cycles=table.count("fma_latency_cycles"),
        load_ports=table.count("load_ports"),
        loads_per_cycle=table.number("loads_per_cycle"),
        store_ports=table.count("store_ports"),
        frequency_hz=table.number("frequency_hz"),
        caches=tuple(_read_cache(level) for level in table.tables("caches")),
        cores=table.count("cores"),
        dram_bandwidth_bytes_per_s=table.number("dram_bandwidth_bytes_per_s"),
        dram_core_bandwidth_bytes_per_s=table.number("dram_core_bandwidth_bytes_per_s"),
        barrier_cost_s=table.number("barrier_cost_s"),
        coefficients=_read_coefficients(table.table("coefficients", default={})),
    )
    table.check_empty()
    _check_instruction_set(spec, where)
    return spec


@cache
def cpu_names() -> tuple[str, ...]:
    """The CPUs that come with the package."""
    return tuple(sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir() if file.name.endswith(".toml")))


@cache
def read_named(name: str) -> HardwareSpec:
    """One of `cpu_names()`."""
    return read_spec(_text(name), f"{name}.toml")


@cache
def cpu_aliases() -> dict[str, str]:
    """Other names -> the named CPU that is the same, or stands for it as its nearest kin."""
    tables = {name: parse_table(_text(name), name) for name in cpu_names()}
    return {alias: name for name, table in tables.items() for alias in table.words("aliases")}


def _read_cache(table: TomlTable) -> CacheLevel:
    level = CacheLevel(
        size_bytes=table.count("size_bytes"),
        line_bytes=table.count("line_bytes"),
        shared_by_cores=table.count("shared_by_cores"),
        bandwidth_bytes_per_cycle=table.number("bandwidth_bytes_per_cycle"),
        ways=table.count("ways", default=USUAL_WAYS),
    )
    table.check_empty()
    return level


def _read_coefficients(table: TomlTable) -> Coefficients:
    usual = Coefficients()
    found = {field.name: table.amount(field.name, getattr(usual, field.name)) for field in fields(Coefficients)}
    table.check_empty()
    return Coefficients(**found)


def _check_instruction_set(spec: HardwareSpec, where: str) -> None:
    architecture = ARCHITECTURES.get(spec.triple.partition("-")[0])
    if architecture is None:
        raise unreadable(f"{where}, triple", f"one of {', '.join(KERNEL_NAMES)} first", spec.triple)
    if spec.vector_bytes not in VECTOR_BYTES:
        expected = " or ".join(map(str, VECTOR_BYTES))
        raise unreadable(f"{where}, vector_bytes", expected, str(spec.vector_bytes))
    if spec.unit_bytes not in (spec.vector_bytes, spec.vector_bytes // 2):
        raise unreadable(f"{where}, unit_bytes", "vector_bytes, or half of it", str(spec.unit_bytes))
    unknown = sorted(set(spec.features) - KERNEL_NAMES[architecture].keys())
    if unknown:
        raise unreadable(f"{where}, features", "names listed in foretell/target/features.py", ", ".join(unknown))


def _text(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")
