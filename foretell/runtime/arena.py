"""Planning memory: tensors whose lives do not overlap share addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGNMENT = 64


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """An array whose first element begins a cache line, so that no vector store straddles two."""
    count = math.prod(shape) * dtype.itemsize
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + count].view(dtype).reshape(shape)


@dataclass(frozen=True, slots=True)
class Arena:
    """Byte offsets of tensors, and the bytes that hold them all."""

    offsets: Mapping[int, int]
    total_bytes: int


def lifetimes(kernels: Sequence[tuple[Sequence[int], Sequence[int]]]) -> dict[int, tuple[int, int]]:
    """(first write, last use) of every tensor that a kernel writes, counted in kernels."""
    lives: dict[int, tuple[int, int]] = {}
    for time, (writes, reads) in enumerate(kernels):
        for slot in writes:
            first, _ = lives.get(slot, (time, time))
            lives[slot] = (first, time)
        for slot in reads:
            if slot in lives:
                lives[slot] = (lives[slot][0], time)
    return lives


def plan_arena(lives: Mapping[int, tuple[int, int]], sizes: Mapping[int, int]) -> Arena:
    """Offsets by first fit, largest first: simple, deterministic, and near the optimum for networks."""
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, int, int]] = []
    total = 0
    for slot in sorted(sizes, key=lambda slot: (-sizes[slot], lives[slot], slot)):
        first, last = lives[slot]
        size = -(-max(1, sizes[slot]) // ALIGNMENT) * ALIGNMENT
        offset = 0
        for start, end, other_first, other_last in sorted(placed):
            if other_last < first or last < other_first or end <= offset:
                continue
            if start >= offset + size:
                break
            offset = end
        offsets[slot] = offset
        placed.append((offset, offset + size, first, last))
        total = max(total, offset + size)
    return Arena(offsets, total)
