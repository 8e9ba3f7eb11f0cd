"""Planning memory: tensors whose lives do not overlap share addresses."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ALIGNMENT = 64
HUGE_PAGE_BYTES = 2 << 20


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    """An array whose first element begins a cache line, so that no vector store straddles two."""
    count = math.prod(shape) * dtype.itemsize
    raw = np.empty(count + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + count].view(dtype).reshape(shape)


def large_empty(size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Bytes for long use, in huge pages where the system has them: walks through a matrix touch many pages at once."""
    if size_bytes < HUGE_PAGE_BYTES // 2 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned_empty((size_bytes,), np.dtype(np.uint8))
    whole = -(-size_bytes // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    pages = mmap.mmap(-1, whole + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(pages, np.uint8)
    start = -raw.__array_interface__["data"][0] % HUGE_PAGE_BYTES
    return raw[start : start + size_bytes]


def gathered(arrays: Mapping[int, np.ndarray[Any, np.dtype[Any]]]) -> dict[int, np.ndarray[Any, np.dtype[Any]]]:
    """Copies of arrays, one after the other in one block of memory."""
    starts: dict[int, int] = {}
    total = 0
    for key, array in arrays.items():
        starts[key] = total
        total += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    block = large_empty(total)
    copies = {
        key: block[starts[key] : starts[key] + array.nbytes].view(array.dtype).reshape(array.shape)
        for key, array in arrays.items()
    }
    for key, copy in copies.items():
        copy[...] = arrays[key]
        copy.flags.writeable = False
    return copies


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
