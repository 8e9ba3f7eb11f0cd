"""What stays in the caches, and what it takes to read it again; of any number of plans at once."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from foretell.target.hardware_spec import HardwareSpec

Counts: TypeAlias = npt.NDArray[np.int64]
Amounts: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

PAGE_BYTES = 4096
TLB_PAGES = 64
"""Pages whose addresses are known without a search, on all cores that we know of."""
KEPT_SHARE = 0.6
"""The part of a cache that is still there when it is read again."""
ALL_KEPT, NONE_KEPT = 0.6, 0.9
"""The same of the caches after the first, which little else passes through: shares up to which all is still there, and
from which on nothing is. In between a part of it is, because lines do not fall into all sets alike."""
SET_CYCLES = 16.0
"""Between two lines that come into the same set of the first cache, from the second; measured on Zen 4."""


def cycles_from(spec: HardwareSpec, size_bytes: npt.ArrayLike, between_bytes: npt.ArrayLike) -> Amounts:
    """Cycles to read something again after so many bytes in all; what is still in the first cache is free."""
    size, between = np.asarray(size_bytes, np.float64), np.asarray(between_bytes, np.float64)
    found = size * spec.frequency_hz / spec.dram_core_bandwidth_bytes_per_s
    for level in reversed(spec.caches[1:]):
        near = size / level.bandwidth_bytes_per_cycle
        found = near + np.clip((between / level.size_bytes - ALL_KEPT) / (NONE_KEPT - ALL_KEPT), 0.0, 1.0) * (
            found - near
        )
    return np.where(between <= KEPT_SHARE * spec.caches[0].size_bytes, 0.0, found)


def cycles_of_one(spec: HardwareSpec, size_bytes: float, between_bytes: float) -> float:
    """The same for one plan, which is asked for so often that arrays of one element would take too long."""
    if between_bytes <= KEPT_SHARE * spec.caches[0].size_bytes:
        return 0.0
    found = size_bytes * spec.frequency_hz / spec.dram_core_bandwidth_bytes_per_s
    for level in reversed(spec.caches[1:]):
        near = size_bytes / level.bandwidth_bytes_per_cycle
        found = near + missed_share(between_bytes, level.size_bytes) * (found - near)
    return found


def missed_share(between_bytes: float, cache_bytes: int) -> float:
    """The part of what was read that such a cache does not have any more after so many bytes in all."""
    return min(1.0, max(0.0, (between_bytes / cache_bytes - ALL_KEPT) / (NONE_KEPT - ALL_KEPT)))


def second_cache_bytes(spec: HardwareSpec) -> int:
    """Of the second cache, or of the only one."""
    return spec.caches[min(1, len(spec.caches) - 1)].size_bytes


def missed_rows(spec: HardwareSpec, rows: Counts, row_bytes: int) -> Counts:
    """Rows that push each other out of the first cache: those that lie at equal places of its ways."""
    first = spec.caches[0]
    places = first.way_bytes // gcd(row_bytes, first.way_bytes) if row_bytes else 1
    return np.where((row_bytes >= first.way_bytes // first.ways) & (-(-rows // places) > first.ways), rows, 0)


def crowded_cycles(spec: HardwareSpec, run_bytes: Counts, runs: Iterable[tuple[int, Counts]]) -> Amounts:
    """Cycles to read runs of lines again that push each other out of the first cache: pairs say how far apart runs
    are, in bytes, and how many there are. 0 where all find room.

    Lines whose distance is a multiple of a way fall into the same set, so that runs at distances with a large power of
    two in them share few sets, and have few ways each. Of more lines than ways some are missed, of twice as many all
    are; they come from the second cache, each set taking in one after the other.
    """
    first = spec.caches[0]
    each = -(-run_bytes // first.line_bytes)
    lines, places, step = each, np.ones_like(each), first.way_bytes
    for apart_bytes, count in runs:
        common = gcd(apart_bytes, first.way_bytes)
        lines, places, step = lines * count, places * np.minimum(count, first.way_bytes // common), gcd(step, common)
    sets = np.minimum(each * np.minimum(places, first.way_bytes // step), first.way_bytes // first.line_bytes)
    missed = lines * np.clip(lines / (sets * first.ways) - 1, 0, 1)
    return np.maximum(cycles_from(spec, missed * first.line_bytes, first.size_bytes), missed * SET_CYCLES / sets)
