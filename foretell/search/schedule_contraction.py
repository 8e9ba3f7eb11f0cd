"""The schedule of a sum of products: the steps that bring a plain nest into the form that a plan asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer, Load, Scalar
from foretell.loops.nodes import Kernel
from foretell.schedule.pack import Part
from foretell.schedule.steps import (
    BlockSum,
    Copy,
    Cut,
    Hold,
    Pack,
    Parallelise,
    Reorder,
    Schedule,
    Step,
    Tile,
    Unroll,
    Vectorise,
)
from foretell.search.contraction import (
    Contraction,
    Loop,
    Problem,
    can_be_packed,
    is_batch,
    try_contraction,
    try_problem,
    uses,
)
from foretell.search.plan_terms import PlanTerms, plan_terms
from foretell.search.plans import Plan, Plans, TileShape, every_plan
from foretell.target.hardware_spec import HardwareSpec

UNROLLED_STEPS = 4
"""Steps of other reductions that are written out: more than the loop around them costs does not pay."""
PARALLEL_POINTS = 1 << 15
"""A nest with fewer points than this is not worth waking a thread for."""
ENOUGH_TASKS = 64


@dataclass(frozen=True, slots=True)
class RankedPlans:
    """Plans of a nest, the one to choose first, with what they spend their time on."""

    problem: Problem
    plans: Plans
    terms: PlanTerms


def try_schedule(kernel: Kernel, spec: HardwareSpec, constants: frozenset[str]) -> Schedule | None:
    """The schedule that is predicted to be fastest; None if no axis of the output suits vectors."""
    problem = _try_problem(kernel, spec, constants)
    if problem is None:
        return None
    plans = every_plan(problem, spec)
    best = int(plan_terms(problem, spec, plans).ranking.argmin())
    return build_schedule(problem, plans[best], constants)


def best_terms(kernel: Kernel, spec: HardwareSpec, constants: frozenset[str]) -> PlanTerms | None:
    """What that schedule spends its time on."""
    problem = _try_problem(kernel, spec, constants)
    if problem is None:
        return None
    terms = plan_terms(problem, spec, every_plan(problem, spec))
    return terms.take(int(terms.ranking.argmin()))


def rank_plans(kernel: Kernel, spec: HardwareSpec, constants: frozenset[str]) -> RankedPlans | None:
    """All plans of a nest; None if no axis of the output suits vectors."""
    problem = _try_problem(kernel, spec, constants)
    if problem is None:
        return None
    plans = every_plan(problem, spec)
    terms = plan_terms(problem, spec, plans)
    order = terms.ranking.argsort(kind="stable")
    return RankedPlans(problem, plans.take(order), terms.take(order))


def schedules(kernel: Kernel, spec: HardwareSpec, constants: frozenset[str]) -> list[Schedule]:
    """Every schedule of the space, those predicted to be fastest first; none if no axis of the output suits vectors."""
    ranked = rank_plans(kernel, spec, constants)
    return [] if ranked is None else list(distinct_schedules(ranked, constants))


def distinct_schedules(ranked: RankedPlans, constants: frozenset[str]) -> dict[Schedule, int]:
    """Every schedule, and the number of the first plan for it.

    Plans that differ in what makes no difference to the steps count once.
    """
    found: dict[Schedule, int] = {}
    for number in range(len(ranked.plans)):
        found.setdefault(build_schedule(ranked.problem, ranked.plans[number], constants), number)
    return found


def _try_problem(kernel: Kernel, spec: HardwareSpec, constants: frozenset[str]) -> Problem | None:
    contraction = try_contraction(kernel)
    return try_problem(contraction, spec, constants) if contraction else None


def build_schedule(problem: Problem, plan: Plan, constants: frozenset[str]) -> Schedule:
    """The steps that bring a plain nest into tiles."""
    v, rows, shape = problem.vector.name, _rows_of_block(problem, plan), plan.shape
    row_names = [rows.name] if rows else []
    extents = {loop.name: loop.extent for loop in problem.contraction.outer}
    outside, inside, steps = _around(problem, plan, extents)
    tail = problem.vector.extent % shape.width
    vector_tiles = [f"{v}.i", f"{v}.t"] if tail else [f"{v}.i"]
    steps += [Reorder((*outside, v, *inside, *row_names)), Tile(v, shape.width)]
    if inside or rows:
        steps += [Reorder((*inside, *row_names, each)) for each in vector_tiles]
    extents[f"{v}.o"] = -(-problem.vector.extent // shape.width)
    outside = [*outside, f"{v}.o"]
    if plan.copies:
        first = (*inside, *row_names)[0]
        steps += [_copy_step(problem, first, each) for each in vector_tiles]
    row_steps, row_tiles = _row_steps(rows, shape)
    is_cut = len(row_tiles) > 1
    if is_cut:
        steps += _reduction_steps(problem, plan, [(*inside, *row_names, each) for each in vector_tiles])
    steps += row_steps
    if rows is not None and not is_cut and not tail:
        row = f"{rows.name}.o"
        extents[row] = rows.extent // shape.rows
        if plan.block_loop == row:
            extents[f"{row}.o"], extents[f"{row}.i"] = extents[row] // plan.block, plan.block
            steps += [Tile(row, plan.block), Reorder((f"{row}.o", f"{v}.o"))]
            outside, inside = [*outside[:-1], f"{row}.o", outside[-1]], [f"{row}.i"]
        else:
            inside = [*inside, row]
    row_loop = [f"{rows.name}.o"] if rows is not None and f"{rows.name}.o" not in inside else []
    if plan.block_loop in row_loop:
        row_loop = []
    if not is_cut:
        steps += _reduction_steps(problem, plan, [(*inside, *row_loop, *row_tiles, each) for each in vector_tiles])
    steps += [Hold((row, each)) for row in row_tiles for each in vector_tiles] if rows else []
    steps += [Hold((each,)) for each in vector_tiles] if rows is None else []
    steps += _unroll_steps(problem, plan)
    steps += [*map(Unroll, row_tiles), *map(Vectorise, vector_tiles)]
    steps += _pack_steps(problem, plan, constants)
    shared = outside if plan.sum_block or plan.copies or tail else [*outside, *inside]
    return (*steps, *_parallel_steps(problem.contraction, shared, extents))


def _around(problem: Problem, plan: Plan, extents: dict[str, int]) -> tuple[list[str], list[str], list[Step]]:
    """The other loops that run outside the tiles of vectors, those that run inside, and the steps that part them."""
    names = [loop.name for loop in problem.others]
    load, rows, block = problem.copyable, problem.rows, _rows_of_block(problem, plan)
    blocks: list[str] = []
    steps: list[Step] = []
    if rows is not None and block is not None and rows != block:
        blocks.append(f"{rows.name}.o")
        steps.append(Tile(rows.name, block.extent))
        extents[blocks[0]] = rows.extent // block.extent
    if plan.copies and load is not None:
        apart = [loop.name for loop in problem.others if uses(load, loop)]
    elif plan.block_loop not in names:
        apart = [loop.name for loop in problem.others if is_batch(problem.contraction, loop)]
    else:
        last = names[-1]
        extents[f"{last}.o"], extents[f"{last}.i"] = extents[last] // plan.block, plan.block
        steps.append(Tile(last, plan.block))
        return [*names[:-1], f"{last}.o"], [f"{last}.i"], steps
    return [*blocks, *apart], [name for name in names if name not in apart], steps


def _rows_of_block(problem: Problem, plan: Plan) -> Loop | None:
    """The rows, or those of a block if blocks are parted before tiles are."""
    rows = problem.rows
    if rows is None or plan.block_loop is None:
        return rows
    if plan.block_loop == rows.name:
        return Loop(f"{rows.name}.i", rows.sym, plan.block)
    return Loop(f"{rows.name}.i", rows.sym, plan.block * plan.shape.rows) if plan.copies else rows


def _copy_step(problem: Problem, before: str, tile: str) -> Step:
    """The operand in vectors, side by side for a tile."""
    load = problem.copyable
    assert load is not None and isinstance(load.source, Buffer)
    return Copy(load.source.name, before, (*(loop.name for loop in problem.reductions), tile))


def _row_steps(rows: Loop | None, shape: TileShape) -> tuple[list[Step], list[str]]:
    """The rows in tiles, and the names of the loops inside them: a tail has its own."""
    if rows is None:
        return [], []
    tail = rows.extent % shape.rows
    if tail == 0:
        return [Tile(rows.name, shape.rows)], [f"{rows.name}.i"]
    cut = Cut(rows.name, rows.extent - tail)
    return [cut, Tile(rows.name, shape.rows)], [f"{rows.name}.i", f"{rows.name}.t"]


def _parallel_steps(contraction: Contraction, shared: Sequence[str], extents: dict[str, int]) -> list[Step]:
    """As many of the outermost loops as give every thread enough to do."""
    chosen: list[str] = []
    tasks = 1
    for name in shared:
        if tasks >= ENOUGH_TASKS:
            break
        chosen.append(name)
        tasks *= extents[name]
    return [Parallelise(tuple(chosen))] if tasks > 1 and contraction.points >= PARALLEL_POINTS else []


def _reduction_steps(problem: Problem, plan: Plan, tiles: Sequence[tuple[str, ...]]) -> list[Step]:
    """Reductions in order, the innermost in blocks if that is the plan, around the loops of each kind of tile."""
    steps: list[Step] = []
    names = [loop.name for loop in problem.reductions]
    if len(names) > 1 and names != [loop.name for loop in problem.contraction.reductions]:
        steps.append(Reorder(tuple(names)))
    if plan.sum_block:
        inner = names.pop()
        steps.append(Tile(inner, plan.sum_block))
        steps += [Reorder((f"{inner}.o", *names, f"{inner}.i"))] if names else []
        steps += [BlockSum(f"{inner}.o", around) for around in tiles]
    return steps


def _unroll_steps(problem: Problem, plan: Plan) -> list[Step]:
    """Short reductions are written out where neighbouring rows read the same elements; others a few steps at a time."""
    if not problem.reductions:
        return []
    if problem.loads.window is not None and not plan.sum_block:
        return [Unroll(loop.name) for loop in problem.reductions]
    inner = problem.reductions[-1]
    name, extent = (f"{inner.name}.i", plan.sum_block) if plan.sum_block else (inner.name, inner.extent)
    most = max(1, UNROLLED_STEPS // problem.contraction.products)
    if problem.contraction.additions and plan.shape.width > problem.lanes:
        most = 1  # a second step begins before the first is over, and its factors find no registers
    steps = max(size for size in range(1, most + 1) if extent % size == 0)
    return [Tile(name, steps), Unroll(f"{name}.i")] if 1 < steps < extent else []


def _pack_steps(problem: Problem, plan: Plan, constants: frozenset[str]) -> list[Step]:
    """Constant operands in blocks of a tile, its vectors or its rows, in the order of the loops inside."""
    steps: list[Step] = []
    contraction = problem.contraction
    for load in contraction.loads:
        assert isinstance(load.source, Buffer)
        is_read_once = len({other.indices for other in contraction.loads if other.source == load.source}) == 1
        for loop, size in ((problem.vector, plan.shape.width), (problem.rows, plan.shape.rows)):
            if loop is not None and is_read_once and can_be_packed(load, loop.sym, constants):
                steps.append(Pack(load.source.name, _parts(problem, plan, load, loop, size)))
                break
    return steps


def _parts(problem: Problem, plan: Plan, load: Load, loop: Loop, size: int) -> tuple[Part, ...]:
    """Blocks of a loop's dimension first, the others in the order of their loops, and what is inside a block last."""
    order = [each.sym for each in (*problem.contraction.outer, *problem.reductions)]
    blocked = load.indices.index(loop.sym)

    def place(dimension: int) -> tuple[int, int]:
        index = load.indices[dimension]
        assert isinstance(index, (int, expr.Expr))
        return max((order.index(sym) for sym in expr.symbols(index) if sym in order), default=-1), dimension

    rest = sorted((number for number in range(len(load.indices)) if number != blocked), key=place)
    around = [number for number in rest if _is_around(load.indices[number], order)]
    parts = [Part(number) for number in rest if number not in around]
    inner = problem.reductions[-1:]
    if plan.sum_block and inner and inner[0].sym in load.indices:
        summed = load.indices.index(inner[0].sym)
        parts[parts.index(Part(summed))] = Part(summed, 1, plan.sum_block)
        parts.insert(0, Part(summed, plan.sum_block))
    return (*map(Part, around), Part(blocked, size), *parts, Part(blocked, 1, size))


def _is_around(index: Dim | Scalar, loops: Sequence[Sym]) -> bool:
    """Whether loops outside the nest decide on an index, and none of its own."""
    symbols = expr.symbols(index) if isinstance(index, (int, expr.Expr)) else frozenset[Sym]()
    return bool(symbols) and symbols.isdisjoint(loops)
