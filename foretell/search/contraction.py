"""Schedules of a contraction: a sum of products over a tile of registers.

    for tiles of rows and of vectors:  acc = 0;  for reductions: acc[row, lane] += a[row] * b[lane];  out = f(acc)

One axis of the output runs in vectors; one or two others are the rows of the tile. What the tile costs is the greatest
of three: multiply-adds against their ports, loads against theirs, and the chain through one accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Buffer, Load, dtype_of
from foretell.loops.axes import access_stride
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Guard, Kernel, Statement, Store, loads_in
from foretell.schedule.pack import Part
from foretell.schedule.steps import Cut, Hold, Pack, Parallelise, Reorder, Schedule, Step, Tile, Unroll, Vectorise
from foretell.target.hardware_spec import HardwareSpec

SPARE_REGISTERS = 1
"""Registers of a tile that hold neither sums nor the vectors they are made from: the element being broadcast."""
WAY_BYTES = 4096
LOAD_SHARE = 0.6
"""Of the loads that could start each cycle, those that do between multiply-adds; measured on Ice Lake."""
STEP_CYCLES = 0.5
"""What a step of the reduction loses to its loop, whatever the tile: large ones lose less."""
CONFLICT_CYCLES = 0.3
"""What a step of the reduction waits for each row that was pushed out of the first cache; measured on Ice Lake."""
MOST_ROWS = 28
MOST_VECTORS = 8
UNROLLED_POINTS = 16
"""Reductions of at most so many points are written out where neighbouring rows read the same elements."""
PARALLEL_POINTS = 1 << 15
"""A nest with fewer points than this is not worth waking a thread for."""
ENOUGH_TASKS = 64
KEPT_SHARE = 0.6
"""The part of a cache that is still there when it is read again."""
OVERLAP_LOSS = 0.2
"""The part of computing, or of waiting for memory, that the longer of the two does not hide."""


@dataclass(frozen=True, slots=True)
class Loop:
    name: str
    sym: Sym
    extent: int


@dataclass(frozen=True, slots=True)
class Contraction:
    """What a plain nest computes: its loops, the loads of the product, and what is stored at each point."""

    outer: tuple[Loop, ...]
    reductions: tuple[Loop, ...]
    loads: tuple[Load, ...]
    around: tuple[tuple[Buffer, tuple[object, ...]], ...]
    """Places that are read or written once for each point of the output."""
    bits: int

    @property
    def reduced(self) -> int:
        return prod(loop.extent for loop in self.reductions)

    @property
    def points(self) -> int:
        return prod(loop.extent for loop in self.outer) * self.reduced


def try_contraction(kernel: Kernel) -> Contraction | None:
    """A plain nest with one sum in it, all of whose extents are known; None for anything else."""
    outer: list[Loop] = []
    body = kernel.body
    while isinstance(body, For):
        if not isinstance(body.extent, int) or body.kind != "serial":
            return None
        outer.append(Loop(body.sym.name, body.sym, body.extent))
        body = body.body
    found = list(_sums(body, ()))
    if len(found) != 1 or not outer:
        return None
    (reductions, update) = found[0]
    if any(not isinstance(loop.extent, int) for loop in reductions):
        return None
    loops = tuple(Loop(loop.sym.name, loop.sym, loop.extent) for loop in reductions if isinstance(loop.extent, int))
    loads = tuple(dict.fromkeys(loads_in(update.value)))
    if not all(_is_plain(load) for load in loads):
        return None
    bits = 8 * max(4, update.buffer.dtype.itemsize, *(dtype_of(load).itemsize for load in loads))
    return Contraction(tuple(outer), loops, loads, tuple(_places(body)), bits)


def _sums(statement: Statement, loops: tuple[For, ...]) -> Iterator[tuple[tuple[For, ...], Accumulate]]:
    match statement:
        case Accumulate():
            yield loops, statement
        case For(_, _, _, body):
            yield from _sums(body, (*loops, statement))
        case Block(statements):
            for inner in statements:
                yield from _sums(inner, loops)
        case Allocate(_, body) | Guard(_, body):
            yield from _sums(body, loops)
        case Store():
            return


def _places(statement: Statement) -> Iterator[tuple[Buffer, tuple[object, ...]]]:
    """Table buffers that are touched outside the reduction."""
    match statement:
        case Block(statements):
            for inner in statements:
                yield from _places(inner)
        case Allocate(_, body) | Guard(_, body):
            yield from _places(body)
        case Store(buffer, indices, value):
            if buffer.scope == "table":
                yield buffer, indices
            for load in loads_in(value):
                if isinstance(load.source, Buffer) and load.source.scope == "table":
                    yield load.source, load.indices
        case For() | Accumulate():
            return


def _is_plain(load: Load) -> bool:
    return all(isinstance(index, (int, expr.Expr)) for index in load.indices)


# --- how operands move along an axis --------------------------------------------------------------------------


def stride_along(buffer: Buffer, indices: Sequence[object], sym: Sym) -> int | None:
    """Elements that an address moves by for each step of a loop; None if that is not one number."""
    plain = tuple(index for index in indices if isinstance(index, (int, expr.Expr)))
    return access_stride(buffer, plain, sym) if len(plain) == len(indices) else None


def can_be_packed(load: Load, sym: Sym, constants: frozenset[str]) -> bool:
    """Whether a constant can be stored with this axis innermost: one index is the axis, and no other mentions it."""
    assert isinstance(load.source, Buffer)
    using = [index for index in load.indices if isinstance(index, expr.Expr) and sym in expr.symbols(index)]
    return load.source.name in constants and using == [sym]


def is_vector_axis(contraction: Contraction, loop: Loop, constants: frozenset[str]) -> bool:
    """Whether every operand is the same in all lanes, or a vector, or can be made one at compile time."""
    for load in contraction.loads:
        assert isinstance(load.source, Buffer)
        is_near = stride_along(load.source, load.indices, loop.sym) in (0, 1)
        if not is_near and not can_be_packed(load, loop.sym, constants):
            return False
    return True


def axis_cost(contraction: Contraction, loop: Loop, lanes: int) -> float:
    """Lanes that stay empty, and what strided places around the sum cost, per point of the output."""
    filled = loop.extent / (-(-loop.extent // lanes) * lanes)
    strided = sum(stride_along(buffer, indices, loop.sym) not in (0, 1) for buffer, indices in contraction.around)
    return (contraction.reduced / lanes) / filled + strided


# --- tiles ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of a tile and elements of its vectors."""

    rows: int
    width: int


