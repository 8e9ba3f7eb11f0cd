"""Tiles of registers, and what a step of a sum takes in them: many tiles at once.

Multiply-adds and loads go on beside each other, each on ports of their own; the chain through one accumulator may take
longer than both.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import gcd, inf

import numpy as np

from foretell.search.contraction import TileLoads, Window
from foretell.search.near_memory import Amounts, Counts
from foretell.target.hardware_spec import HardwareSpec, suits_half_vectors
from foretell.target.instructions import reorder_buffer

MASKED_LOADS = 1.5
"""What a vector counts as that is not full."""
ROWS_AHEAD = 2
"""How many times the sums that are added to at a time a core finds ahead of them; measured on Emerald Rapids."""
OVERLAP_LOSS = 0.2
"""The part of computing, or of reading from the caches, that the longer of the two does not hide."""
HALF_TIME = 0.55
"""What half a vector takes of the time of a full one, where units are half as wide: two are two instructions."""
CHAIN_SHARE = 0.5
"""The part of a chain that counts among what goes on beside the longest, where the chain is as long as that."""
CHAIN_POWER = 3
"""It goes with this power of the chain's length over the longest: with half as much again to do nothing waits."""
STEP_INSTRUCTIONS = 1.5
"""Those of a step of the sum besides multiply-adds: loads that these do not do themselves, and a part of the loop."""
BROADCAST_CYCLES = 1.0
"""Broadcasting an element into a register that takes two passes, where multiply-adds and additions take all ports;
measured on Zen 4. As a part of another instruction it costs nothing, and nothing but a load where one pass will do."""
MOST_ROWS = 28
MOST_VECTORS = 8
PLAIN = TileLoads(1, 1, 0)
"""Of a sum of products of an element of a row and a vector."""


def tile_shapes(
    spec: HardwareSpec, rows: int, width: int, lanes: int, loads: TileLoads = PLAIN
) -> tuple[Counts, Counts]:
    """Rows and widths of every tile that fits the registers and is no larger than the output.

    Widths are whole vectors, or divide the output; narrow tiles come first, and of these those with few rows.
    """
    widths = np.arange(1, min(width, MOST_VECTORS * lanes) + 1)
    widths = widths[(width % widths == 0) | (widths % lanes == 0)]
    tall, wide = (each.ravel() for each in np.meshgrid(np.arange(1, min(rows, MOST_ROWS) + 1), widths, indexing="ij"))
    vectors, _ = row_vectors(spec, wide, lanes)
    order = np.lexsort((wide, tall, vectors))
    order = order[((tall + loads.held) * vectors + loads.spare <= spec.vector_registers)[order]]
    return tall[order], wide[order]


