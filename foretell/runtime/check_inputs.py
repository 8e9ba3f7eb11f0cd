"""What callers pass, checked: names, element types, ranks, dimensions; and where kernels can read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.runtime.program import Check, Slot
from foretell.support.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]


def named_inputs(names: Sequence[str], arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by name, where some were passed by position."""
    if len(arrays) > len(names):
        raise InputError(
            "too many inputs", expected=str(len(names)), got=str(len(arrays)), hint=f"the inputs are {', '.join(names)}"
        )
    for name in names[: len(arrays)]:
        if name in named:
            raise InputError(
                f"input {name!r} is given twice", expected="it by position or by name", got="both", hint="leave one out"
            )
    return dict(zip(names, arrays, strict=False)) | dict(named)


def check_names(given: Iterable[str], names: Sequence[str]) -> None:
    """Raise `InputError` unless every name given is that of an input."""
    for name in given:
        if name not in names:
            raise InputError(
                f"the model has no input {name!r}", expected=", ".join(names), got=name, hint="check the name"
            )


def checked_input(slot: Slot, feeds: Mapping[str, Any]) -> Array:
    """The array for an input, of the right type and rank."""
    if slot.name not in feeds:
        raise InputError(
            f"input {slot.name!r} is missing",
            expected=f"{slot.name}: {slot.dtype}[{', '.join(map(str, slot.shape))}]",
            got=", ".join(map(str, feeds)) or "nothing",
            hint="pass one array for every input of the model",
        )
    array = _as_array(feeds[slot.name])
    if array.dtype != slot.dtype.numpy or array.ndim != len(slot.shape):
        raise InputError(
            f"input {slot.name!r} has the wrong type",
            expected=f"{slot.dtype}[{', '.join(map(str, slot.shape))}]",
            got=f"{array.dtype}{list(array.shape)}",
            hint=f"convert it, for example with .astype({slot.dtype.numpy.name!r})",
        )
    return aligned(array)


def checked_in_place(name: str, value: Any) -> Array:
    """The array itself, if kernels can read it where it is; else an `InputError`."""
    array = _as_array(value) if hasattr(value, "__dlpack__") else None
    if array is None or aligned(array) is not array:
        raise InputError(
            f"input {name!r} cannot be bound",
            expected="an aligned C-contiguous array",
            got=type(value).__name__ if array is None else f"strides {array.strides} of shape {array.shape}",
            hint="bind np.ascontiguousarray(x) and copy into it before each call",
        )
    return array


def bind_shape(slot: Slot, shape: tuple[int, ...], symbols: dict[Sym, int]) -> None:
    """Bind the symbols of a slot's shape to the dimensions of a tensor, or raise `InputError` if they disagree."""
    for dim, extent in zip(slot.shape, shape, strict=True):
        expected = symbols.setdefault(dim, extent) if isinstance(dim, Sym) else expr.substitute(dim, symbols)
        if (isinstance(expected, int) and expected != extent) or (isinstance(dim, Sym) and not _allows(dim, extent)):
            raise InputError(
                f"the shape of {slot.name!r} disagrees with the model",
                expected=f"[{', '.join(map(str, slot.shape))}]",
                got=str(list(shape)),
                hint="dimensions of one name must be equal in all inputs",
            )


def _allows(symbol: Sym, extent: int) -> bool:
    """Whether a symbol may stand for this number."""
    inside = symbol.lo <= extent and (symbol.hi is None or extent <= symbol.hi)
    return inside and extent % symbol.multiple_of == 0


def check_dimensions(checks: Iterable[Check], symbols: Mapping[Sym, int]) -> None:
    """Raise `InputError` if dimensions are not what kernels rely on; checks of unknown symbols are left for later."""
    for check in checks:
        value = expr.substitute(check.value, dict(symbols))
        if isinstance(value, int) and value < 0:
            sizes = sorted(f"{symbol} = {symbols[symbol]}" for symbol in expr.symbols(check.value))
            raise InputError(
                "dimensions of the inputs do not fit together",
                where=check.where,
                expected=f"{check.value} >= 0",
                got=", ".join(sizes),
                hint="pass inputs of shapes that fit, or compile the model for these: shapes={...}",
            )


def aligned(array: Array) -> Array:
    """The array itself if kernels can read it in place, else a contiguous aligned copy."""
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C")


def _as_array(value: Any) -> Array:
    """Anything with the array interface, the buffer protocol or DLPack."""
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return np.asarray(value)