@dataclass(frozen=True, slots=True)
class TileLoads:
    """What a step of the reduction loads: for each row, for each vector, and for each vector of each row."""

    by_row: int
    by_vector: int
    by_both: int
    row_bytes: int = 0
    """How far apart rows lie in memory."""


def tile_cycles(spec: HardwareSpec, rows: int, vectors: int, loads: TileLoads) -> float:
    """Cycles of one step of the reduction."""
    count = loads.by_row * rows + loads.by_vector * vectors + loads.by_both * rows * vectors
    multiply_adds = rows * vectors / spec.fma_ports
    waiting = count / (spec.load_ports * LOAD_SHARE)
    cycles = max(multiply_adds, waiting, float(spec.fma_latency_cycles)) + STEP_CYCLES
    return cycles + loads.by_row * missed_rows(spec, rows, loads.row_bytes) * CONFLICT_CYCLES


def missed_rows(spec: HardwareSpec, rows: int, row_bytes: int) -> int:
    """Rows that push each other out of the first cache: those that lie at equal places of its ways.

    A way is as large as a page, because the place within a page is known before its address is translated. Lines that
    are fetched ahead take as many places as those in use.
    """
    ways = spec.caches[0].size_bytes // WAY_BYTES // 2
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


def tile_loads(contraction: Contraction, rows: Loop | None, vector: Loop) -> TileLoads:
    by_row = by_vector = by_both = row_bytes = 0
    for load in contraction.loads:
        assert isinstance(load.source, Buffer)
        on_row, on_lane = rows is not None and _uses(load, rows), _uses(load, vector)
        by_both += on_row and on_lane
        by_vector += on_lane and not on_row
        by_row += on_row and not on_lane
        if rows is not None and on_row and not on_lane:
            stride = stride_along(load.source, load.indices, rows.sym) or 0
            row_bytes = max(row_bytes, abs(stride) * load.source.dtype.itemsize)
    return TileLoads(by_row, by_vector, by_both, row_bytes)


