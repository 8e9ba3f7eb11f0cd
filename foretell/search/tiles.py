"""Tiles of registers, and what a step of a sum takes in them: many tiles at once.

Multiply-adds and loads go on beside each other, each on ports of their own; the chain through one accumulator may take
longer than both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foretell.search.contraction import TileLoads, Window
from foretell.search.near_memory import Amounts, Counts
from foretell.target.hardware_spec import HardwareSpec

SPARE_REGISTERS = 1
"""Registers of a tile that hold neither sums nor the vectors they are made from: the element being broadcast."""
STRADDLING_LOADS = 1.5
"""What a vector counts as that begins anywhere in a line."""
OVERLAP_LOSS = 0.2
"""The part of computing, or of loading, that the longer of the two does not hide."""
MOST_ROWS = 28
MOST_VECTORS = 8


def tile_shapes(spec: HardwareSpec, rows: int, width: int, lanes: int) -> tuple[Counts, Counts]:
    """Rows and widths of every tile that fits the registers and is no larger than the output.

    Widths are whole vectors, or divide the output; narrow tiles come first, and of these those with few rows.
    """
    widths = np.arange(1, min(width, MOST_VECTORS * lanes) + 1)
    widths = widths[(width % widths == 0) | (widths % lanes == 0)]
    tall, wide = (each.ravel() for each in np.meshgrid(np.arange(1, min(rows, MOST_ROWS) + 1), widths, indexing="ij"))
    vectors = -(-wide // lanes)
    order = np.lexsort((wide, tall, vectors))
    order = order[((tall + 1) * vectors + SPARE_REGISTERS <= spec.vector_registers)[order]]
    return tall[order], wide[order]


def covered(
    tall: Counts, wide: Counts, rows: int | Counts, width: int, each: Callable[[Counts, Counts], Amounts | Counts]
) -> Amounts:
    """The sum of what each tile of the output has, by its rows and width: full tiles and tails."""
    total = np.zeros(len(tall))
    for count, row_part in ((rows // tall, tall), (rows % tall > 0, rows % tall)):
        for times, lane_part in ((width // wide, wide), (width % wide > 0, width % wide)):
            total += count * times * each(row_part, lane_part)
    return total


def tile_cycles(
    spec: HardwareSpec, rows: Counts, width: Counts, lanes: int, loads: TileLoads, loss: float = OVERLAP_LOSS
) -> Amounts:
    """Cycles that one step of the reduction takes at least.

    A whole vector may take longer to load than half of one, and an element for all of its lanes as long as a vector.
    What is packed for tiles of odd widths lies across lines.
    """
    vectors = -(-width // lanes)
    computing = rows * vectors / spec.fma_ports
    if loads.window is not None:
        loading = _window_loads(spec, rows, vectors, loads, loads.window) / spec.loads_per_cycle
        return overlapped(computing, loading, loss)
    across = loads.packed * vectors * np.where(vectors > 1, 1 - np.gcd(width, lanes) / lanes, 0.0)
    count = loads.by_row * rows + loads.by_vector * vectors + across + loads.by_both * rows * vectors
    per_cycle = np.where(2 * width <= lanes, spec.load_ports, spec.loads_per_cycle)
    return np.maximum(overlapped(computing, count / per_cycle, loss), float(spec.fma_latency_cycles))


def _window_loads(spec: HardwareSpec, rows: Counts, vectors: Counts, loads: TileLoads, window: Window) -> Amounts:
    """Loads of one step of a sum that is written out: rows share what they load as long as registers hold it.

    The operands that all rows share stay in registers too, and one tile overlaps with the next: no chain is waited for.
    """
    shared = window.shared + loads.by_vector * vectors
    carried = vectors * (rows - 1) * window.points // window.length
    is_held = rows * vectors + window.points * shared + carried <= spec.vector_registers
    distinct = np.where(is_held, window.distinct(rows) / window.length, rows)
    return STRADDLING_LOADS * loads.by_both * distinct * vectors + np.where(is_held, 0.0, shared)


def overlapped(one: Amounts, other: Amounts, loss: float = OVERLAP_LOSS) -> Amounts:
    """The time of two that go on beside each other."""
    return np.maximum(one, other) + loss * np.minimum(one, other)
