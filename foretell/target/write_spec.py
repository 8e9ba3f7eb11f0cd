"""`HardwareSpec` -> a spec file (TOML) that `read_spec` reads back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields

from foretell.target.hardware_spec import CacheLevel, Coefficients, HardwareSpec


def write_spec(spec: HardwareSpec, *, heading: Iterable[str] = (), notes: Mapping[str, str] | None = None) -> str:
    """The text of the file: lines of comment, then every field, with its note behind it.

    A note is found by the field's name, or by `caches[0].bandwidth_bytes_per_cycle`.
    """
    found = notes or {}
    lines = [f"# {line}" for line in heading]
    for field in fields(HardwareSpec):
        if field.name not in ("caches", "coefficients"):
            lines.append(_line(field.name, getattr(spec, field.name), found.get(field.name)))
    for index, level in enumerate(spec.caches):
        lines += ["", "[[caches]]"]
        for field in fields(CacheLevel):
            lines.append(_line(field.name, getattr(level, field.name), found.get(f"caches[{index}].{field.name}")))
    lines += ["", *coefficient_lines(spec.coefficients)]
    return "\n".join(lines) + "\n"


def coefficient_lines(coefficients: Coefficients) -> list[str]:
    """The table of coefficients by itself, as a file has it."""
    numbers = {field.name: getattr(coefficients, field.name) for field in fields(Coefficients)}
    return ["[coefficients]", *(_line(name, number, None) for name, number in numbers.items())]


def _line(name: str, value: str | tuple[str, ...] | float, note: str | None) -> str:
    """JSON writes words, lists of them and numbers as TOML does."""
    return f"{name} = {json.dumps(value)}" + (f"  # {note}" if note else "")