# --- blocks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """A tile, and the block of rows that runs through all tiles of the vectors before the next block does.

    With no `block_loop` the block is the whole output: every tile of the vectors meets all rows in turn.
    """

    shape: TileShape
    block_loop: str | None = None
    block: int = 1
    """Iterations of that loop in a block."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Bytes of the operands that serve all rows, of those that serve all vectors, and of those that serve neither."""

    vector_bytes: float
    row_bytes: float
    other_bytes: float


def operands_of(contraction: Contraction, vector: Loop, rows: Loop | None) -> Operands:
    """Of one batch."""
    batch = prod(loop.extent for loop in batch_loops(contraction, vector, rows))
    vectors = others = 0.0
    total = sum(map(_bytes, contraction.loads)) / batch
    for load in contraction.loads:
        if _uses(load, vector) and rows is not None and _uses(load, rows):
            others += _bytes(load) / batch
        elif _uses(load, vector):
            vectors += _bytes(load) / batch
    return Operands(vectors, total - vectors - others, others)


def batch_loops(contraction: Contraction, vector: Loop, rows: Loop | None) -> list[Loop]:
    """Loops that choose among independent contractions: every operand depends on them."""
    others = [loop for loop in contraction.outer if loop not in (vector, rows)]
    return [loop for loop in others if all(_uses(load, loop) for load in contraction.loads)]


def plans(contraction: Contraction, spec: HardwareSpec, vector: Loop, rows: Loop | None) -> Iterator[Plan]:
    """Every tile, with every block that loops divide into."""
    lanes = spec.vector_lanes(contraction.bits)
    others = [loop for loop in contraction.outer if loop not in (vector, rows)]
    for shape in tile_shapes(spec, rows.extent if rows else 1, vector.extent, lanes):
        if vector.extent % shape.width:
            # The tail of the vectors is a nest of its own inside the loops that threads share.
            if others:
                yield Plan(shape, others[-1].name, 1)
            continue
        yield Plan(shape)
        if others:
            yield from (Plan(shape, others[-1].name, size) for size in _divisors(others[-1].extent))
        elif rows is not None and rows.extent % shape.rows == 0:
            tiles = rows.extent // shape.rows
            yield from (Plan(shape, f"{rows.name}.o", size) for size in _divisors(tiles))


def _divisors(number: int) -> list[int]:
    return [factor for factor in range(1, number) if number % factor == 0]


