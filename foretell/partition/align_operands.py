"""Whether the caller's operand of a product is worth a copy that begins at a line of the cache.

Slabs that tiles read of it touch one line more in each step of the sum, which counts where they do not stay in the
first cache; the copy is read and written once. Narrow tiles gain most: their steps are short.
"""

from __future__ import annotations

from foretell.loops.transpose_operands import Unaligned
from foretell.partition.group_cost import WRITING
from foretell.search.near_memory import cycles_from, cycles_of_one
from foretell.search.product_cost import FastestTile, fastest_tile
from foretell.search.tiles import overlapped
from foretell.target.hardware_spec import HardwareSpec

CLEAR_GAIN = 0.98
"""A copy must be predicted to leave less than this fraction of the time."""


def is_worth_aligning(operand: Unaligned, spec: HardwareSpec) -> bool:
    """Whether a product and the copy that it reads should take clearly less than the product alone."""
    tile = fastest_tile(spec, operand.rows, operand.width, operand.bits)
    as_it_is = operand.batch * _cycles(operand, tile, spec, spec.caches[0].line_bytes)
    aligned = operand.batch * _cycles(operand, tile, spec, 0)
    return aligned + _copying(operand, spec) < CLEAR_GAIN * as_it_is


def _cycles(operand: Unaligned, tile: FastestTile, spec: HardwareSpec, more_bytes: int) -> float:
    """Of one core for the product, if each step of the sum reads more than its vectors."""
    element_bytes = operand.bits // 8
    slab_bytes = operand.length * (tile.width * element_bytes + more_bytes)
    touched_bytes = slab_bytes + operand.length * tile.rows * element_bytes
    reading = tile.count * cycles_from(spec, slab_bytes, touched_bytes)
    return float(overlapped(operand.length * tile.step_cycles, reading))


def _copying(operand: Unaligned, spec: HardwareSpec) -> float:
    """Reading all of it and writing it elsewhere, and waiting for that: the mean of one core and all, as of kernels."""
    moving = (1 + WRITING) * cycles_of_one(spec, operand.size_bytes, operand.size_bytes)
    return spec.coefficients.between * moving + spec.cores * spec.barrier_cost_s * spec.frequency_hz / 2
