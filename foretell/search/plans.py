"""Plans for a sum of products: tiles of registers, blocks for the caches, and what each should cost.

    for blocks of rows: for tiles of vectors: for blocks of the sum: for tiles of rows:
        acc = so far;  for the block of the sum: acc[row, lane] += a[row] * b[lane];  out = f(acc)

What a tile costs is the greatest of three: multiply-adds against their ports, loads against theirs, and the chain
through one accumulator. What a plan costs besides is what its tiles wait for the caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

from foretell.ir.tensor_expr import Buffer, Load
from foretell.loops.axes import stride_along
from foretell.loops.fetch_slabs import SLABS_SHARE
from foretell.schedule.block_sum import PARTIAL_BYTES
from foretell.schedule.copy_operand import COPY_BYTES
from foretell.search.contraction import Problem, TileLoads, Window, is_batch, uses
from foretell.target.hardware_spec import HardwareSpec

SPARE_REGISTERS = 1
"""Registers of a tile that hold neither sums nor the vectors they are made from: the element being broadcast."""
WAY_BYTES = 4096
STRADDLING_LOADS = 1.5
"""What a vector counts as that begins anywhere in a line."""
STEP_CYCLES = 0.5
"""What a step of the sum loses to its loop, whatever the tile: large ones lose less."""
CONFLICT_CYCLES = 0.3
"""What a step of the sum waits for each row that was pushed out of the first cache; measured on Ice Lake."""
PARTIAL_CYCLES = 20.0
"""What it costs to put a vector of partial sums aside and take it up again; measured on Ice Lake."""
SCATTER_CYCLES = 8.0
"""What a step of the sum waits for vectors that lie apart: for their lines, and their pages; measured on Ice Lake."""
TLB_PAGES = 64
"""Pages whose addresses are known without a search, on all cores that we know of."""
PIECE_CYCLES = 30.0
"""What it takes to begin a piece of a row of a large result, if the rows of a tile lie on different pages."""
MOST_ROWS = 28
MOST_VECTORS = 8
NEAR_PIECES = 0.25
"""The part of a line at the end of a piece that is fetched again although it was read just before."""
KEPT_SHARE = 0.6
"""The part of a cache that is still there when it is read again."""
LATER_SHARE = 0.75
"""The same of the caches after the first, which little else passes through."""
FETCHED_COST = 0.8
"""What reading a slab counts as if it was fetched ahead; measured on Ice Lake."""
BLOCK_SHARE = 0.6
"""The part of the second cache for two slabs of a block of a sum and the rows that go with them."""
OVERLAP_LOSS = 0.2
"""The part of computing, or of waiting for memory, that the longer of the two does not hide."""


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of a tile and elements of its vectors."""

    rows: int
    width: int


def tile_cycles(spec: HardwareSpec, rows: int, vectors: int, loads: TileLoads) -> float:
    """Cycles of one step of the reduction."""
    if loads.window is not None:
        return _window_cycles(spec, rows, vectors, loads, loads.window)
    count = loads.by_row * rows + loads.by_vector * vectors + loads.by_both * rows * vectors
    multiply_adds = rows * vectors / spec.fma_ports
    waiting = count / spec.loads_per_cycle
    cycles = max(multiply_adds, waiting, float(spec.fma_latency_cycles)) + STEP_CYCLES
    return cycles + loads.by_row * missed_rows(spec, rows, loads.row_bytes) * CONFLICT_CYCLES


def _window_cycles(spec: HardwareSpec, rows: int, vectors: int, loads: TileLoads, window: Window) -> float:
    """Cycles of one step of a sum that is written out: rows share what they load as long as registers hold it.

    The operands that all rows share stay in registers too, and one tile overlaps with the next: no chain is waited for.
    """
    kept = window.points * (window.shared + loads.by_vector * vectors)
    carried = vectors * (rows - 1) * window.points // window.length
    is_held = rows * vectors + kept + carried <= spec.vector_registers
    distinct = window.distinct(rows) / window.length if is_held else rows
    count = STRADDLING_LOADS * loads.by_both * distinct * vectors + (
        0 if is_held else window.shared + loads.by_vector * vectors
    )
    return max(rows * vectors / spec.fma_ports, count / spec.loads_per_cycle)


