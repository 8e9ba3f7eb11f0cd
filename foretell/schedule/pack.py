"""Packing: an operand in the order in which a nest reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Buffer
from foretell.loops.nodes import Statement
from foretell.loops.plain_nests import Indices, map_accesses
from foretell.schedule.illegal import IllegalStep

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Part:
    """One dimension of a packed buffer: `index // divisor % modulus` of a dimension (no `%` if the modulus is 0)."""

    dimension: int
    divisor: int = 1
    modulus: int = 0

    def of(self, index: Dim) -> Dim:
        quotient = index // self.divisor
        return quotient % self.modulus if self.modulus else quotient

    def extent(self, whole: int) -> int:
        return self.modulus or ceil(whole / self.divisor)

    def __str__(self) -> str:
        text = f"{self.dimension}"
        text += f"/{self.divisor}" if self.divisor != 1 else ""
        return text + (f"%{self.modulus}" if self.modulus else "")


def packed_buffer(buffer: Buffer, parts: tuple[Part, ...]) -> Buffer:
    """The buffer that holds a packed operand; its name says how it is packed."""
    shape = tuple(part.extent(_whole(buffer, part.dimension)) for part in parts)
    order, sizes = ",".join(map(str, parts)), "x".join(map(str, shape))
    return replace(buffer, name=f"{buffer.name}[{order}:{sizes}]", shape=shape)


def _whole(buffer: Buffer, dimension: int) -> int:
    extent = buffer.shape[dimension]
    if not isinstance(extent, int):
        raise IllegalStep(f"dimension {dimension} of {buffer} is not known")
    return extent


def pack(nest: Statement, buffer: Buffer, parts: tuple[Part, ...]) -> Statement:
    """Read an operand from where `pack_array` puts it.

    before: w[8*k + j, c]      after: w'[k, c, j]      for parts 0/8, 1, 0%8
    """
    packed = packed_buffer(buffer, parts)

    def moved(source: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
        if source != buffer:
            return source, indices
        plain = [index for index in indices if isinstance(index, (int, expr.Expr))]
        if len(plain) != len(indices):
            raise IllegalStep(f"{buffer} is read at indices that come from data")
        return packed, tuple(part.of(plain[part.dimension]) for part in parts)

    return map_accesses(nest, moved)


def pack_array(array: Array, parts: tuple[Part, ...]) -> Array:
    """A constant as `pack` reads it; what a last block lacks is zero."""
    return np.ascontiguousarray(packed_view(array, parts))


def packed_view(array: Array, parts: tuple[Part, ...]) -> Array:
    """The same for those who copy it anyway: where no block lacks anything, nothing is moved yet."""
    axes: list[tuple[Part, ...]] = []
    for dimension, extent in enumerate(array.shape):
        own = sorted((part for part in parts if part.dimension == dimension), key=lambda part: -part.divisor)
        axes.append(tuple(own))
        whole = own[0].extent(extent) * own[0].divisor
        widths = [(0, whole - extent if number == dimension else 0) for number in range(array.ndim)]
        array = np.pad(array, widths) if whole != extent else array
    shape = [part.extent(array.shape[number]) for number, own in enumerate(axes) for part in own]
    flat = [part for own in axes for part in own]
    order = [flat.index(part) for part in parts]
    return array.reshape(shape).transpose(order)
