"""Tiles of registers, and what a step of a sum costs in them.

That is the greatest of three: multiply-adds against their ports, loads against theirs, and the chain through one
accumulator. All functions take many tiles at once.
"""

from __future__ import annotations

import numpy as np

from foretell.search.contraction import TileLoads, Window
from foretell.search.near_memory import Amounts, Counts, missed_rows
from foretell.target.hardware_spec import HardwareSpec

SPARE_REGISTERS = 1
"""Registers of a tile that hold neither sums nor the vectors they are made from: the element being broadcast."""
STRADDLING_LOADS = 1.5
"""What a vector counts as that begins anywhere in a line."""
STEP_CYCLES = 0.5
"""What a step of the sum loses to its loop, whatever the tile: large ones lose less."""
CONFLICT_CYCLES = 0.3
"""What a step of the sum waits for each row that was pushed out of the first cache; measured on Ice Lake."""
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


def covering_cycles(
    spec: HardwareSpec, tall: Counts, wide: Counts, rows: int, width: int, lanes: int, loads: TileLoads
) -> Amounts:
    """Cycles per step of the reduction to cover the whole output with each tile: full tiles and tails."""
    total = np.zeros(len(tall))
    for count, row_part in ((rows // tall, tall), (rows % tall > 0, rows % tall)):
        for times, lane_part in ((width // wide, wide), (width % wide > 0, width % wide)):
            total += count * times * tile_cycles(spec, row_part, -(-lane_part // lanes), loads)
    return total


def tile_cycles(spec: HardwareSpec, rows: Counts, vectors: Counts, loads: TileLoads) -> Amounts:
    """Cycles of one step of the reduction."""
    if loads.window is not None:
        return _window_cycles(spec, rows, vectors, loads, loads.window)
    count = loads.by_row * rows + loads.by_vector * vectors + loads.by_both * rows * vectors
    bound = np.maximum(rows * vectors / spec.fma_ports, count / spec.loads_per_cycle)
    cycles = np.maximum(bound, float(spec.fma_latency_cycles)) + STEP_CYCLES
    return cycles + loads.by_row * missed_rows(spec, rows, loads.row_bytes) * CONFLICT_CYCLES


def _window_cycles(spec: HardwareSpec, rows: Counts, vectors: Counts, loads: TileLoads, window: Window) -> Amounts:
    """Cycles of one step of a sum that is written out: rows share what they load as long as registers hold it.

    The operands that all rows share stay in registers too, and one tile overlaps with the next: no chain is waited for.
    """
    shared = window.shared + loads.by_vector * vectors
    carried = vectors * (rows - 1) * window.points // window.length
    is_held = rows * vectors + window.points * shared + carried <= spec.vector_registers
    distinct = np.where(is_held, window.distinct(rows) / window.length, rows)
    count = STRADDLING_LOADS * loads.by_both * distinct * vectors + np.where(is_held, 0.0, shared)
    return np.maximum(rows * vectors / spec.fma_ports, count / spec.loads_per_cycle)
