"""Frozen dataclasses with slots, for what is made by the hundred thousand.

Python's own store each field by its name, past the `__setattr__` that refuses; these know the slot already, which takes
half as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Made]) -> type[Made]:
    """As `dataclass(frozen=True, slots=True)`; no field is made by a factory."""
    made: Any = dataclass(frozen=True, slots=True)(cls)
    scope: dict[str, Any] = {f"set_{each.name}": slot_setter(made, each.name) for each in fields(made)}
    scope |= {f"default_{each.name}": each.default for each in fields(made)}
    parameters = ", ".join(_parameter(each) for each in fields(made))
    lines = [f"set_{each.name}(self, {each.name})" for each in fields(made)]
    lines += ["self.__post_init__()"] if hasattr(made, "__post_init__") else []
    exec(f"def __init__(self, {parameters}):\n " + "\n ".join(lines), scope)
    scope["__init__"].__qualname__ = f"{made.__qualname__}.__init__"
    made.__init__ = scope["__init__"]
    return made


def slot_setter(cls: type, name: str) -> Callable[[object, object], None]:
    """What stores into a slot of an object that refuses to be changed: for what is found when it is made, or later."""
    return getattr(cls, name).__set__


def _parameter(each: Field[Any]) -> str:
    assert each.default_factory is MISSING and each.init
    return each.name if each.default is MISSING else f"{each.name}=default_{each.name}"
