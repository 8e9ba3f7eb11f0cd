"""What plans should cost: what their tiles take, what these wait for the caches, and cores that stay idle."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import gcd, prod

import numpy as np

from foretell.ir.tensor_expr import Load
from foretell.loops.fetch_slabs import SLABS_SHARE
from foretell.loops.split_chains import LONG_COST
from foretell.search.contraction import Problem, is_batch, uses
from foretell.search.near_memory import (
    KEPT_SHARE,
    PAGE_BYTES,
    Amounts,
    Counts,
    Flags,
    cycles_from,
    missed_rows,
    second_cache_bytes,
)
from foretell.search.plans import Plans, block_points, copies_made, is_batched, is_scattered, panel_cycles, tiled_rows
from foretell.search.tiles import covered, overlapped, tile_cycles
from foretell.target.hardware_spec import HardwareSpec

NEAR_PIECES = 0.25
"""The part of a line at the end of a piece that is fetched again although it was read just before."""
FETCHED_COST = 0.8
"""What reading a slab counts as if it was fetched ahead; measured on Ice Lake."""

STRIP_PIECES = 4
"""What beginning a line of a strip counts as: that of the result and that of the image are waited for; on Zen 3."""
AWAITED = 1.25
"""The part of the chain of a short sum that functions of it wait for, in the unit of `finishing`; measured on Zen 5."""
CROWDED_LOSS = 0.05
"""The part of what pushes itself out of the first cache, or of the tiles, that the longer of the two does not hide;
measured on Zen 4."""

COMPUTE = (
    "tiles", "hidden", "steps", "conflicts", "crowded", "partial_sums", "finishing", "scattered", "copies", "pieces",
)  # fmt: skip
"""Terms that go on beside those of `MEMORY`."""
MEMORY = ("slabs", "rows", "others")
TIMES = (*COMPUTE, *MEMORY, "waiting")
SURE_GAIN = 1.02
"""How much slower the best plan without a tail of rows may be and is still chosen: tails are written out a second time,
and cost more than the predicted difference where that is small."""


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """What plans spend cycles on, all batches together, and how well cores share it; one number for each plan."""

    tiles: Amounts
    """Multiply-adds, loads or chains of the tiles, whichever take longest."""
    hidden: Amounts
    """The shorter of multiply-adds and loads, beside the longer."""
    steps: Amounts
    """What steps of the sum lose to their loop."""
    conflicts: Amounts
    """Rows that push each other out of the first cache."""
    crowded: Amounts
    """Waiting for what lies at so few places of the first cache that it pushed itself out."""
    partial_sums: Amounts
    """Putting sums aside and taking them up again."""
    finishing: Amounts
    """What becomes of a sum before it is stored: activations and the like."""
    scattered: Amounts
    """Reading vectors that lie on pages of their own."""
    copies: Amounts
    """Copying them side by side."""
    pieces: Amounts
    """Beginning pieces of rows of a large result."""
    slabs: Amounts
    """Reading the operand in vectors from the caches."""
    rows: Amounts
    """Reading the operand in rows."""
    others: Amounts
    """Reading and writing what serves one tile only."""
    waiting: Amounts
    """For slabs that nobody fetched in time."""
    idle: Amounts
    """The time of all cores over what they have to do: 1 if none is idle."""
    caution: Amounts
    """1, or what a plan has to be faster by to be chosen."""

    @property
    def compute(self) -> Amounts:
        return self._sum(COMPUTE)

    @property
    def memory(self) -> Amounts:
        return self._sum(MEMORY)

    @property
    def cycles(self) -> Amounts:
        """Of all cores together."""
        return (overlapped(self.compute, self.memory) + self.waiting) * self.idle

    @property
    def ranking(self) -> Amounts:
        """What is least for the plan to be chosen."""
        return self.cycles * self.caution

    def _sum(self, names: tuple[str, ...]) -> Amounts:
        return np.sum([getattr(self, name) for name in names], axis=0)

    def take(self, numbers: Counts | Flags | int) -> PlanTerms:
        """Those of some plans, in the order asked for."""
        return PlanTerms(*(np.asarray(getattr(self, field.name)[numbers]) for field in fields(self)))


def plan_terms(problem: Problem, spec: HardwareSpec, plans: Plans) -> PlanTerms:
    """The terms of plans for a nest: what there is of each, times the target's coefficient."""
    operands, weights, points = problem.operands, spec.coefficients, problem.points
    together = tiled_rows(problem, plans)
    others, tiles_tall = points // together, -(-together // plans.rows)
    tiles_wide = -(-problem.vector.extent // plans.width)
    tiles = tiles_wide * others * tiles_tall
    slabs = tiles_wide * _spread(problem, operands.vector_loads)
    row_parts = problem.row_count // together * tiles_tall * _spread(problem, operands.row_loads)
    slab = operands.vector_bytes / slabs * _in_lines(problem, spec, plans)
    tile_bytes = operands.row_bytes / row_parts * _line_parts(problem, spec, plans)
    block = np.minimum(points, block_points(problem, plans))
    block_bytes, blocks = operands.row_bytes * block / points, points / block
    part = _summed_part(problem, plans)
    # A tile reads its slab of vectors and its rows; both are nearest if they were read just before.
    # Between two uses of a slab all batches are gone through.
    slab_first = cycles_from(spec, slab, problem.batch * operands.vector_bytes + block_bytes)
    slab_again = cycles_from(spec, slab, part * (slab + tile_bytes))
    rows_first = cycles_from(spec, tile_bytes, problem.batch * (operands.row_bytes + operands.vector_bytes))
    slabs_held = np.where(2 * part * slab > spec.caches[0].size_bytes, 2, 1)
    # The next slab reads rows again, after all blocks of the sum.
    rows_again = cycles_from(spec, tile_bytes, block_bytes + slab + (slabs_held - 1) * part * slab)
    # What is too large for the first cache comes from the second anyway.
    slab_missed = np.where(plans.copies, 0.0, panel_cycles(problem, spec, plans, problem.vector_panels))
    slab_missed = np.maximum(0.0, slab_missed / part - slab_again)
    rows_missed = np.where(rows_again > 0, 0.0, panel_cycles(problem, spec, plans, problem.row_panels) / part)
    # The next slab comes while this one is in use, if both fit; else its first tile waits for it.
    firsts = np.maximum(slabs, blocks * tiles_wide)
    is_fetched = (2 * part * slab <= SLABS_SHARE * second_cache_bytes(spec)) & (tiles > firsts)
    fetched, waiting = np.where(is_fetched, FETCHED_COST, 0.0), np.where(is_fetched, 0.0, firsts * slab_first)
    batch, steps, tasks = problem.batch, problem.contraction.reduced * problem.batch, task_count(problem, plans)
    finished = points * -(-problem.vector.extent // problem.lanes) * problem.contraction.operations
    longer, shorter = _tile_cycles(problem, spec, plans)
    computing = steps * others * longer
    missed = np.asarray(batch * ((tiles - firsts) * slab_missed + (tiles - row_parts) * rows_missed), np.float64)
    return PlanTerms(
        tiles=weights.tiles * steps * others * longer,
        hidden=weights.hidden * steps * others * shorter,
        steps=weights.steps * steps * np.where(problem.loads.window is None, tiles, 0.0),
        conflicts=weights.conflicts * steps * others * _missed_rows(problem, spec, plans),
        crowded=weights.crowded * (overlapped(computing, missed, CROWDED_LOSS) - computing),
        partial_sums=weights.partial_sums * batch * (1 / part - 1) * points * problem.vector.extent / problem.lanes,
        finishing=weights.finishing * batch * (finished + _awaited(problem, spec, tiles)),
        scattered=weights.scattered * steps * _scattered_reads(problem, plans, tiles),
        copies=weights.copies * steps * _copied_vectors(problem, plans),
        pieces=weights.pieces * batch * points * _pieces(problem, spec, plans, tiles_wide),
        slabs=weights.slabs * batch * (fetched * firsts * slab_first + (tiles - firsts) * slab_again),
        rows=weights.rows * batch * (row_parts * rows_first + (tiles - row_parts) * rows_again),
        others=weights.others * batch * _other_cycles(problem, spec, plans, block),
        waiting=weights.waiting * batch * waiting,
        idle=_idle(problem, spec, plans, tasks),
        caution=np.where(problem.row_count % plans.rows > 0, SURE_GAIN, 1.0),
    )


def _tile_cycles(problem: Problem, spec: HardwareSpec, plans: Plans) -> Amounts:
    """Of one step of the sum, for all rows and vectors: what takes longest, and what goes on beside it."""
    steps = problem.contraction.reduced

    def each(rows: Counts, width: Counts) -> Amounts:
        return tile_cycles(spec, rows, width, problem.lanes, problem.loads, steps)

    return covered(plans.rows, plans.width, tiled_rows(problem, plans), problem.vector.extent, each)


def _awaited(problem: Problem, spec: HardwareSpec, tiles: Counts) -> Amounts:
    """Waiting for the sums of each tile, if what becomes of them is a loop over functions (`loops/loop_functions.py`):
    that leaves no room in a core's window for the short sums of the next tile."""
    if problem.loads.window is None or problem.contraction.operations < LONG_COST:
        return np.zeros(len(tiles))
    return np.asarray(AWAITED * tiles * problem.contraction.reduced * spec.fma_latency_cycles, np.float64)


def _in_lines(problem: Problem, spec: HardwareSpec, plans: Plans) -> Amounts:
    """Lines that hold a slab over its size: where it is no copy, each step of the sum begins and ends within one."""
    line_bytes, width_bytes = spec.caches[0].line_bytes, plans.width * (problem.contraction.bits // 8)
    found = np.ones(len(plans))
    for panel in problem.vector_panels:
        shared_bytes = line_bytes - np.gcd(width_bytes, gcd(line_bytes, *panel.sum_bytes))
        found = np.maximum(found, 1 + shared_bytes / width_bytes)
    return np.where(plans.copies | (plans.width >= problem.vector.extent), 1.0, found)


def _line_parts(problem: Problem, spec: HardwareSpec, plans: Plans) -> Amounts:
    """How often lines of the operand in rows are read because each block of the sum takes only a part of them."""
    line_bytes, found = spec.caches[0].line_bytes, np.ones(len(plans))
    for panel in problem.row_panels:
        if panel.sum_bytes and 0 < panel.sum_bytes[-1] < line_bytes:
            run_bytes = panel.sum_bytes[-1] * np.where(plans.sum_block > 0, plans.sum_block, line_bytes)
            found = np.maximum(found, line_bytes / run_bytes)
    return found


def _missed_rows(problem: Problem, spec: HardwareSpec, plans: Plans) -> Amounts:
    """Rows that a step of the sum does not find in the first cache; what is written out at once has no other step."""
    loads = problem.loads
    if loads.window is not None or not loads.by_row:
        return np.zeros(len(plans))

    def each(rows: Counts, _: Counts) -> Counts:
        return missed_rows(spec, rows, loads.row_bytes)

    return loads.by_row * covered(plans.rows, plans.width, tiled_rows(problem, plans), problem.vector.extent, each)


def _summed_part(problem: Problem, plans: Plans) -> Amounts:
    """The part of the sum that all tiles of a block go through before the next part."""
    if not problem.reductions:
        return np.ones(len(plans))
    return np.where(plans.sum_block > 0, plans.sum_block / problem.reductions[-1].extent, 1.0)


def _scattered_reads(problem: Problem, plans: Plans, tiles: Counts) -> Amounts:
    """Reads of vectors that lie apart, in each step: once where they are copied, by every tile where they are not."""
    reads = np.where(plans.copies, copies_made(problem, plans), tiles)
    return np.where(is_scattered(problem), reads, 0.0)


def _copied_vectors(problem: Problem, plans: Plans) -> Amounts:
    vectors = -(-plans.width // problem.lanes)
    return np.where(plans.copies, copies_made(problem, plans) * vectors, 0.0)


def _pieces(problem: Problem, spec: HardwareSpec, plans: Plans, tiles_wide: Counts) -> Amounts:
    """Pieces of each row of a result that have to be begun: of a large one whose rows lie on different pages, or whose
    windows are gone through in strips, each down all rows."""
    result_bytes = problem.batch * problem.points * problem.vector.extent * problem.contraction.bits // 8
    is_large = result_bytes > KEPT_SHARE * second_cache_bytes(spec)
    in_strips = (tiles_wide > 1) & (plans.block_rows == 0) & (problem.loads.window is not None)
    if problem.row_gap_bytes < PAGE_BYTES:
        return np.where(is_large & in_strips & is_batched(problem), STRIP_PIECES * tiles_wide, 0.0)
    return np.where(is_large, tiles_wide, 0.0)


def _other_cycles(problem: Problem, spec: HardwareSpec, plans: Plans, block: Counts) -> Amounts:
    """What serves only one tile is read once, but in pieces: at their ends, lines are shared with the next piece. And
    what windows reach of the next block is read again there, when all of a block has come between."""
    size_bytes, width_bytes = problem.operands.other_bytes, plans.width * problem.contraction.bits // 8
    share, reach = block / problem.points, _reach(problem, plans)
    block_bytes = size_bytes * share * reach
    sizes = (spec.caches[0].size_bytes, second_cache_bytes(spec))
    is_nearest, is_near = (block_bytes <= KEPT_SHARE * size for size in sizes)
    part_again = np.where(is_nearest, 0.0, np.where(is_near, NEAR_PIECES, 1.0))
    read_again = part_again * spec.caches[0].line_bytes / width_bytes
    in_pieces = np.where(plans.width < problem.vector.extent, 1.0 + read_again, 1.0)
    again = cycles_from(spec, (reach - 1.0) * (1.0 - share) * size_bytes, block_bytes)
    return cycles_from(spec, in_pieces * size_bytes, size_bytes * problem.batch) + again


def _reach(problem: Problem, plans: Plans) -> Amounts:
    """What a block reads over its share: windows reach into its neighbours."""
    window = problem.loads.window
    if window is None or not problem.others:
        return np.ones(len(plans))
    return window.reach(np.where(plans.block > 0, plans.block, problem.others[-1].extent))


def task_count(problem: Problem, plans: Plans) -> Counts:
    """Pieces that threads can share: tiles, unless a tail or partial sums keep some of their loops together."""
    others, rows = prod(loop.extent for loop in problem.others), problem.row_count
    whole = rows // np.where(rows % plans.rows == 0, plans.rows, tiled_rows(problem, plans))
    in_blocks = others * rows // block_points(problem, plans)
    even = np.where(plans.sum_block > 0, in_blocks, others * whole)
    has_tail = problem.vector.extent % plans.width > 0
    wide = -(-problem.vector.extent // plans.width)
    found = wide * np.where(has_tail, np.where(plans.block > 0, others, problem.batch), even)
    return np.where(plans.copies, problem.batch * copies_made(problem, plans), found)


def _idle(problem: Problem, spec: HardwareSpec, plans: Plans, tasks: Counts) -> Amounts:
    """The time of all cores over what they have to do; the last tile of vectors may be a smaller task than others."""
    extent, lanes, cores = problem.vector.extent, problem.lanes, spec.cores
    smaller = np.where(extent % plans.width > 0, tasks // -(-extent // plans.width), 0)
    share = -(-(extent % plans.width) // lanes) / -(-plans.width // lanes)
    whole = tasks - smaller
    all_work = whole + smaller * share
    last = np.where(whole % cores == 0, -(-smaller // cores) * share, 1.0)
    return cores * np.maximum(whole // cores + last, all_work / cores) / all_work


def _spread(problem: Problem, loads: tuple[Load, ...]) -> int:
    """Iterations of the other loops of a batch in each of which operands are read elsewhere."""
    others = [loop for loop in problem.others if not is_batch(problem.contraction, loop)]
    return prod(loop.extent for loop in others if any(uses(load, loop) for load in loads))
