"""Plans for a sum of products: tiles of registers, and blocks for the caches.

    for blocks of rows: for tiles of vectors: for blocks of the sum: for tiles of rows:
        acc = so far;  for the block of the sum: acc[row, lane] += a[row] * b[lane];  out = f(acc)

All plans of a nest are made together, as columns of numbers, because all are compared (`plan_terms.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod

import numpy as np

from foretell.ir.tensor_expr import Buffer
from foretell.loops.axes import stride_along
from foretell.schedule.block_sum import PARTIAL_BYTES
from foretell.schedule.copy_operand import COPY_BYTES, LINE_BYTES
from foretell.search.contraction import Panel, Problem, is_batch, uses
from foretell.search.near_memory import (
    KEPT_SHARE,
    PAGE_BYTES,
    TLB_PAGES,
    Amounts,
    Counts,
    Flags,
    crowded_cycles,
    second_cache_bytes,
)
from foretell.search.tiles import tile_shapes
from foretell.target.hardware_spec import HardwareSpec

BLOCK_SHARE = 0.6
"""The part of the second cache for two slabs of a block of a sum and the rows that go with them."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of a tile and elements of its vectors."""

    rows: int
    width: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A tile, and the block of rows that runs through all tiles of the vectors before the next block does.

    With no `block_loop` the block is the whole output: every tile of the vectors meets all rows in turn.
    """

    shape: TileShape
    block_loop: str | None = None
    block: int = 1
    """Iterations of that loop in a block."""
    sum_block: int = 0
    """Iterations of the innermost reduction that all tiles of a block go through before the next; 0 for all at once."""
    copies: bool = False
    """Whether the vectors of a tile are copied side by side before its rows go through them."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans of one nest, a column for each of their fields."""

    outer_loop: str | None
    """The last of the loops around rows and vectors."""
    row_loop: str | None
    rows: Counts
    width: Counts
    block: Counts
    """Iterations of `outer_loop` in a block; 0 for all of it."""
    block_rows: Counts
    """Rows in a block; 0 for all."""
    sum_block: Counts
    copies: Flags

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Plan:
        shape, sum_block = TileShape(int(self.rows[number]), int(self.width[number])), int(self.sum_block[number])
        loop, size = self._block_of(shape.rows, int(self.block[number]), int(self.block_rows[number]))
        return Plan(shape, loop, size, sum_block, bool(self.copies[number]))

    def _block_of(self, rows: int, block: int, block_rows: int) -> tuple[str | None, int]:
        """A block of rows is one of tiles if these divide it."""
        if block_rows:
            return (self.row_loop, block_rows) if block_rows % rows else (f"{self.row_loop}.o", block_rows // rows)
        return (self.outer_loop, block) if block else (None, 1)

    def take(self, numbers: Counts | Flags) -> Plans:
        """Some of them, in the order asked for."""
        return replace(self, **{name: getattr(self, name)[numbers] for name in COLUMNS})

    def __add__(self, others: Plans) -> Plans:
        """These and others of the same nest."""
        return replace(self, **{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in COLUMNS})


COLUMNS = ("rows", "width", "block", "block_rows", "sum_block", "copies")


def every_plan(problem: Problem, spec: HardwareSpec) -> Plans:
    """Every tile, with every block that loops divide into, sums whole or in blocks, and scattered vectors copied.

    Simple ones come first among those of a tile: of plans that should take the same time, the first is chosen.
    """
    rows, width = tile_shapes(spec, problem.row_count, problem.vector.extent, problem.lanes, problem.loads)
    tiles = Plans(
        problem.others[-1].name if problem.others else None,
        problem.rows.name if problem.rows is not None else None,
        rows,
        width,
        block=np.zeros_like(rows),
        block_rows=np.zeros_like(rows),
        sum_block=np.zeros_like(rows),
        copies=np.zeros(len(rows), bool),
    )
    lies_apart = is_scattered(problem) | (panel_cycles(problem, spec, tiles, problem.vector_panels) > 0)
    can_be_copied = lies_apart & (problem.copyable is not None) & (copied_bytes(problem, width) <= COPY_BYTES)
    blocks = _blocks_around(problem, tiles) if problem.others else _blocks_of_rows(problem, tiles)
    if problem.others and problem.loads.window is not None and is_batched(problem):
        rows_first = _blocks_of_rows(problem, tiles)
        blocks = blocks + rows_first.take(rows_first.block_rows > 0)
    return _copied(problem, tiles.take(can_be_copied)) + _sums_in_blocks(problem, spec, blocks)


def is_batched(problem: Problem) -> bool:
    """Whether all loops around rows and vectors are of sums that have nothing in common."""
    return all(is_batch(problem.contraction, loop) for loop in problem.others)


def _copied(problem: Problem, tiles: Plans) -> Plans:
    """One copy for all rows, or one for each block of them: more work, but more that cores can share."""
    sizes = _divisors(problem.row_count)
    number, block_rows = _pairs(sizes, sizes % tiles.rows[:, None] == 0)
    return replace(tiles.take(number), block_rows=block_rows, copies=np.ones(len(number), bool))


def _blocks_around(problem: Problem, tiles: Plans) -> Plans:
    """Blocks of the last other loop; tiles of vectors with a tail go only through all of it, or one iteration."""
    extent = problem.others[-1].extent
    has_tail = problem.vector.extent % tiles.width > 0
    sizes = _divisors(max(2, extent))  # 1 is among them even where it is all there is.
    number, block = _pairs(sizes, np.where(has_tail[:, None], sizes == 1, sizes < extent))
    return replace(tiles.take(number), block=block)


def _blocks_of_rows(problem: Problem, tiles: Plans) -> Plans:
    """Blocks of rows: of whole tiles if these divide the rows, else with a tail each; none beside a tail of vectors."""
    has_tail, has_row_tail = problem.vector.extent % tiles.width > 0, problem.row_count % tiles.rows > 0
    sizes, rows = _divisors(problem.row_count), tiles.rows[:, None]
    with_tails = (sizes >= rows) & (problem.loads.row_bytes > 0)
    fits = np.where(has_row_tail[:, None], with_tails, sizes % rows == 0)
    number, block_rows = _pairs(sizes, fits & ~has_tail[:, None])
    return replace(tiles.take(number), block_rows=block_rows)


def _pairs(sizes: Counts, is_possible: Flags) -> tuple[Counts, Counts]:
    """Pairs of a plan and a size that is possible for it, 0 for the whole first."""
    number, column = np.nonzero(np.column_stack([np.ones(len(is_possible), bool), is_possible]))
    return number, np.concatenate([[0], sizes])[column]


def _sums_in_blocks(problem: Problem, spec: HardwareSpec, plans: Plans) -> Plans:
    """Each plan with the whole sum, and with blocks of it.

    The operand in vectors of a block stays in the first cache, or in the second while the next one comes.
    """
    width_bytes = plans.width * problem.contraction.bits // 8
    points = block_points(problem, plans)
    partial_bytes = points * width_bytes
    is_possible = (points > plans.rows) & ((problem.vector.extent % plans.width == 0) | (plans.block == 0))
    if not problem.reductions or not is_possible.any():
        return plans
    extent = problem.reductions[-1].extent
    each_bytes = problem.contraction.reduced // extent * width_bytes
    row_bytes = block_row_bytes(problem, points) / extent
    near, second = KEPT_SHARE * spec.caches[0].size_bytes, BLOCK_SHARE * second_cache_bytes(spec)
    first = np.where(is_possible & (partial_bytes <= near), _largest_block(extent, each_bytes, near), 0)
    later = _largest_block(extent, 2 * each_bytes + row_bytes, second)
    later = np.where(is_possible & (partial_bytes <= PARTIAL_BYTES) & (later != first), later, 0)
    sizes = np.column_stack([plans.sum_block, first, later])
    number, column = np.nonzero((sizes > 0) | (np.arange(3) == 0))
    return replace(plans.take(number), sum_block=sizes[number, column])


def _largest_block(extent: int, step_bytes: Counts | Amounts, room_bytes: float) -> Counts:
    """Steps of a sum whose bytes find room; 0 if those of all steps do, or those of one do not."""
    sizes = _divisors(extent)
    fitting = (sizes * step_bytes[:, None] <= room_bytes).sum(axis=1)
    return np.where(extent * step_bytes > room_bytes, np.concatenate([[0], sizes])[fitting], 0)


def block_points(problem: Problem, plans: Plans) -> Counts:
    """Rows of a block, those of all loops but the one in vectors."""
    outside = np.where(plans.block > 0, plans.block, prod(loop.extent for loop in problem.others))
    return np.where(plans.block_rows > 0, plans.block_rows, outside * problem.row_count)


def tiled_rows(problem: Problem, plans: Plans) -> Counts:
    """Rows that are parted into tiles together: those of a block if the last tile of each is smaller."""
    return np.where(plans.block_rows % plans.rows > 0, plans.block_rows, problem.row_count)


def block_row_bytes(problem: Problem, points: Counts) -> Amounts:
    """What a block of so many rows reads of the operand in rows."""
    return problem.operands.row_bytes * np.minimum(problem.points, points) / problem.points


@cache
def _divisors(number: int) -> Counts:
    """But the number itself."""
    smaller = np.arange(1, number)
    found = smaller[number % smaller == 0]
    found.flags.writeable = False
    return found


def is_scattered(problem: Problem) -> bool:
    """Whether the vectors of a tile are spread over more pages than stay near."""
    load, pages = problem.copyable, 1.0
    if load is None:
        return False
    assert isinstance(load.source, Buffer)
    for loop in problem.reductions:
        stride = stride_along(load.source, load.indices, loop.sym)
        apart = abs(stride) * load.source.dtype.itemsize if stride is not None else PAGE_BYTES
        pages *= max(1.0, loop.extent * min(1.0, apart / PAGE_BYTES))
    return pages > KEPT_SHARE * TLB_PAGES


def panel_cycles(problem: Problem, spec: HardwareSpec, plans: Plans, panels: tuple[Panel, ...]) -> Amounts:
    """Cycles of a tile, or of a block of its sum, to read what pushes itself out of the first cache.

    What lies closer together than lines do is one run of them.
    """
    line_bytes, found = spec.caches[0].line_bytes, np.zeros(len(plans))
    sums = [np.full(len(plans), loop.extent) for loop in problem.reductions]
    if sums:
        sums[-1] = np.where(plans.sum_block > 0, plans.sum_block, sums[-1])
    for panel in panels:
        strides = (panel.lane_bytes, panel.row_bytes, *panel.sum_bytes)
        moves = [each for each in zip(strides, (plans.width, plans.rows, *sums), strict=True) if each[0] > 0]
        run_bytes = np.ones_like(plans.width)
        for apart_bytes, count in moves:
            run_bytes = run_bytes + (apart_bytes * (count - 1) if apart_bytes < line_bytes else 0)
        found = found + crowded_cycles(spec, run_bytes, [each for each in moves if each[0] >= line_bytes])
    return found


def copied_bytes(problem: Problem, width: Counts) -> Counts:
    """What a copy takes, each row of it from the start of a line."""
    lines = -(-width * problem.contraction.bits // (8 * LINE_BYTES))
    return problem.contraction.reduced * lines * LINE_BYTES


def copies_made(problem: Problem, plans: Plans) -> Counts:
    """How often a part of the operand in vectors is copied, in one batch."""
    load = problem.copyable
    others = prod(loop.extent for loop in problem.others if load is not None and uses(load, loop))
    blocks = problem.row_count // np.where(plans.block_rows > 0, plans.block_rows, problem.row_count)
    return blocks * -(-problem.vector.extent // plans.width) * max(1, others // problem.batch)
