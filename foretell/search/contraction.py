"""Schedules of a contraction: a sum of products over a tile of registers.

    for tiles of rows and of vectors:  acc = 0;  for reductions: acc[row, lane] += a[row] * b[lane];  out = f(acc)

One axis of the output runs in vectors; one or two others are the rows of the tile. What the tile costs is the greatest
of three: multiply-adds against their ports, loads against theirs, and the chain through one accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

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
MOST_ROWS = 28
MOST_VECTORS = 8
UNROLLED_POINTS = 16
"""Reductions of at most so many points are written out where neighbouring rows read the same elements."""
PARALLEL_POINTS = 1 << 15
"""A nest with fewer points than this is not worth waking a thread for."""
ENOUGH_TASKS = 64
KEPT_SHARE = 0.75
"""The part of a cache that is still there when it is read again."""


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


def tile_cycles(spec: HardwareSpec, rows: int, vectors: int, row_loads: int, vector_loads: int, both: int) -> float:
    """Cycles of one step of the reduction, from the loads that depend on rows, on lanes, and on both."""
    loads = row_loads * rows + vector_loads * vectors + both * rows * vectors
    multiply_adds = rows * vectors / spec.fma_ports
    return max(multiply_adds, loads / spec.load_ports, float(spec.fma_latency_cycles))


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


def covering_cycles(
    spec: HardwareSpec, shape: TileShape, rows: int, width: int, lanes: int, loads: tuple[int, int, int]
) -> float:
    """Cycles per step of the reduction to cover the whole output: full tiles and tails."""
    total = 0.0
    for count, tall in ((rows // shape.rows, shape.rows), (1, rows % shape.rows)):
        for times, wide in ((width // shape.width, shape.width), (1, width % shape.width)):
            if count and times and tall and wide:
                total += count * times * tile_cycles(spec, tall, -(-wide // lanes), *loads)
    return total


def load_counts(contraction: Contraction, rows: Loop | None, vector: Loop) -> tuple[int, int, int]:
    """Loads of a step that depend on the row alone, on the lane alone, and on both."""
    counts = [0, 0, 0]
    for load in contraction.loads:
        used = frozenset().union(*(expr.symbols(index) for index in load.indices if isinstance(index, expr.Expr)))
        on_row, on_lane = rows is not None and rows.sym in used, vector.sym in used
        if on_row and on_lane:
            counts[2] += 1
        elif on_lane:
            counts[1] += 1
        else:
            counts[0] += 1 if on_row else 0
    return counts[0], counts[1], counts[2]


# --- the schedule ---------------------------------------------------------------------------------------------


def try_schedule(kernel: Kernel, spec: HardwareSpec, constants: frozenset[str]) -> Schedule | None:
    """The schedule whose tile is predicted to be fastest; None if no axis of the output suits vectors."""
    contraction = try_contraction(kernel)
    if contraction is None:
        return None
    lanes = spec.vector_lanes(contraction.bits)
    candidates = [loop for loop in contraction.outer if is_vector_axis(contraction, loop, constants)]
    if not candidates:
        return None
    vector = min(reversed(candidates), key=lambda loop: axis_cost(contraction, loop, lanes))
    others = [loop for loop in contraction.outer if loop != vector]
    rows = _row_axis(contraction, others, vector)
    count = rows.extent if rows else 1
    loads = load_counts(contraction, rows, vector)
    shape = min(
        tile_shapes(spec, count, vector.extent, lanes),
        key=lambda shape: (
            covering_cycles(spec, shape, count, vector.extent, lanes, loads),
            -shape.rows * shape.width,
        ),
    )
    return build_schedule(kernel, contraction, spec, vector, rows, shape, constants)


def _row_axis(contraction: Contraction, others: Sequence[Loop], vector: Loop) -> Loop | None:
    """The axis along which most is shared: operands in vectors should not depend on it."""

    def key(loop: Loop) -> tuple[int, bool, int]:
        loads = load_counts(contraction, loop, vector)
        return loads[2], loop.extent == 1, -others.index(loop)

    return min(others, key=key) if others else None


def build_schedule(
    kernel: Kernel,
    contraction: Contraction,
    spec: HardwareSpec,
    vector: Loop,
    rows: Loop | None,
    shape: TileShape,
    constants: frozenset[str],
) -> Schedule:
    """The steps that bring a plain nest into the form of a tile."""
    v, width = vector.name, shape.width
    others = [loop.name for loop in contraction.outer if loop not in (vector, rows)]
    row_names = [rows.name] if rows else []
    has_width_tail = vector.extent % width != 0
    vector_first = not has_width_tail and _is_vector_outermost(contraction, spec, vector, rows, shape)
    steps: list[Step] = [Reorder((*others, *row_names, v)) if others or row_names else Reorder((v,))]
    tiles = [f"{v}.i"]
    if has_width_tail:
        # The tail is a nest of its own inside the other loops, which threads share.
        steps += [Reorder((*others, v, *row_names)), Cut(v, vector.extent // width * width), Tile(v, width)]
        steps += [Reorder((f"{v}.o", *row_names, f"{v}.i")), Reorder((*row_names, f"{v}.t"))] if rows else []
        tiles.append(f"{v}.t")
    elif vector_first:
        steps += [Tile(v, width), Reorder((f"{v}.o", *others, *row_names, f"{v}.i"))]
    else:
        steps += [Tile(v, width), Reorder((*others, f"{v}.o", *row_names, f"{v}.i"))]
    row_tiles: list[str] = []
    if rows is not None:
        tail = rows.extent % shape.rows
        if tail:
            steps.append(Cut(rows.name, rows.extent - tail))
            row_tiles.append(f"{rows.name}.t")
        steps.append(Tile(rows.name, shape.rows))
        row_tiles.insert(0, f"{rows.name}.i")
        steps += [Hold((row, tile)) for row in row_tiles for tile in tiles]
    else:
        steps += [Hold((tile,)) for tile in tiles]
    steps += _reduction_steps(contraction, vector, rows)
    steps += [Unroll(row) for row in row_tiles]
    steps += [Vectorise(tile) for tile in tiles]
    steps += _pack_steps(contraction, vector, width, constants)
    outermost = [f"{v}.o", *others] if vector_first else others
    if contraction.points >= PARALLEL_POINTS:
        steps += _parallel_steps(contraction, outermost, vector, rows, shape, bool(row_tiles[1:]), vector_first)
    return tuple(steps)


def _parallel_steps(
    contraction: Contraction,
    outermost: Sequence[str],
    vector: Loop,
    rows: Loop | None,
    shape: TileShape,
    has_row_tail: bool,
    vector_first: bool,
) -> list[Step]:
    """As many of the outermost loops as give every thread enough to do."""
    extents = {loop.name: loop.extent for loop in contraction.outer}
    extents[f"{vector.name}.o"] = vector.extent // shape.width
    names = list(outermost)
    if not vector_first and vector.extent % shape.width == 0:
        names.append(f"{vector.name}.o")
    if rows is not None and not has_row_tail and (vector_first or vector.extent % shape.width == 0):
        names.append(f"{rows.name}.o")
        extents[f"{rows.name}.o"] = rows.extent // shape.rows
    chosen: list[str] = []
    tasks = 1
    for name in names:
        if tasks >= ENOUGH_TASKS:
            break
        chosen.append(name)
        tasks *= extents[name]
    return [Parallelise(tuple(chosen))] if tasks > 1 else []


def _is_vector_outermost(
    contraction: Contraction, spec: HardwareSpec, vector: Loop, rows: Loop | None, shape: TileShape
) -> bool:
    """Whether to go through all rows for one tile of the vectors first: what is read again should be near."""
    cycles: dict[bool, float] = {}
    second = spec.caches[min(1, len(spec.caches) - 1)]
    tiles = {True: vector.extent // shape.width, False: prod(_row_tiles(contraction, vector, rows, shape))}
    for vector_first in (True, False):
        bytes_read = sum(_bytes(load) for load in contraction.loads if _uses(load, vector) != vector_first)
        level = second if bytes_read <= KEPT_SHARE * second.size_bytes else spec.caches[-1]
        cycles[vector_first] = bytes_read * tiles[vector_first] / level.bandwidth_bytes_per_cycle
    return cycles[True] < cycles[False]


def _row_tiles(contraction: Contraction, vector: Loop, rows: Loop | None, shape: TileShape) -> Iterator[int]:
    for loop in contraction.outer:
        if loop == rows:
            yield -(-loop.extent // shape.rows)
        elif loop != vector:
            yield loop.extent


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
    overlaps = rows is not None and load_counts(contraction, rows, vector)[2] > 0
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
