"""Command-line words to shapes and arrays; random arrays where none are given."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim, Sym, substitute, symbols
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import InputError, TensorTooLarge, UsageError
from foretell.support.limits import DEFAULT_LIMITS

Array: TypeAlias = npt.NDArray[Any]


class Value(Protocol):
    """An input of a graph, or of a compiled model."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[Dim, ...]: ...
    @property
    def type(self) -> TensorType: ...


def parse_shapes(words: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """["x=1x3x224x224", "scalar="] -> {"x": (1, 3, 224, 224), "scalar": ()}"""
    shapes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        dims = text.split("x") if text else []
        if not (name and equals and all(dim.isascii() and dim.isdigit() for dim in dims)):
            raise UsageError(
                "a shape cannot be read",
                where="--shape",
                expected="NAME=1x3x224x224",
                got=word,
                hint="give each input its own --shape, with every dimension a whole number",
            )
        shapes[name] = tuple(int(dim) for dim in dims)
    return shapes


def load_feeds(words: Iterable[str], inputs: Sequence[Value]) -> dict[str, Array]:
    """Read `NAME=file.npy`, `file.npy`, or `file.npz` with arrays by name.

    A single array without a name is the next input that has none.
    """
    paths: dict[str, str] = {}
    unnamed: list[str] = []
    feeds: dict[str, Array] = {}
    for word in words:
        name = next((value.name for value in inputs if word.startswith(f"{value.name}=")), None)
        if name is None and word.endswith(".npz"):
            feeds |= _load_archive(word, inputs)
        elif name is None:
            unnamed.append(word)
        else:
            paths[name] = word.removeprefix(f"{name}=")
    free = [value.name for value in inputs if value.name not in {*paths, *feeds}]
    if len(unnamed) > len(free):
        raise UsageError(
            f"{len(unnamed) + len(paths)} inputs are given to a model that has fewer",
            where="--input",
            expected=_listed(inputs),
            got=", ".join(unnamed[len(free) :]),
            hint="pass fewer, or name them: --input NAME=FILE.npy",
        )
    paths.update(zip(free, unnamed, strict=False))
    return feeds | {value.name: _load(paths[value.name], value) for value in inputs if value.name in paths}


def fill_feeds(
    feeds: dict[str, Array],
    inputs: Sequence[Value],
    seed: int,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    least: int = 1,
) -> dict[str, Array]:
    """Add random arrays for the other inputs.

    A free dimension agrees with the given arrays, else with the shapes, else it is the smallest from `least` on.
    """
    sizes: dict[Sym, Dim] = {}
    given = dict(shapes or {}) | {name: array.shape for name, array in feeds.items()}
    for value in inputs:
        if value.name in given:
            pairs = zip(value.shape, given[value.name], strict=False)
            sizes.update({dim: size for dim, size in pairs if isinstance(dim, Sym)})
    for value in inputs:
        for dim in value.shape:
            for symbol in symbols(dim):
                sizes.setdefault(symbol, _smallest(symbol, least))
    generator = np.random.default_rng(seed)
    filled: dict[str, Array] = {}
    for value in inputs:
        shape = tuple(substitute(dim, sizes) for dim in value.shape)
        filled[value.name] = feeds[value.name] if value.name in feeds else _random(value, shape, generator)
    return filled


def _smallest(symbol: Sym, least: int) -> int:
    """What a symbol may stand for, at least so much if that is allowed."""
    wanted = max(symbol.lo, least) if symbol.hi is None else min(max(symbol.lo, least), symbol.hi)
    return -(-wanted // symbol.multiple_of) * symbol.multiple_of


def _load_archive(path: str, inputs: Sequence[Value]) -> dict[str, Array]:
    """All arrays of a .npz, each of which must be an input."""
    by_name = {value.name: value for value in inputs}
    try:
        with zipfile.ZipFile(path) as archive:
            size_bytes = sum(entry.file_size for entry in archive.infolist())
        if size_bytes > DEFAULT_LIMITS.file_bytes:
            raise ValueError(f"{size_bytes} bytes when unpacked")
        with np.load(path, allow_pickle=False) as archive:
            unknown = sorted(set(archive.files) - set(by_name))
            arrays = {} if unknown else {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, "--input", f"a .npz file of {_listed(inputs)}", error) from error
    if unknown:
        raise InputError(
            f"{path} holds arrays that are no inputs",
            where="--input",
            expected=_listed(inputs),
            got=", ".join(unknown),
            hint="save it with numpy.savez(FILE, NAME=array, ...)",
        )
    return {name: _as_stored(array, by_name[name]) for name, array in arrays.items()}


def _load(path: str, value: Value) -> Array:
    try:
        # Mapping checks the size the header claims against the file before anything is allocated.
        array = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise _unreadable(path, f"--input {value.name}", f"a .npy file of {value.type}", error) from error
    return _as_stored(array, value)


def _unreadable(path: str, where: str, expected: str, error: Exception) -> InputError:
    return InputError(
        f"{path} cannot be read: {error}",
        where=where,
        expected=expected,
        got="something else",
        hint="save the array with numpy.save, without objects",
    )


def _as_stored(array: Array, value: Value) -> Array:
    return array.view(value.dtype.numpy) if _is_nameless(array.dtype, value.dtype) else array


def _is_nameless(found: np.dtype[np.generic], wanted: DType) -> bool:
    """numpy.save writes the dtypes of ml-dtypes as plain bytes."""
    return found.kind == "V" and found.itemsize == wanted.numpy.itemsize


def _random(value: Value, shape: tuple[Dim, ...], generator: np.random.Generator) -> Array:
    """Standard normal floats; zeros and ones for everything else, which are valid as indices and masks."""
    dims = tuple(dim for dim in shape if isinstance(dim, int))
    assert len(dims) == len(shape), f"{value} has free dimensions"
    size_bytes = prod(dims) * value.dtype.itemsize
    if size_bytes > DEFAULT_LIMITS.tensor_bytes:
        raise TensorTooLarge(
            "a random input would be too large",
            where=f"input {value.name}",
            expected=f"at most {DEFAULT_LIMITS.tensor_bytes} bytes",
            got=f"{size_bytes} bytes",
            hint="pass the array with --input",
        )
    drawn = generator.standard_normal(dims, np.float32) if value.dtype.is_float else generator.integers(0, 2, dims)
    return np.asarray(drawn).astype(value.dtype.numpy)


def sizes_line(feeds: Mapping[str, Array]) -> str:
    """The shapes of inputs in a few words: "image 1x3x224x224, scale 1"."""
    return ", ".join(f"{name} {'x'.join(map(str, array.shape)) or 'scalar'}" for name, array in feeds.items())


def _listed(inputs: Sequence[Value]) -> str:
    return ", ".join(f"{value.name}: {value.type}" for value in inputs) or "no inputs"