def row_vectors(spec: HardwareSpec, width: Counts, lanes: int) -> tuple[Counts, Counts]:
    """Vectors of a row of a tile, and the lanes of each."""
    is_halved = suits_half_vectors(width, lanes, lanes * spec.unit_bytes // max(1, spec.vector_bytes))
    each = np.where(is_halved, lanes // 2, lanes)
    return -(-width // each), each


def covered(
    tall: Counts, wide: Counts, rows: int | Counts, width: int, each: Callable[[Counts, Counts], Amounts | Counts]
) -> Amounts:
    """The sum of what each tile of the output has, by its rows and width: full tiles and tails."""
    in_rows = ((rows // tall, tall), (rows % tall > 0, rows % tall))
    in_lanes = ((width // wide, wide), (width % wide > 0, width % wide))
    parts = list(product(in_rows, in_lanes))
    all_rows = np.concatenate([row_part for (_, row_part), _ in parts])
    found = each(all_rows, np.concatenate([lane_part for _, (_, lane_part) in parts]))
    total: Amounts = np.zeros(len(tall))
    for number, ((count, _), (times, _)) in enumerate(parts):
        total = total + count * times * found[..., number * len(tall) : (number + 1) * len(tall)]
    return total


def tile_cycles(
    spec: HardwareSpec, rows: Counts, width: Counts, lanes: int, loads: TileLoads, steps: float = inf
) -> Amounts:
    """Cycles that one of so many steps of the reduction takes at least; and those of the shorter of multiplying and
    loading, which go on beside the longer, and of chains that leave no room for delays.

    A whole vector may take longer to load than half of one, and an element for all of its lanes takes as long as what
    passes through a unit. What is packed for tiles of odd widths lies across lines. Chains of tiles that are over soon
    overlap.
    """
    vectors, each = row_vectors(spec, width, lanes)
    share = np.where(each < lanes, HALF_TIME, 1.0)
    computing = rows * (vectors * share * _computing(spec, loads) + _broadcasting(spec, loads, vectors))
    if loads.window is not None:
        loading = share * _window_loads(spec, rows, width, vectors, each, loads, loads.window) / spec.loads_per_cycle
        longer, chain = np.maximum(computing, loading), _window_chain(spec, rows, loads.window)
        return np.stack([np.maximum(longer, chain), np.minimum(computing, loading)])
    across = loads.packed * vectors * np.where(vectors > 1, 1 - np.gcd(width, each) / each, 0.0)
    elements = loads.by_row * rows * (spec.unit_bytes / max(1, spec.vector_bytes))
    count = elements + share * (loads.by_vector * vectors + across + loads.by_both * rows * vectors)
    loading = count / np.where(2 * width <= lanes, spec.load_ports, spec.loads_per_cycle)
    chain = spec.fma_latency_cycles / _in_flight(spec, rows * vectors, steps)
    longest = np.maximum(np.maximum(computing, loading), chain)
    waiting = CHAIN_SHARE * chain * (chain / longest) ** CHAIN_POWER
    return np.stack([longest, np.minimum(computing, loading) + waiting])


def _computing(spec: HardwareSpec, loads: TileLoads) -> float:
    """Cycles of a vector of one row: additions have ports of their own, or take those of multiply-adds."""
    if spec.add_ports:
        return max(loads.products / spec.fma_ports, loads.additions / spec.add_ports)
    return (loads.products + loads.additions) / spec.fma_ports


def _broadcasting(spec: HardwareSpec, loads: TileLoads, vectors: Counts) -> Amounts:
    """Cycles of the elements of one row: what several vectors add to is broadcast into a register first."""
    if spec.unit_bytes >= spec.vector_bytes:
        return np.zeros(len(vectors))
    return np.where((vectors > 1) & (loads.additions > 0), BROADCAST_CYCLES * loads.by_row, 0.0)


def _in_flight(spec: HardwareSpec, sums: Counts, steps: float) -> Amounts:
    """Tiles whose sums a core adds to at the same time: as many as fit the window of instructions it looks ahead."""
    return np.maximum(1.0, reorder_buffer(spec.name) / (steps * (sums + STEP_INSTRUCTIONS)))


def _window_loads(
    spec: HardwareSpec, rows: Counts, width: Counts, vectors: Counts, each: Counts, loads: TileLoads, window: Window
) -> Amounts:
    """Loads of one step of a sum that is written out: neighbouring rows share what they load.

    Operands that all rows share stay in registers as far as there is room beside the sums and one vector of each
    column; the others are loaded for every multiply-add.
    """
    shared = window.points * np.maximum(1.0, window.shared + loads.by_vector * vectors)
    room = np.clip(spec.vector_registers - (rows + 1) * vectors, 0, shared)
    filled = vectors + (MASKED_LOADS - 1) * (width % each > 0)
    distinct = window.distinct(rows) / window.length
    reloaded = (window.shared + loads.by_vector) * rows * vectors * (1 - room / shared)
    return _lines_touched(spec, window.grain_bytes) * loads.by_both * distinct * filled + reloaded


def _window_chain(spec: HardwareSpec, rows: Counts, window: Window) -> Amounts:
    """Cycles of one step in which what rows load is used by all of them at once (`codegen/shared_loads.py`): only
    sums of so many rows are added to at a time, and of those that the core finds ahead."""
    if window.length == 1:
        return np.zeros(len(rows))
    together = np.clip(rows, 1, -(-window.length // window.step))
    return rows * spec.fma_latency_cycles / (ROWS_AHEAD * together)


def _lines_touched(spec: HardwareSpec, grain_bytes: int) -> float:
    """What a vector counts as that begins at any multiple of so many bytes: most of the long ones lie in two lines."""
    line_bytes = spec.caches[0].line_bytes
    return 1 + max(0, spec.unit_bytes - gcd(grain_bytes, line_bytes)) / line_bytes


def overlapped(one: Amounts | float, other: Amounts | float, loss: float = OVERLAP_LOSS) -> Amounts:
    """The time of two that go on beside each other."""
    return np.maximum(one, other) + loss * np.minimum(one, other)
