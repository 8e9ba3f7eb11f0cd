"""What stays in the caches, and what it takes to read it again; of any number of plans at once."""

from __future__ import annotations

from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from foretell.target.hardware_spec import HardwareSpec

Counts: TypeAlias = npt.NDArray[np.int64]
Amounts: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

WAY_BYTES = 4096
"""A way of the first cache is as large as a page: the place within one is known before its address is translated."""
TLB_PAGES = 64
"""Pages whose addresses are known without a search, on all cores that we know of."""
KEPT_SHARE = 0.6
"""The part of a cache that is still there when it is read again."""
LATER_SHARE = 0.75
"""The same of the caches after the first, which little else passes through."""


def cycles_from(spec: HardwareSpec, size_bytes: npt.ArrayLike, between_bytes: npt.ArrayLike) -> Amounts:
    """Cycles to read something again after so many bytes in all; what is still in the first cache is free."""
    size, between = np.asarray(size_bytes, np.float64), np.asarray(between_bytes, np.float64)
    found = size * spec.frequency_hz / spec.dram_core_bandwidth_bytes_per_s
    for level in reversed(spec.caches[1:]):
        found = np.where(between <= LATER_SHARE * level.size_bytes, size / level.bandwidth_bytes_per_cycle, found)
    return np.where(between <= KEPT_SHARE * spec.caches[0].size_bytes, 0.0, found)


def cycles_of_one(spec: HardwareSpec, size_bytes: float, between_bytes: float) -> float:
    """The same for one plan, which is asked for so often that arrays of one element would take too long."""
    if between_bytes <= KEPT_SHARE * spec.caches[0].size_bytes:
        return 0.0
    for level in spec.caches[1:]:
        if between_bytes <= LATER_SHARE * level.size_bytes:
            return size_bytes / level.bandwidth_bytes_per_cycle
    return size_bytes * spec.frequency_hz / spec.dram_core_bandwidth_bytes_per_s


def second_cache_bytes(spec: HardwareSpec) -> int:
    """Of the second cache, or of the only one."""
    return spec.caches[min(1, len(spec.caches) - 1)].size_bytes


def missed_rows(spec: HardwareSpec, rows: Counts, row_bytes: int) -> Counts:
    """Rows that push each other out of the first cache: those that lie at equal places of its ways."""
    ways = max(1, spec.caches[0].size_bytes // WAY_BYTES)
    places = WAY_BYTES // gcd(row_bytes, WAY_BYTES) if row_bytes else 1
    return np.where((row_bytes >= WAY_BYTES // ways) & (-(-rows // places) > ways), rows, 0)
