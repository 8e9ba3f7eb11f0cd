"""A spec file (TOML) -> `HardwareSpec`, and the CPUs that come with the package.

Its keys are the fields of `HardwareSpec` and `CacheLevel`, all required; `aliases` may list other names.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import NoReturn

from foretell.support.errors import UsageError
from foretell.target.features import KERNEL_NAMES
from foretell.target.hardware_spec import ARCHITECTURES, CacheLevel, HardwareSpec

_FOLDER = resources.files("foretell.target").joinpath("cpus")


def read_spec(text: str, where: str) -> HardwareSpec:
    """Read one spec; a missing, unknown or impossible field is a `UsageError` that names it."""
    table = _Table(_parse(text, where), where)
    table.words("aliases", default=[])
    spec = HardwareSpec(
        name=table.word("name"),
        triple=table.word("triple"),
        cpu=table.word("cpu"),
        features=table.words("features"),
        vector_bytes=table.count("vector_bytes", least=0),
        vector_registers=table.count("vector_registers"),
        fma_ports=table.count("fma_ports"),
        fma_latency_cycles=table.count("fma_latency_cycles"),
        load_ports=table.count("load_ports"),
        store_ports=table.count("store_ports"),
        frequency_hz=table.number("frequency_hz"),
        caches=tuple(_read_cache(level) for level in table.tables("caches")),
        cores=table.count("cores"),
        dram_bandwidth_bytes_per_s=table.number("dram_bandwidth_bytes_per_s"),
        dram_core_bandwidth_bytes_per_s=table.number("dram_core_bandwidth_bytes_per_s"),
        barrier_cost_s=table.number("barrier_cost_s"),
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
    tables = {name: _Table(_parse(_text(name), name), name) for name in cpu_names()}
    return {alias: name for name, table in tables.items() for alias in table.words("aliases")}


class _Table:
    """One table of a spec file, taken key by key."""

    def __init__(self, facts: dict[str, object], where: str) -> None:
        self.facts = dict(facts)
        self.where = where

    def word(self, key: str) -> str:
        value = self.facts.pop(key, None)
        return value if isinstance(value, str) and value else self._refuse(key, "a word", value)

    def words(self, key: str, default: Iterable[str] | None = None) -> tuple[str, ...]:
        value = self.facts.pop(key, default)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return tuple(sorted(value))
        self._refuse(key, "a list of words", value)

    def count(self, key: str, *, least: int = 1) -> int:
        value = self.facts.pop(key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self._refuse(key, f"a whole number, at least {least}", value)

    def number(self, key: str) -> float:
        value = self.facts.pop(key, None)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self._refuse(key, "a positive number", value)

    def tables(self, key: str) -> tuple[_Table, ...]:
        value = self.facts.pop(key, None)
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            return tuple(_Table(entry, f"{self.where}, {key}[{index}]") for index, entry in enumerate(value))
        self._refuse(key, f"one or more tables [[{key}]]", value)

    def check_empty(self) -> None:
        for key, value in self.facts.items():
            self._refuse(key, "no such key", value)

    def _refuse(self, key: str, expected: str, value: object) -> NoReturn:
        raise _unreadable(f"{self.where}, {key}", expected, "nothing" if value is None else repr(value))


def _read_cache(table: _Table) -> CacheLevel:
    level = CacheLevel(
        size_bytes=table.count("size_bytes"),
        line_bytes=table.count("line_bytes"),
        shared_by_cores=table.count("shared_by_cores"),
        bandwidth_bytes_per_cycle=table.number("bandwidth_bytes_per_cycle"),
    )
    table.check_empty()
    return level


def _check_instruction_set(spec: HardwareSpec, where: str) -> None:
    architecture = ARCHITECTURES.get(spec.triple.partition("-")[0])
    if architecture is None:
        raise _unreadable(f"{where}, triple", f"one of {', '.join(KERNEL_NAMES)} first", spec.triple)
    unknown = sorted(set(spec.features) - KERNEL_NAMES[architecture].keys())
    if unknown:
        raise _unreadable(f"{where}, features", "names listed in foretell/target/features.py", ", ".join(unknown))


def _text(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _parse(text: str, where: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(where, "TOML", str(error)) from error


def _unreadable(where: str, expected: str, got: str) -> UsageError:
    return UsageError(
        "the description of a CPU cannot be read",
        where=where,
        expected=expected,
        got=got,
        hint="the files in foretell/target/cpus are examples",
    )
