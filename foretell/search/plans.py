"""Plans for a sum of products: tiles of registers, and blocks for the caches.

    for blocks of rows: for tiles of vectors: for blocks of the sum: for tiles of rows:
        acc = so far;  for the block of the sum: acc[row, lane] += a[row] * b[lane];  out = f(acc)

All plans of a nest are made together, as columns of numbers, because all are compared (`plan_terms.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from foretell.ir.tensor_expr import Buffer
from foretell.loops.axes import stride_along
from foretell.loops.fetch_slabs import SLABS_SHARE
from foretell.schedule.block_sum import PARTIAL_BYTES
from foretell.schedule.copy_operand import COPY_BYTES
from foretell.search.contraction import Problem, uses
from foretell.search.near_memory import KEPT_SHARE, TLB_PAGES, WAY_BYTES, Amounts, Counts, Flags, second_cache_bytes
from foretell.search.tiles import tile_shapes
from foretell.target.hardware_spec import HardwareSpec


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

    block_loop: str | None
    """The loop that blocks are made of, where they are."""
    rows: Counts
    width: Counts
    block: Counts
    """0 for the whole output."""
    sum_block: Counts
    copies: Flags

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Plan:
        shape, block = TileShape(int(self.rows[number]), int(self.width[number])), int(self.block[number])
        sum_block, copies = int(self.sum_block[number]), bool(self.copies[number])
        return Plan(shape, self.block_loop if block else None, max(1, block), sum_block, copies)

    def take(self, numbers: Counts | Flags) -> Plans:
        """Some of them, in the order asked for."""
        return Plans(
            self.block_loop,
            self.rows[numbers],
            self.width[numbers],
            self.block[numbers],
            self.sum_block[numbers],
            self.copies[numbers],
        )


def every_plan(problem: Problem, spec: HardwareSpec) -> Plans:
    """Every tile, with every block that loops divide into, sums whole or in blocks, and scattered vectors copied.

    Those of one tile stand together, simple ones first: of plans that should take the same time, the first is chosen.
    """
    rows, width = tile_shapes(spec, problem.row_count, problem.vector.extent, problem.lanes)
    copied = np.flatnonzero(is_scattered(problem, spec, width) & (copied_bytes(problem, width) <= COPY_BYTES))
    shape, block = _blocks(problem, rows, width)
    number, sum_block = _sums_in_blocks(problem, spec, rows[shape], width[shape], block)
    shapes, none = np.concatenate([copied, shape[number]]), np.zeros_like(copied)
    found = Plans(
        _block_loop(problem),
        rows[shapes],
        width[shapes],
        np.concatenate([none, block[number]]),
        np.concatenate([none, sum_block]),
        np.arange(len(shapes)) < len(copied),
    )
    return found.take(np.argsort(shapes, kind="stable"))


def _block_loop(problem: Problem) -> str | None:
    """The last of the other loops; the tiles of rows if there is none."""
    if problem.others:
        return problem.others[-1].name
    return f"{problem.rows.name}.o" if problem.rows is not None else None


def _blocks(problem: Problem, rows: Counts, width: Counts) -> tuple[Counts, Counts]:
    """Pairs of a tile and a block; tiles of vectors with a tail go only through the whole output, or one iteration."""
    has_tail = problem.vector.extent % width > 0
    parts = problem.others[-1].extent * np.ones_like(rows) if problem.others else problem.row_count // rows
    has_tiles = bool(problem.others) | (problem.row_count % rows == 0)
    sizes = np.union1d(_divisors(problem.others[-1].extent if problem.others else problem.row_count), [1])
    divides = (sizes < parts[:, None]) & (parts[:, None] % sizes == 0) & (~has_tail & has_tiles)[:, None]
    single = (sizes == 1) & has_tail[:, None] & bool(problem.others)
    shape, column = np.nonzero(np.column_stack([np.ones(len(rows), bool), divides | single]))
    return shape, np.concatenate([[0], sizes])[column]


def _sums_in_blocks(
    problem: Problem, spec: HardwareSpec, rows: Counts, width: Counts, block: Counts
) -> tuple[Counts, Counts]:
    """Pairs of a plan and a block of its sum, 0 for the whole.

    The operand in vectors of a block stays in the first cache, or in the second while the next one comes.
    """
    whole = np.zeros_like(rows)
    width_bytes = width * problem.contraction.bits // 8
    points = block_points(problem, rows, block)
    partial_bytes = points * width_bytes
    is_possible = (problem.row_count % rows == 0) & (partial_bytes > rows * width_bytes)
    is_possible &= (problem.vector.extent % width == 0) | (block == 0)
    if not problem.reductions or not is_possible.any():
        return np.arange(len(rows)), whole
    extent = problem.reductions[-1].extent
    each_bytes = problem.contraction.reduced // extent * width_bytes
    row_bytes = block_row_bytes(problem, points) / extent
    near, second = KEPT_SHARE * spec.caches[0].size_bytes, SLABS_SHARE * second_cache_bytes(spec)
    first = np.where(is_possible & (partial_bytes <= near), _largest_block(extent, each_bytes, near), 0)
    later = _largest_block(extent, 2 * each_bytes + row_bytes, second)
    later = np.where(is_possible & (partial_bytes <= PARTIAL_BYTES) & (later != first), later, 0)
    sizes = np.column_stack([whole, first, later])
    number, column = np.nonzero((sizes > 0) | (np.arange(3) == 0))
    return number, sizes[number, column]


def _largest_block(extent: int, step_bytes: Counts | Amounts, room_bytes: float) -> Counts:
    """Steps of a sum whose bytes find room; 0 if those of all steps do, or those of one do not."""
    sizes = _divisors(extent)
    fitting = (sizes * step_bytes[:, None] <= room_bytes).sum(axis=1)
    return np.where(extent * step_bytes > room_bytes, np.concatenate([[0], sizes])[fitting], 0)


def block_points(problem: Problem, rows: Counts, block: Counts) -> Counts:
    """Rows of a block, those of all loops but the one in vectors."""
    each = problem.row_count if problem.others else rows
    return np.where(block == 0, problem.row_count * prod(loop.extent for loop in problem.others), block * each)


def block_row_bytes(problem: Problem, points: Counts) -> Amounts:
    """What a block of so many rows reads of the operand in rows."""
    return problem.operands.row_bytes * np.minimum(problem.points, points) / problem.points


def _divisors(number: int) -> Counts:
    """But the number itself."""
    smaller = np.arange(1, number)
    return smaller[number % smaller == 0]


def is_scattered(problem: Problem, spec: HardwareSpec, width: Counts) -> Flags:
    """Whether the vectors of a tile are spread over more pages, or more lines of equal places, than stay near."""
    load = problem.copyable
    if load is None:
        return np.zeros(len(width), bool)
    assert isinstance(load.source, Buffer)
    itemsize, line_bytes = load.source.dtype.itemsize, spec.caches[0].line_bytes
    pages, lines_each, places = 1.0, 1.0, WAY_BYTES
    for loop in problem.reductions:
        stride = stride_along(load.source, load.indices, loop.sym)
        apart = abs(stride) * itemsize if stride is not None else WAY_BYTES
        pages *= max(1.0, loop.extent * min(1.0, apart / WAY_BYTES))
        lines_each *= max(1.0, loop.extent * min(1.0, apart / line_bytes))
        places = gcd(places, apart) if apart else places
    lines = -(-width * itemsize // line_bytes) * lines_each
    ways = spec.caches[0].size_bytes // WAY_BYTES
    room = ways * np.minimum(WAY_BYTES, WAY_BYTES // places * width * itemsize) / line_bytes
    return (pages > KEPT_SHARE * TLB_PAGES) | ((lines > KEPT_SHARE * room) & (places >= width * itemsize))


def copied_bytes(problem: Problem, width: Counts) -> Counts:
    return problem.contraction.reduced * width * problem.contraction.bits // 8


def copies_made(problem: Problem, width: Counts) -> Counts:
    """How often a part of the operand in vectors is copied, in one batch."""
    load = problem.copyable
    others = prod(loop.extent for loop in problem.others if load is not None and uses(load, loop))
    return -(-problem.vector.extent // width) * max(1, others // problem.batch)
