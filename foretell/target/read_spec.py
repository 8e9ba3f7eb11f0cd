"""A spec file (TOML) -> `HardwareSpec`, and the CPUs that come with the package."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import resources
from typing import Any

from foretell.support.errors import UsageError
from foretell.target.hardware_spec import CacheLevel, HardwareSpec

MAY_BE_ZERO = {"vector_bytes"}


def read_spec(text: str, where: str) -> HardwareSpec:
    """Read one file. Every field of `HardwareSpec` is required and no other is allowed, except `aliases`."""
    facts = _parse(text, where)
    facts.pop("aliases", None)
    levels = facts.get("caches")
    if not (isinstance(levels, list) and levels and all(isinstance(level, dict) for level in levels)):
        raise _unreadable(f"{where}, caches", expected="a [[caches]] table for each level", got=repr(levels))
    caches = [_build(CacheLevel, level, f"{where}, caches[{index}]") for index, level in enumerate(levels)]
    spec = _build(HardwareSpec, {**facts, "caches": tuple(caches)}, where)
    assert isinstance(spec, HardwareSpec)
    return spec


@cache
def named_cpus() -> dict[str, HardwareSpec]:
    """Every CPU of the package by its name, in order of name."""
    specs = (read_spec(text, where) for where, text in _package_files().items())
    return {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.name)}


@cache
def cpu_aliases() -> dict[str, str]:
    """Other names -> the named CPU that has the same numbers, or stands for it as its nearest kin."""
    files = (_parse(text, where) for where, text in _package_files().items())
    return {alias: facts["name"] for facts in files for alias in facts.get("aliases", ())}


def _package_files() -> dict[str, str]:
    folder = resources.files("foretell.target").joinpath("cpus")
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".toml")}


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(where, expected="TOML", got=str(error)) from error


def _build(kind: type[HardwareSpec] | type[CacheLevel], facts: Mapping[str, Any], where: str) -> object:
    """Check names and values against the dataclass, and make one."""
    expected = {field.name: str(field.type) for field in fields(kind)}
    if facts.keys() != expected.keys():
        odd = sorted(facts.keys() ^ expected.keys())
        raise _unreadable(where, expected=f"the fields {', '.join(expected)}", got=f"missing or unknown: {', '.join(odd)}")
    return kind(**{name: _read_value(facts[name], expected[name], f"{where}, {name}") for name in expected})


def _read_value(value: object, annotation: str, where: str) -> object:
    match annotation, value:
        case ("int", int()) | ("float", int() | float()) if not isinstance(value, bool) and _in_range(value, where):
            return value
        case "str", str() if value:
            return value
        case "tuple[str, ...]", list() if all(isinstance(word, str) for word in value):
            return tuple(sorted(value))
        case "tuple[CacheLevel, ...]", tuple():
            return value
        case _:
            raise _unreadable(where, expected=f"a positive {annotation}", got=repr(value))


def _in_range(value: float, where: str) -> bool:
    return value > 0 or (value == 0 and where.endswith("vector_bytes"))
