"""Where results go: arrays of the caller's where they fit and are safe to write to, else arrays of our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from foretell.ir.dtypes import DType
from foretell.runtime.arena import aligned_empty
from foretell.runtime.check_inputs import Array
from foretell.support.errors import InputError


def check_output_names(given: Iterable[str], names: Sequence[str]) -> None:
    """Raise `InputError` unless every name given is that of an output."""
    for name in given:
        if name not in names:
            raise InputError(
                f"the model has no output {name!r}", expected=", ".join(names), got=name, hint="check the name"
            )


def output_array(
    name: str, dtype: DType, shape: tuple[int, ...], out: Mapping[str, Array], others: Iterable[Array]
) -> Array:
    """What a kernel writes an output to. It must not overlap what kernels read or write besides: they rely on that."""
    given = out.get(name)
    if given is None:
        return aligned_empty(shape, dtype.numpy)
    check_fits(name, dtype, shape, given)
    if not given.flags.aligned or any(np.may_share_memory(given, other) for other in others):
        return aligned_empty(shape, dtype.numpy)
    return given


def check_fits(name: str, dtype: DType, shape: tuple[int, ...], given: Array) -> None:
    """Raise `InputError` unless the output can be copied into the array as it is."""
    fits = isinstance(given, np.ndarray) and given.dtype == dtype.numpy and given.shape == shape
    if not fits or not given.flags.c_contiguous or not given.flags.writeable:
        raise InputError(
            f"out[{name!r}] does not fit",
            expected=f"a writable contiguous array {dtype}{list(shape)}",
            got=f"{given.dtype}{list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__,
            hint="pass an array of that type, or leave it out",
        )


def deliver(
    names: Sequence[str], types: Sequence[DType], results: Sequence[Array], out: Mapping[str, Array]
) -> list[Array]:
    """The results, copied where the caller wants them elsewhere, or where two outputs are one array."""
    delivered: list[Array] = []
    for name, dtype, result in zip(names, types, results, strict=True):
        given = out.get(name)
        if given is not None and given is not result:
            check_fits(name, dtype, result.shape, given)
            given[...] = result
            result = given
        elif given is None and any(result is other for other in delivered):
            result = result.copy()
        delivered.append(result)
    return delivered