def plan_cycles(
    contraction: Contraction,
    spec: HardwareSpec,
    vector: Loop,
    rows: Loop | None,
    operands: Operands,
    loads: TileLoads,
    plan: Plan,
) -> float:
    """Cycles of the whole contraction on one core: tiles, and what they wait for the caches."""
    lanes, shape = spec.vector_lanes(contraction.bits), plan.shape
    count = rows.extent if rows else 1
    batch = prod(loop.extent for loop in batch_loops(contraction, vector, rows))
    others = prod(loop.extent for loop in contraction.outer if loop not in (vector, rows)) // batch
    compute = contraction.reduced * others * covering_cycles(spec, shape, count, vector.extent, lanes, loads)
    points = others * count
    block = (
        points if plan.block_loop is None else plan.block * (shape.rows if plan.block_loop.endswith(".o") else count)
    )
    tiles_wide, row_tiles = -(-vector.extent // shape.width), others * -(-count // shape.rows)
    slab = operands.vector_bytes / tiles_wide
    block_bytes = operands.row_bytes * block / points
    tile_bytes = operands.row_bytes / row_tiles
    blocks = points / block
    tiles_in_block = row_tiles / blocks
    # A tile reads its slab of vectors and its rows; both are nearest if they were read just before.
    slab_first = _cycles_from(spec, slab, operands.vector_bytes + block_bytes)
    slab_again = _cycles_from(spec, slab, slab + tile_bytes)
    rows_first = _cycles_from(spec, tile_bytes, operands.row_bytes + operands.vector_bytes)
    rows_again = _cycles_from(spec, tile_bytes, block_bytes + slab)
    memory = blocks * tiles_wide * (slab_first + (tiles_in_block - 1) * slab_again)
    memory += blocks * tiles_in_block * (rows_first + (tiles_wide - 1) * rows_again)
    # What serves only one tile is read once, in whole lines.
    lines = max(1.0, spec.caches[0].line_bytes / (shape.width * contraction.bits / 8))
    memory += _cycles_from(spec, lines * operands.other_bytes, operands.other_bytes)
    return batch * (max(compute, memory) + OVERLAP_LOSS * min(compute, memory))


def _cycles_from(spec: HardwareSpec, size_bytes: float, between_bytes: float) -> float:
    """Cycles to read something again after so many bytes in all; what is still in the first cache is free."""
    for number, level in enumerate(spec.caches):
        if between_bytes <= KEPT_SHARE * level.size_bytes:
            return size_bytes / level.bandwidth_bytes_per_cycle if number else 0.0
    return size_bytes * spec.frequency_hz / spec.dram_core_bandwidth_bytes_per_s


# --- the schedule ---------------------------------------------------------------------------------------------


def try_schedule(kernel: Kernel, spec: HardwareSpec, constants: frozenset[str]) -> Schedule | None:
    """The schedule that is predicted to be fastest; None if no axis of the output suits vectors."""
    contraction = try_contraction(kernel)
    if contraction is None:
        return None
    axes = vector_and_rows(contraction, spec, constants)
    if axes is None:
        return None
    vector, rows = axes
    operands, loads = operands_of(contraction, vector, rows), tile_loads(contraction, rows, vector)
    plan = min(
        plans(contraction, spec, vector, rows),
        key=lambda plan: plan_cycles(contraction, spec, vector, rows, operands, loads, plan),
        default=None,
    )
    return None if plan is None else build_schedule(contraction, vector, rows, plan, constants)


def vector_and_rows(
    contraction: Contraction, spec: HardwareSpec, constants: frozenset[str]
) -> tuple[Loop, Loop | None] | None:
    """The axis of the output that runs in vectors and the one whose rows share them; None if none suits vectors."""
    lanes = spec.vector_lanes(contraction.bits)
    candidates = [loop for loop in contraction.outer if is_vector_axis(contraction, loop, constants)]
    if not candidates:
        return None
    vector = min(reversed(candidates), key=lambda loop: axis_cost(contraction, loop, lanes))
    return vector, _row_axis(contraction, [loop for loop in contraction.outer if loop != vector], vector)


def _row_axis(contraction: Contraction, others: Sequence[Loop], vector: Loop) -> Loop | None:
    """The axis along which most is shared: operands in vectors should not depend on it."""

    def key(loop: Loop) -> tuple[int, bool, int]:
        return tile_loads(contraction, loop, vector).by_both, loop.extent == 1, -others.index(loop)

    return min(others, key=key) if others else None


def build_schedule(
    contraction: Contraction, vector: Loop, rows: Loop | None, plan: Plan, constants: frozenset[str]
) -> Schedule:
    """The steps that bring a plain nest into tiles."""
    v, width = vector.name, plan.shape.width
    others = [loop.name for loop in contraction.outer if loop not in (vector, rows)]
    row_names = [rows.name] if rows else []
    steps: list[Step] = [Reorder((*others, *row_names, v))]
    vector_tiles = [f"{v}.i"]
    extents = {loop.name: loop.extent for loop in contraction.outer}
    if vector.extent % width:
        steps += [Reorder((*others, v, *row_names)), Cut(v, vector.extent // width * width), Tile(v, width)]
        steps += [Reorder((f"{v}.o", *row_names, f"{v}.i")), Reorder((*row_names, f"{v}.t"))] if rows else []
        vector_tiles.append(f"{v}.t")
        shared = others
    else:
        steps.append(Tile(v, width))
        extents[f"{v}.o"] = vector.extent // width
        shared, block_steps = _blocked(plan, others, row_names, f"{v}.o", f"{v}.i", extents)
        steps += block_steps
    row_steps, row_tiles = _row_steps(rows, plan.shape)
    steps += row_steps
    steps += [Hold((row, tile)) for row in row_tiles for tile in vector_tiles]
    steps += [Hold((tile,)) for tile in vector_tiles] if rows is None else []
    if rows is not None and len(row_tiles) == 1 and not vector.extent % width:
        extents[f"{rows.name}.o"] = rows.extent // plan.shape.rows
        if plan.block_loop == f"{rows.name}.o":
            steps += [Tile(f"{rows.name}.o", plan.block)]
            extents[f"{rows.name}.o.o"] = extents[f"{rows.name}.o"] // plan.block
            steps.append(Reorder((f"{rows.name}.o.o", f"{v}.o")))
            shared = [f"{rows.name}.o.o", *shared, f"{rows.name}.o.i"]
            extents[f"{rows.name}.o.i"] = plan.block
        else:
            shared = [*shared, f"{rows.name}.o"]
    steps += _reduction_steps(contraction, vector, rows)
    steps += [Unroll(row) for row in row_tiles]
    steps += [Vectorise(tile) for tile in vector_tiles]
    steps += _pack_steps(contraction, vector, width, constants)
    return (*steps, *_parallel_steps(contraction, shared, extents))


def _blocked(
    plan: Plan, others: list[str], row_names: list[str], outer: str, inner: str, extents: dict[str, int]
) -> tuple[list[str], list[Step]]:
    """The loops outside the tiles in order, and the steps that put them there."""
    if plan.block_loop not in others:
        order = [outer, *others]
        return order, [Reorder((*order, *row_names, inner))]
    before, last = others[:-1], others[-1]
    extents[f"{last}.o"], extents[f"{last}.i"] = extents[last] // plan.block, plan.block
    order = [*before, f"{last}.o", outer, f"{last}.i"]
    return order, [Tile(last, plan.block), Reorder((*order, *row_names, inner))]


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


def _uses(load: Load, loop: Loop) -> bool:
    return any(isinstance(index, expr.Expr) and loop.sym in expr.symbols(index) for index in load.indices)


def _bytes(load: Load) -> int:
    assert isinstance(load.source, Buffer)
    return prod(dim for dim in load.source.shape if isinstance(dim, int)) * load.source.dtype.itemsize


def _reduction_steps(contraction: Contraction, vector: Loop, rows: Loop | None) -> list[Step]:
    """Reductions in the order in which the broadcast operand lies in memory; short ones written out if rows overlap."""
    steps: list[Step] = []
    order = sorted(contraction.reductions, key=lambda loop: -_reduction_stride(contraction, loop, vector))
    names = tuple(loop.name for loop in order)
    if len(names) > 1 and names != tuple(loop.name for loop in contraction.reductions):
        steps.append(Reorder(names))
    overlaps = rows is not None and tile_loads(contraction, rows, vector).by_both > 0
    if overlaps and contraction.reduced <= UNROLLED_POINTS:
        steps += [Unroll(name) for name in names]
    return steps


def _reduction_stride(contraction: Contraction, loop: Loop, vector: Loop) -> float:
    """How far apart neighbours along a reduction lie, in the operand that is not in vectors if there is one."""
    moving = [load for load in contraction.loads if not _uses(load, vector)] or list(contraction.loads)
    strides = [stride_along(load.source, load.indices, loop.sym) for load in moving if isinstance(load.source, Buffer)]
    return max((abs(stride) if stride is not None else float("inf")) for stride in strides)


def _pack_steps(contraction: Contraction, vector: Loop, width: int, constants: frozenset[str]) -> list[Step]:
    """Constant operands in vectors: blocks of a tile's width, in the order of the loops inside."""
    steps: list[Step] = []
    order = [
        *(loop.sym for loop in contraction.outer),
        *(
            loop.sym
            for loop in sorted(contraction.reductions, key=lambda loop: -_reduction_stride(contraction, loop, vector))
        ),
    ]
    for load in contraction.loads:
        assert isinstance(load.source, Buffer)
        if not _uses(load, vector) or not can_be_packed(load, vector.sym, constants):
            continue
        if len({other.indices for other in contraction.loads if other.source == load.source}) > 1:
            continue
        blocked = load.indices.index(vector.sym)

        def place(dimension: int, load: Load = load) -> tuple[int, int]:
            used = [order.index(sym) for sym in expr.symbols(_plain(load.indices[dimension])) if sym in order]
            return (max(used, default=-1), dimension)

        rest = sorted((number for number in range(len(load.indices)) if number != blocked), key=place)
        parts = (Part(blocked, width), *(Part(number) for number in rest), Part(blocked, 1, width))
        steps.append(Pack(load.source.name, parts))
    return steps


def _plain(index: object) -> int | expr.Expr:
    assert isinstance(index, (int, expr.Expr))
    return index