def missed_rows(spec: HardwareSpec, rows: int, row_bytes: int) -> int:
    """Rows that push each other out of the first cache: those that lie at equal places of its ways.

    A way is as large as a page, because the place within a page is known before its address is translated.
    """
    ways = max(1, spec.caches[0].size_bytes // WAY_BYTES)
    places = WAY_BYTES // gcd(row_bytes, WAY_BYTES) if row_bytes else 1
    return rows if row_bytes >= WAY_BYTES // ways and -(-rows // places) > ways else 0


def tile_shapes(spec: HardwareSpec, rows: int, width: int, lanes: int) -> Iterator[TileShape]:
    """Every tile that fits the registers and is no larger than the output."""
    for vectors in range(1, MOST_VECTORS + 1):
        widths = {min(vectors * lanes, width)} | {
            w for w in range((vectors - 1) * lanes + 1, vectors * lanes + 1) if width % w == 0
        }
        for count in range(1, min(rows, MOST_ROWS) + 1):
            if count * vectors + vectors + SPARE_REGISTERS <= spec.vector_registers:
                for each in sorted(widths):
                    yield TileShape(count, each)


def covering_cycles(spec: HardwareSpec, shape: TileShape, rows: int, width: int, lanes: int, loads: TileLoads) -> float:
    """Cycles per step of the reduction to cover the whole output: full tiles and tails."""
    total = 0.0
    for count, tall in ((rows // shape.rows, shape.rows), (1, rows % shape.rows)):
        for times, wide in ((width // shape.width, shape.width), (1, width % shape.width)):
            if count and times and tall and wide:
                total += count * times * tile_cycles(spec, tall, -(-wide // lanes), loads)
    return total


# --- plans ----------------------------------------------------------------------------------------------------


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


def plans(problem: Problem, spec: HardwareSpec) -> Iterator[Plan]:
    """Every tile, with every block that loops divide into, and sums whole or in blocks."""
    width = problem.vector.extent
    for shape in tile_shapes(spec, problem.row_count, width, problem.lanes):
        if is_scattered(problem, spec, shape.width) and copied_bytes(problem, shape) <= COPY_BYTES:
            yield Plan(shape, copies=True)
            yield from _copies_for_blocks(problem, shape)
        if width % shape.width:
            yield Plan(shape)
            yield from _sums_in_blocks(problem, spec, Plan(shape))
            if problem.others:
                yield Plan(shape, problem.others[-1].name, 1)
            continue
        for plan in _blocks(problem, shape):
            yield plan
            yield from _sums_in_blocks(problem, spec, plan)


def _blocks(problem: Problem, shape: TileShape) -> Iterator[Plan]:
    yield Plan(shape)
    rows = problem.rows
    if problem.others:
        last = problem.others[-1]
        yield from (Plan(shape, last.name, size) for size in _divisors(last.extent))
    elif rows is not None and rows.extent % shape.rows == 0:
        yield from (Plan(shape, f"{rows.name}.o", size) for size in _divisors(rows.extent // shape.rows))
    elif rows is not None and problem.loads.row_bytes:
        yield from (Plan(shape, rows.name, size) for size in _divisors(rows.extent) if size >= shape.rows)


def _copies_for_blocks(problem: Problem, shape: TileShape) -> Iterator[Plan]:
    """A copy for each block of rows: more work, but more that cores can share."""
    rows = problem.rows
    if rows is not None and rows.extent % shape.rows == 0:
        yield from (Plan(shape, f"{rows.name}.o", size, copies=True) for size in _divisors(rows.extent // shape.rows))


def _sums_in_blocks(problem: Problem, spec: HardwareSpec, plan: Plan) -> Iterator[Plan]:
    """Blocks of a sum whose operand in vectors stays in the first cache, or in the second while the next one comes."""
    shape, near = plan.shape, KEPT_SHARE * spec.caches[0].size_bytes
    width_bytes = shape.width * problem.contraction.bits // 8
    partial_bytes = block_points(problem, plan) * width_bytes
    if not problem.reductions or partial_bytes <= shape.rows * width_bytes:
        return
    inner = problem.reductions[-1]
    each_bytes = problem.contraction.reduced // inner.extent * width_bytes
    row_bytes = block_row_bytes(problem, plan) / inner.extent
    second = BLOCK_SHARE * spec.caches[min(1, len(spec.caches) - 1)].size_bytes
    for step_bytes, room, most_bytes in ((each_bytes, near, near), (2 * each_bytes + row_bytes, second, PARTIAL_BYTES)):
        fitting = [size for size in _divisors(inner.extent) if size * step_bytes <= room]
        if fitting and inner.extent * step_bytes > room and partial_bytes <= most_bytes:
            yield replace(plan, sum_block=fitting[-1])


def block_row_bytes(problem: Problem, plan: Plan) -> float:
    """What a block reads of the operand in rows."""
    return problem.operands.row_bytes * min(problem.points, block_points(problem, plan)) / problem.points


def block_points(problem: Problem, plan: Plan) -> int:
    """Rows of a block, those of all loops but the one in vectors."""
    if plan.block_loop is None:
        return problem.row_count * prod(loop.extent for loop in problem.others)
    if problem.rows is not None and plan.block_loop == problem.rows.name:
        return plan.block
    return plan.block * (plan.shape.rows if plan.block_loop.endswith(".o") else problem.row_count)


def tiled_rows(problem: Problem, plan: Plan) -> int:
    """Rows that are parted into tiles together: those of a block if the last tile of each is smaller."""
    return plan.block if problem.rows is not None and plan.block_loop == problem.rows.name else problem.row_count


def _divisors(number: int) -> list[int]:
    return [factor for factor in range(1, number) if number % factor == 0]


def is_scattered(problem: Problem, spec: HardwareSpec, width: int) -> bool:
    """Whether the vectors of a tile are spread over more pages, or more lines of equal places, than stay near."""
    load = problem.copyable
    if load is None:
        return False
    assert isinstance(load.source, Buffer)
    itemsize = load.source.dtype.itemsize
    strides = [(stride_along(load.source, load.indices, loop.sym), loop.extent) for loop in problem.reductions]
    pages, lines, places = 1.0, float(-(-width * itemsize // spec.caches[0].line_bytes)), WAY_BYTES
    for stride, extent in strides:
        apart = abs(stride) * itemsize if stride is not None else WAY_BYTES
        pages *= max(1.0, extent * min(1.0, apart / WAY_BYTES))
        lines *= max(1.0, extent * min(1.0, apart / spec.caches[0].line_bytes))
        places = gcd(places, apart) if apart else places
    ways = spec.caches[0].size_bytes // WAY_BYTES
    room = ways * min(WAY_BYTES, WAY_BYTES // places * width * itemsize) / spec.caches[0].line_bytes
    return pages > KEPT_SHARE * TLB_PAGES or (lines > KEPT_SHARE * room and places >= width * itemsize)


def copied_bytes(problem: Problem, shape: TileShape) -> int:
    return problem.contraction.reduced * shape.width * problem.contraction.bits // 8


def copies_made(problem: Problem, plan: Plan) -> int:
    """How often a part of the operand in vectors is copied, in one batch."""
    load, shape = problem.copyable, plan.shape
    assert load is not None
    others = prod(loop.extent for loop in problem.others if uses(load, loop))
    blocks = 1 if plan.block_loop is None else problem.row_count // (plan.block * shape.rows)
    return blocks * -(-problem.vector.extent // shape.width) * max(1, others // problem.batch)


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """What a plan spends cycles on, all batches together, and how well cores share it."""

    tiles: float
    """Multiply-adds, loads and chains of the tiles."""
    partial_sums: float
    """Putting sums aside and taking them up again."""
    copies: float
    """Copying an operand that lies apart, or going without."""
    pieces: float
    """Beginning pieces of rows of a large result."""
    slabs: float
    """Reading the operand in vectors from the caches."""
    rows: float
    """Reading the operand in rows."""
    others: float
    """Reading and writing what serves one tile only."""
    waiting: float
    """For slabs that nobody fetched in time."""
    idle: float
    """The time of all cores over what they have to do: 1 if none is idle."""

    @property
    def compute(self) -> float:
        return self.tiles + self.partial_sums + self.copies + self.pieces

    @property
    def memory(self) -> float:
        return self.slabs + self.rows + self.others

    @property
    def cycles(self) -> float:
        """Of all cores together."""
        shorter, longer = sorted((self.compute, self.memory))
        return (longer + OVERLAP_LOSS * shorter + self.waiting) * self.idle


def plan_cycles(problem: Problem, spec: HardwareSpec, plan: Plan) -> float:
    """Cycles of the contraction on all cores: tiles, what they wait for the caches, and cores that stay idle."""
    return plan_terms(problem, spec, plan).cycles


def plan_terms(problem: Problem, spec: HardwareSpec, plan: Plan) -> PlanTerms:
    shape, operands, width, points = plan.shape, problem.operands, problem.vector.extent, problem.points
    together = tiled_rows(problem, plan)
    others = points // together
    step = covering_cycles(spec, shape, together, width, problem.lanes, problem.loads)
    tiles_cycles = problem.contraction.reduced * others * step
    block = min(points, block_points(problem, plan))
    tiles_wide, row_tiles = -(-width // shape.width), others * -(-together // shape.rows)
    slabs = tiles_wide * _spread(problem, operands.vector_loads)
    row_parts = problem.row_count // together * -(-together // shape.rows) * _spread(problem, operands.row_loads)
    slab, tile_bytes = operands.vector_bytes / slabs, operands.row_bytes / row_parts
    block_bytes, blocks = operands.row_bytes * block / points, points / block
    part = plan.sum_block / problem.reductions[-1].extent if plan.sum_block else 1.0
    partial_sums = PARTIAL_CYCLES * (1 / part - 1) * points * width / problem.lanes
    vectors = -(-shape.width // problem.lanes)
    copies = pieces = 0.0
    if plan.copies:
        steps = copies_made(problem, plan) * problem.contraction.reduced
        copies = steps * (SCATTER_CYCLES + 2.0 * vectors)
    elif is_scattered(problem, spec, shape.width):
        copies = tiles_wide * row_tiles * problem.contraction.reduced * SCATTER_CYCLES
    result_bytes = problem.batch * points * width * problem.contraction.bits // 8
    if problem.row_gap_bytes >= WAY_BYTES and result_bytes > _second_cache(spec):
        pieces = PIECE_CYCLES * points * tiles_wide
    # A tile reads its slab of vectors and its rows; both are nearest if they were read just before.
    slab_first = cycles_from(spec, slab, operands.vector_bytes + block_bytes)
    slab_again = cycles_from(spec, slab, part * (slab + tile_bytes))
    rows_first = cycles_from(spec, tile_bytes, operands.row_bytes + operands.vector_bytes)
    slabs_held = 2 if 2 * part * slab > spec.caches[0].size_bytes else 1
    rows_again = cycles_from(spec, tile_bytes, part * (block_bytes + slabs_held * slab))
    tiles = tiles_wide * row_tiles
    firsts = max(slabs, blocks * tiles_wide)
    # The next slab comes while this one is in use, if both fit; else its first tile waits for it.
    second = SLABS_SHARE * spec.caches[min(1, len(spec.caches) - 1)].size_bytes
    is_fetched = 2 * part * slab <= second and tiles > firsts
    fetched, waiting = (FETCHED_COST * firsts * slab_first, 0.0) if is_fetched else (0.0, firsts * slab_first)
    # What serves only one tile is read once, but in pieces: at their ends, lines are shared with the next piece.
    line_bytes, width_bytes = spec.caches[0].line_bytes, shape.width * problem.contraction.bits // 8
    is_near = operands.other_bytes * block / points <= _second_cache(spec)
    in_pieces = 1.0 + (NEAR_PIECES if is_near else 1.0) * line_bytes / width_bytes if shape.width < width else 1.0
    tasks = task_count(problem, plan)
    batch = problem.batch
    return PlanTerms(
        tiles=batch * tiles_cycles,
        partial_sums=batch * partial_sums,
        copies=batch * copies,
        pieces=batch * pieces,
        slabs=batch * (fetched + (tiles - firsts) * slab_again),
        rows=batch * (row_parts * rows_first + (tiles - row_parts) * rows_again),
        others=batch * cycles_from(spec, in_pieces * operands.other_bytes, operands.other_bytes * batch),
        waiting=batch * waiting,
        idle=spec.cores * -(-tasks // spec.cores) / tasks,
    )


def task_count(problem: Problem, plan: Plan) -> int:
    """Pieces that threads can share: tiles, unless a tail or partial sums keep some of their loops together."""
    shape, width = plan.shape, problem.vector.extent
    others = prod(loop.extent for loop in problem.others)
    wide = -(-width // shape.width)
    if plan.copies:
        return problem.batch * copies_made(problem, plan)
    if width % shape.width:
        return wide * (others if plan.block_loop else problem.batch)
    together = tiled_rows(problem, plan)
    has_row_tail = together % shape.rows != 0
    if plan.sum_block:
        return wide * (others * problem.row_count // block_points(problem, plan))
    return wide * others * (problem.row_count // (together if has_row_tail else shape.rows))


def _spread(problem: Problem, loads: tuple[Load, ...]) -> int:
    """Iterations of the other loops of a batch in each of which operands are read elsewhere."""
    others = [loop for loop in problem.others if not is_batch(problem.contraction, loop)]
    return prod(loop.extent for loop in others if any(uses(load, loop) for load in loads))


def _second_cache(spec: HardwareSpec) -> float:
    """Bytes that stay in the second cache, or in the only one."""
    return KEPT_SHARE * spec.caches[min(1, len(spec.caches) - 1)].size_bytes


def cycles_from(spec: HardwareSpec, size_bytes: float, between_bytes: float) -> float:
    """Cycles to read something again after so many bytes in all; what is still in the first cache is free."""
    for number, level in enumerate(spec.caches):
        if between_bytes <= (KEPT_SHARE if number == 0 else LATER_SHARE) * level.size_bytes:
            return size_bytes / level.bandwidth_bytes_per_cycle if number else 0.0
    return size_bytes * spec.frequency_hz / spec.dram_core_bandwidth_bytes_per_s
