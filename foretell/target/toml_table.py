"""The files that describe CPUs (TOML), read key by key."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from typing import NoReturn

from foretell.support.errors import UsageError


class TomlTable:
    """One table of a file, taken key by key; what is missing, unknown or impossible is a `UsageError` that names it."""

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

    def count(self, key: str, *, least: int = 1, default: int | None = None) -> int:
        value = self.facts.pop(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self._refuse(key, f"a whole number, at least {least}", value)

    def number(self, key: str) -> float:
        value = self.facts.pop(key, None)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        self._refuse(key, "a positive number", value)

    def amount(self, key: str, default: float) -> float:
        value = self.facts.pop(key, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
            return float(value)
        self._refuse(key, "a number, at least 0", value)

    def tables(self, key: str) -> tuple[TomlTable, ...]:
        value = self.facts.pop(key, None)
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            return tuple(TomlTable(entry, f"{self.where}, {key}[{index}]") for index, entry in enumerate(value))
        self._refuse(key, f"one or more tables [[{key}]]", value)

    def table(self, key: str, default: dict[str, object] | None = None) -> TomlTable:
        value = self.facts.pop(key, default)
        if isinstance(value, dict):
            return TomlTable(value, f"{self.where}, {key}")
        self._refuse(key, f"a table [{key}]", value)

    def check_empty(self) -> None:
        for key, value in self.facts.items():
            self._refuse(key, "no such key", value)

    def _refuse(self, key: str, expected: str, value: object) -> NoReturn:
        raise unreadable(f"{self.where}, {key}", expected, "nothing" if value is None else repr(value))


def parse_table(text: str, where: str) -> TomlTable:
    """The outermost table of a file; `where` names it in errors."""
    try:
        return TomlTable(tomllib.loads(text), where)
    except tomllib.TOMLDecodeError as error:
        raise unreadable(where, "TOML", str(error)) from error


def unreadable(where: str, expected: str, got: str) -> UsageError:
    """The error for a file, or a key of it, that is not as expected."""
    return UsageError(
        "the description of a CPU cannot be read",
        where=where,
        expected=expected,
        got=got,
        hint="the files in foretell/target/cpus are examples",
    )
