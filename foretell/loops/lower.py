"""From tensor stages to kernels: stages that share outer axes become one loop nest.

A cluster is a run of stages whose first d axes have equal extents and that read one another only at the same point of
those axes. Its kernel runs the d outer loops once, and inside them each stage in turn; what only the cluster reads
lives in registers or on the stack.

    softmax over [b, s, k]:   for b, s parallel:  m = max_k x;  e[k] = exp(x - m);  t = sum_k e;  y[k] = e[k] / t
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import REDUCTION_OPERATIONS, Apply, Axis, Buffer, Index, Load, Scalar
from foretell.loops.axes import access_stride, collapse, join_axes, stride_along, vector_axis
from foretell.loops.cluster import Cluster, cluster_stages
from foretell.loops.fingerprint import run_key
from foretell.loops.fuse import Fused, is_static
from foretell.loops.interleave import interleaved
from foretell.loops.join_nests import join_nests
from foretell.loops.nodes import (
    Accumulate,
    Allocate,
    Block,
    For,
    Guard,
    Kernel,
    Statement,
    Store,
    Substituted,
    identity,
    loads_in,
    map_loads,
    substitute_scalar,
    substitute_statement,
)
from foretell.loops.plain_nests import flattened, map_accesses, with_own_buffers, without_single_iterations
from foretell.loops.several_rows import several_rows
from foretell.loops.split_chains import is_chain, split_chain
from foretell.loops.stages import TensorStage, body_cost, is_sum_of_products

PARALLEL_POINTS = 1 << 15
"""A nest with fewer points than this is not worth waking a thread for."""
BLOCK_POINTS = 1 << 13
"""Points of a flat loop that one task takes."""
CHAIN_POINTS = 1 << 10
"""The same where the loop is cut in parts: what one leaves for the next should stay in the nearest cache."""
ENOUGH_TASKS = 128
"""Tasks that divide evenly enough among the threads of any machine we know."""
COLUMN_BLOCK = 128
"""Columns of a transposition done before the next rows: as many pages as the first level of a TLB holds twice."""
ROW_BLOCKS = 8
"""Blocks of rows of a transposition that one task takes."""
ROWS_AT_A_TIME = 4
"""Rows that are added to one in a single pass over it."""
ROW_BLOCK = 512
"""Columns of a reduction of rows that one task takes."""


Scheduler: TypeAlias = Callable[[Kernel], Kernel | None]
"""Makes a plain nest fast, or declines."""


Finish: TypeAlias = Callable[[Kernel], Kernel]
"""The last passes over a kernel; they do not look at names."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """Which clusters become one kernel, given the buffers that others read; and how nests run inside its tiles."""

    groups: Callable[[Sequence[Cluster], frozenset[Buffer]], Sequence[Cluster | Fused]]
    schedule: Scheduler


def lower(
    stages: Sequence[TensorStage],
    kept: frozenset[Buffer],
    lanes: int,
    schedule: Scheduler | None = None,
    fusion: Fusion | None = None,
    finish: Finish = lambda kernel: kernel,
) -> list[Kernel]:
    """Kernels for inlined stages; `kept` buffers are read by others, `lanes` is the vector width in float32.

    Sums of products are given to `schedule` as plain nests; what it declines gets the same loops as everything else.
    `fusion` decides which nests are fused, tile by tile; without it, none are. Each kernel is given to `finish`.
    """
    in_parts = frozenset(stage.buffer for stage in stages if not stage.is_whole)
    clusters = cluster_stages([stage for stage in stages if not _is_empty(stage)], kept | in_parts)
    visible = kept | in_parts | read_across(clusters)
    empty = [Kernel(stage.buffer.name, (), (stage.buffer,), Block(())) for stage in stages if _is_empty(stage)]
    alone = _Alone(visible, lanes, schedule, finish)
    if fusion is None:
        return [*empty, *map(alone, clusters)]
    groups = fusion.groups(clusters, kept)
    return [
        *empty,
        *(
            alone(each) if isinstance(each, Cluster) else finish(_fused(each, visible, lanes, fusion))
            for each in groups
        ),
    ]


def read_across(clusters: Sequence[Cluster]) -> frozenset[Buffer]:
    """Buffers that one cluster fills and another one reads."""
    home = {stage.buffer: number for number, cluster in enumerate(clusters) for stage in cluster.stages}
    return frozenset(
        load.source
        for number, cluster in enumerate(clusters)
        for stage in cluster.stages
        for load in stage.loads
        if isinstance(load.source, Buffer) and home.get(load.source, number) != number
    )


@dataclass(frozen=True, slots=True)
class _Alone:
    """Kernels of clusters by themselves: blocks of a network repeat, and what is not scheduled is lowered once."""

    visible: frozenset[Buffer]
    lanes: int
    schedule: Scheduler | None
    finish: Finish
    known: dict[object, tuple[Kernel, tuple[Buffer, ...]]] = field(default_factory=dict)
    """By what they do: the first kernel that does it, and to which buffers."""

    def __call__(self, cluster: Cluster) -> Kernel:
        if not is_static(cluster) or (not cluster.has_rows and any(s.reduction == "sum" for s in cluster.stages)):
            return self._lowered(cluster)
        key, buffers = run_key([cluster.fingerprint], (self.visible,)), cluster.fingerprint.buffers
        if key not in self.known:
            self.known[key] = self._lowered(cluster), buffers
            return self.known[key][0]
        kernel, others = self.known[key]
        own = dict(zip(others, buffers, strict=True))
        body = map_accesses(kernel.body, lambda buffer, indices: (own.get(buffer, buffer), indices), {})
        reads, writes = (tuple(own[buffer] for buffer in some) for some in (kernel.reads, kernel.writes))
        return Kernel(cluster.stages[-1].buffer.name, reads, writes, body, cluster.stages[-1].location)

    def _lowered(self, cluster: Cluster) -> Kernel:
        return self.finish(_nest(cluster, self.visible, self.lanes, self.schedule))


def _fused(group: Fused, visible: frozenset[Buffer], lanes: int, fusion: Fusion) -> Kernel:
    visible = visible | set(group.between)
    nests = [_nest(member.cluster, visible, lanes, fusion.schedule) for member in group.members]
    return join_nests(group, nests)


def _is_empty(stage: TensorStage) -> bool:
    return any(axis.extent == 0 for axis in stage.axes)


# --- one nest ------------------------------------------------------------------------------------------------


def _nest(cluster: Cluster, kept: frozenset[Buffer], lanes: int, schedule: Scheduler | None) -> Kernel:
    depth, (stages, locals_) = cluster.depth, _with_own_locals(cluster, kept)
    if any(len(stage.axes) > depth for stage in stages):
        loops = _row_loops(stages, depth, lanes)
        axes, body, kept_here = several_rows(stages[0].axes[:depth], stages, loops, locals_)
        return _kernel(stages, _outer_loops(axes, _allocated(body, kept_here), _points(stages)))
    if schedule is not None and _has_one_sum(stages):
        scheduled = schedule(_plain_nest(stages, locals_))
        if scheduled is not None:
            return scheduled
    return _kernel(stages, _point_nest(stages[0].axes, stages, locals_, lanes))


def try_plain_nest(cluster: Cluster, kept: frozenset[Buffer]) -> Kernel | None:
    """The nest of a sum of products as schedules are asked for it; None for other clusters."""
    stages, locals_ = _with_own_locals(cluster, kept)
    is_plain = all(len(stage.axes) == cluster.depth for stage in stages) and _has_one_sum(stages)
    return _plain_nest(stages, locals_) if is_plain else None


def _with_own_locals(cluster: Cluster, kept: frozenset[Buffer]) -> tuple[list[TensorStage], list[Buffer]]:
    """The stages with their axes named alike, and with what only they read in registers or on the stack."""
    depth = cluster.depth
    stages = _rows_in_outputs(list(cluster.unified.stages), depth, kept)
    locals_ = {s.buffer: _local_buffer(s, depth) for s in stages if s.buffer not in kept and len(stages) > 1}
    return [_with_locals(stage, locals_, depth) for stage in stages], list(locals_.values())


def _kernel(stages: Sequence[TensorStage], statement: Statement) -> Kernel:
    reads = {load.source: None for stage in stages for load in reversed(stage.loads)}
    tables = tuple(buffer for buffer in reads if isinstance(buffer, Buffer) and buffer.scope == "table")
    writes = tuple(dict.fromkeys(stage.buffer for stage in stages if stage.buffer.scope == "table"))
    read_only = tuple(buffer for buffer in tables if buffer not in writes)
    return Kernel(stages[-1].buffer.name, read_only, writes, statement, stages[-1].location)


def _has_one_sum(stages: Sequence[TensorStage]) -> bool:
    """Whether one stage is a sum of products, and the others are computed point by point."""
    sums = [stage for stage in stages if stage.reduction is not None]
    return len(sums) == 1 and is_sum_of_products(sums[0])


def _plain_nest(stages: Sequence[TensorStage], locals_: Sequence[Buffer]) -> Kernel:
    """Serial loops over the points of the output, and at each of them the stages in turn; no loop runs just once."""
    places = [(stage.buffer, stage.place) for stage in stages if stage.buffer.scope == "table"]
    axes, bindings = collapse(stages[0].axes, places, [stage.body for stage in stages])
    moved = [replace(stage, body=substitute_scalar(stage.body, bindings)) for stage in stages]
    body = Block(tuple(_point_stage(stage, bindings, [], -1) for stage in moved))
    loops = flattened(without_single_iterations(_loops(axes, _allocated(body, locals_))))
    return with_own_buffers(_kernel(stages, loops))


def _rows_in_outputs(stages: list[TensorStage], depth: int, kept: frozenset[Buffer]) -> list[TensorStage]:
    """Rows that are last read to write the same elements of an output are kept in that output from the start.

    before: e[k] = exp(x[k] - m);  y[k] = e[k] / s        after: y[k] = exp(x[k] - m);  y[k] = y[k] / s

    The output's lines are then fetched while there is much to compute, not in a loop that only waits for them.
    """
    if all(len(stage.axes) == depth for stage in stages):
        return stages
    for number, stage in enumerate(stages):
        readers = [other for other in stages if _reads(other, stage.buffer)]
        if not readers:
            continue
        writer = readers[-1]
        if stage.buffer not in kept and writer.buffer in kept and _is_rewritten(stage, writer, depth):
            stages = [*stages[:number], replace(stage, buffer=writer.buffer), *stages[number + 1 :]]
            return _rows_in_outputs([_renamed(s, stage.buffer, writer.buffer) for s in stages], depth, kept)
    return stages


def _reads(stage: TensorStage, buffer: Buffer) -> bool:
    return any(load.source == buffer for load in loads_in(stage.body))


def _is_rewritten(stage: TensorStage, writer: TensorStage, depth: int) -> bool:
    """Whether a stage's elements are each read where the writer stores one of the same type, and nowhere else."""
    if len(stage.axes) == depth or writer.reduction is not None or stage.buffer.type != writer.buffer.type:
        return False
    reads = [load.indices for load in loads_in(writer.body) if load.source == stage.buffer]
    return not _reads(writer, writer.buffer) and all(indices == writer.place for indices in reads)


def _renamed(stage: TensorStage, old: Buffer, new: Buffer) -> TensorStage:
    def renamed(load: Load) -> Load:
        return replace(load, source=new) if load.source == old else load

    return replace(stage, body=map_loads(stage.body, renamed))


def _points(stages: Sequence[TensorStage]) -> Dim:
    total: Dim = 0
    for stage in stages:
        total = total + stage.points * max(1, round(body_cost(stage.body)))
    return total


def _local_buffer(stage: TensorStage, depth: int) -> Buffer:
    shape = tuple(axis.extent for axis in stage.axes[depth:])
    dtype = stage.buffer.dtype
    return Buffer(stage.buffer.name, dtype, shape, "stack" if shape else "register")


def _with_locals(stage: TensorStage, locals_: dict[Buffer, Buffer], depth: int) -> TensorStage:
    """Loads and the target with shared axes dropped where the buffer is local to the nest."""
    if not locals_:
        return stage

    def local(load: Load) -> Scalar:
        assert isinstance(load.source, Buffer)
        found = locals_.get(load.source)
        return load if found is None else Load(found, load.indices[depth:], load.dtype)

    body, own = map_loads(stage.body, local), locals_.get(stage.buffer)
    return (
        replace(stage, body=body) if own is None else replace(stage, body=body, buffer=own, place=stage.place[depth:])
    )


def _allocated(body: Statement, buffers: Sequence[Buffer]) -> Statement:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body


# --- loops of a row -------------------------------------------------------------------------------------------


def _row_loops(stages: Sequence[TensorStage], depth: int, lanes: int) -> list[Statement]:
    """The loops of each stage in turn; a reduction of what the stage before it stores runs in the same loop.

    before: for i: e[i] = exp(x[i]);  for r: s += e[r]      after: for i: e[i] = exp(x[i]); s += e[i]
    """
    statements: list[Statement] = []
    number = 0
    while number < len(stages):
        stage = stages[number]
        follower = stages[number + 1] if number + 1 < len(stages) else None
        if follower is not None and _reduces_what_it_stores(stage, follower, depth):
            statements.append(_store_and_reduce(stage, follower, depth))
            number += 2
            continue
        statements.append(_stage_loops(stage, stage.axes[depth:], lanes))
        number += 1
    return statements


def _reduces_what_it_stores(stage: TensorStage, follower: TensorStage, depth: int) -> bool:
    axes, reduced = stage.axes[depth:], follower.reduction_axes
    if stage.reduction is not None or len(axes) != 1 or len(reduced) != 1 or len(follower.axes) != depth:
        return False
    reads = [load for load in loads_in(follower.body) if load.source == stage.buffer]
    stored = _substituted(stage.place, {axes[0].sym: reduced[0].sym})
    same = all(load.indices == stored for load in reads)
    return bool(reads) and same and axes[0].extent == reduced[0].extent


def _store_and_reduce(stage: TensorStage, follower: TensorStage, depth: int) -> Statement:
    assert follower.reduction is not None
    (axis,) = stage.axes[depth:]
    value = substitute_scalar(follower.body, {follower.reduction_axes[0].sym: axis.sym})
    accumulator = _accumulator(follower)
    update = Block(
        (Store(stage.buffer, stage.place, stage.body), Accumulate(accumulator, (), follower.reduction, value))
    )
    return _reduction(follower, accumulator, For(axis.sym, axis.extent, "vector", update), follower.place)


def _accumulator(stage: TensorStage) -> Buffer:
    return Buffer(f"{stage.buffer.name}.acc", stage.buffer.dtype.compute, (), "register")


def _reduction(stage: TensorStage, accumulator: Buffer, update: Statement, place: tuple[Dim, ...]) -> Statement:
    """Start from the identity, accumulate, and store the result."""
    assert stage.reduction is not None
    start = Store(accumulator, (), identity(stage.reduction, stage.buffer.dtype))
    finish = Store(stage.buffer, place, Load(accumulator, (), accumulator.dtype))
    return Allocate(accumulator, Block((start, update, finish)))


# --- loops of one stage ---------------------------------------------------------------------------------------


def _stage_loops(stage: TensorStage, inner: tuple[Axis, ...], lanes: int) -> Statement:
    """The loops of one stage inside the shared ones, with its best axis in vectors."""
    place = stage.place
    if stage.reduction is None:
        axes, bindings = collapse(inner, [(stage.buffer, place)], [stage.body])
        store = Store(stage.buffer, _substituted(place, bindings), substitute_scalar(stage.body, bindings))
        return _loops(axes, store, vector=len(axes) - 1)
    accumulator = _accumulator(stage)
    reduced, bindings = collapse(stage.reduction_axes, [], [stage.body])
    body = substitute_scalar(stage.body, bindings)
    best = vector_axis(inner + reduced, [(stage.buffer, place)], [body], lanes)
    update = _loops(reduced, Accumulate(accumulator, (), stage.reduction, body), vector=best - len(inner))
    return _loops(inner, _reduction(stage, accumulator, update, place), vector=best if best < len(inner) else -1)


def _substituted(place: tuple[Dim, ...], bindings: dict[Sym, Dim]) -> tuple[Dim, ...]:
    return tuple(expr.substitute(index, bindings) for index in place)


def _loops(axes: Sequence[Axis], body: Statement, vector: int = -1, kind: str = "serial") -> Statement:
    """Nested loops over axes; the one numbered `vector` runs in vectors and is moved innermost."""
    order = [axis for number, axis in enumerate(axes) if number != vector]
    if 0 <= vector < len(axes):
        body = For(axes[vector].sym, axes[vector].extent, "vector", body)
    for axis in reversed(order):
        body = For(axis.sym, axis.extent, kind, body)
    return body


def _point_nest(
    outer: tuple[Axis, ...], stages: Sequence[TensorStage], locals_: Sequence[Buffer], lanes: int
) -> Statement:
    """Stages without inner axes: maps and reductions at each point of the outer axes, which may run in vectors."""
    places = [(stage.buffer, stage.place) for stage in stages if stage.buffer.scope == "table"]
    bodies = [stage.body for stage in stages]
    axes, bindings = collapse(outer, places, bodies)
    done = Substituted()
    stages = [replace(stage, body=substitute_scalar(stage.body, bindings, done)) for stage in stages]
    places = [(buffer, _substituted(place, bindings)) for buffer, place in places]
    if len(stages) == 1 and stages[0].reduction is None:
        transposed = _try_transposition(axes, replace(stages[0], place=places[0][1]), lanes)
        if transposed is not None:
            return transposed
    by_rows = _try_row_by_row(axes, stages, locals_, bindings)
    if by_rows is not None:
        return by_rows
    reduced = [axis for stage in stages for axis in stage.reduction_axes]
    best = vector_axis((*axes, *reduced), places, [stage.body for stage in stages], lanes)
    body = Block(tuple(_point_stage(stage, bindings, reduced, best - len(axes)) for stage in stages))
    points = _points(stages)
    if best >= len(axes) or not axes:
        return _outer_loops(axes, _allocated(body, locals_), points)
    rest = tuple(axis for number, axis in enumerate(axes) if number != best)
    inner = interleaved(For(axes[best].sym, axes[best].extent, "vector", _allocated(body, locals_)))
    if rest:
        return _outer_loops(rest, inner, points)
    return _blocked(axes[best], _allocated(body, locals_), points)


def _point_stage(stage: TensorStage, bindings: dict[Sym, Dim], reduced: list[Axis], vector: int) -> Statement:
    place = _substituted(stage.place, bindings)
    if stage.reduction is None:
        return Store(stage.buffer, place, stage.body)
    accumulator = _accumulator(stage)
    chosen = reduced[vector] if vector >= 0 else None
    number = stage.reduction_axes.index(chosen) if chosen in stage.reduction_axes and chosen else -1
    update = _loops(stage.reduction_axes, Accumulate(accumulator, (), stage.reduction, stage.body), vector=number)
    return _reduction(stage, accumulator, update, place)


def _try_row_by_row(
    axes: tuple[Axis, ...], stages: Sequence[TensorStage], locals_: Sequence[Buffer], bindings: dict[Sym, Dim]
) -> Statement | None:
    """A reduction of whole rows of memory into one, which stays in the cache while the others stream by.

    before: for c vector: s = 0; for r: s += x[r, c]; y[c] = s
    after:  for c vector: t[c] = 0;  for r: for c vector: t[c] += x[r, c];  for c vector: y[c] = t[c]

    Declines when the rows are not contiguous, or there is more to load than one element per point.
    """
    first, rest = stages[0], stages[1:]
    loads = list(loads_in(first.body))
    if first.reduction is None or any(stage.reduction is not None for stage in rest) or len(loads) != 1 or not axes:
        return None
    column = axes[-1]
    if _has_data_index(loads[0]) or _stride_of(loads[0], column.sym) != 1 or not _is_long(first, loads[0]):
        return None
    blocks = Axis(Sym(f"{column.sym.name}.b", 0), expr.ceildiv(column.extent, ROW_BLOCK))
    inside = Sym(f"{column.sym.name}.j", 0, ROW_BLOCK - 1)
    extent = expr.minimum(column.extent - blocks.sym * ROW_BLOCK, ROW_BLOCK)
    row = Buffer(f"{first.buffer.name}.row", first.buffer.dtype.compute, (ROW_BLOCK,), "stack")
    so_far = Load(row, (inside,), row.dtype)
    update = Block(tuple(_row_updates(first, row, inside, extent)))
    start = For(inside, extent, "vector", Store(row, (inside,), identity(first.reduction, first.buffer.dtype)))
    finish = [Store(first.buffer, _substituted(first.place, bindings), so_far)]
    finish += [Store(stage.buffer, _substituted(stage.place, bindings), stage.body) for stage in rest]
    last = For(inside, extent, "vector", _allocated(Block(tuple(finish)), locals_))
    body = substitute_statement(
        Allocate(row, Block((start, update, last))), {column.sym: blocks.sym * ROW_BLOCK + inside}
    )
    return _outer_loops((*axes[:-1], blocks), body, _points(stages))


def _row_updates(stage: TensorStage, row: Buffer, inside: Sym, extent: Dim) -> Iterator[Statement]:
    """Loops that add rows to one, several at a time: the sum is loaded and stored once for all of them.

    before: for r < 10: t[c] += x[r, c]
    after:  for r.b < 2: t[c] = t[c] + x[4*r.b, c] + ... + x[4*r.b + 3, c];  for r.t < 2: t[c] += x[r.t + 8, c]
    """
    assert stage.reduction is not None
    combine, outer, last = REDUCTION_OPERATIONS[stage.reduction], stage.reduction_axes[:-1], stage.reduction_axes[-1]

    def added(axis: Axis, rows: Sequence[Dim]) -> Statement:
        value: Scalar = Load(row, (inside,), row.dtype)
        for place in rows:
            value = Apply(combine, (value, substitute_scalar(stage.body, {last.sym: place})))
        return _loops((*outer, axis), For(inside, extent, "vector", Store(row, (inside,), value)))

    if not isinstance(last.extent, int) or last.extent < ROWS_AT_A_TIME or outer:
        yield added(last, [last.sym])
        return
    blocks, rest = divmod(last.extent, ROWS_AT_A_TIME)
    block = Axis(Sym(f"{last.sym.name}.b", 0, blocks - 1), blocks)
    yield added(block, [block.sym * ROWS_AT_A_TIME + number for number in range(ROWS_AT_A_TIME)])
    if rest:
        tail = Axis(Sym(f"{last.sym.name}.t", 0, rest - 1), rest)
        yield added(tail, [tail.sym + blocks * ROWS_AT_A_TIME])


def _has_data_index(load: Load) -> bool:
    return not all(isinstance(index, (int, expr.Expr)) for index in load.indices)


def _is_long(stage: TensorStage, load: Load) -> bool:
    """Whether the reduction strides through memory in steps that no prefetcher follows."""
    stride = _stride_of(load, stage.reduction_axes[-1].sym)
    return stride is None or abs(stride) * stage.buffer.dtype.itemsize >= 1024


def _try_transposition(axes: tuple[Axis, ...], stage: TensorStage, lanes: int) -> Statement | None:
    """Square blocks, where elements that are neighbours in the source lie far apart in the result.

    before: for u: for v: y[u, v] = x[v, u]
    after:  for U, V parallel: for U: for v vector: for u < lanes unroll: y[U + u, V + v] = x[V + v, U + u]

    The innermost loops load rows of x and transpose them in registers (codegen). Where blocks do not divide a side, its
    last one begins earlier and does some elements again. Declines when no single axis has all strided loads in a row,
    or a side is shorter than a block.
    """
    side = 4 * lanes // max(stage.buffer.dtype.itemsize, 4)
    axes, stage = _with_long_rows(axes, stage, side)
    sides = _transposed_axes(axes, stage)
    if sides is None or any(not isinstance(axis.extent, int) or axis.extent < side for axis in sides):
        return None
    row, column = sides
    rest = tuple(axis for axis in axes if axis not in sides)
    store = Store(stage.buffer, stage.place, stage.body)
    assert isinstance(row.extent, int) and isinstance(column.extent, int)
    (rows, rows_left), columns_left = divmod(row.extent, side), column.extent % side
    chunks = Axis(Sym(f"{row.sym.name}.b", 0), -(-rows // ROW_BLOCKS))
    blocks = Axis(Sym(f"{column.sym.name}.b", 0), -(-(column.extent - columns_left) // COLUMN_BLOCK))
    number, lane = Sym(f"{row.sym.name}.i", 0, ROW_BLOCKS - 1), Sym(f"{row.sym.name}.j", 0, side - 1)
    inside, edge = Sym(f"{column.sym.name}.j", 0, COLUMN_BLOCK - 1), Sym(f"{column.sym.name}.t", 0, side - 1)

    def across(first_row: Dim) -> Statement:
        """A block of rows, all its columns."""

        def along(sym: Sym, extent: Dim, first_column: Dim) -> Statement:
            place = {row.sym: first_row + lane, column.sym: first_column + sym}
            return For(sym, extent, "vector", For(lane, side, "unroll", substitute_statement(store, place)))

        start = blocks.sym * COLUMN_BLOCK
        whole = along(inside, expr.minimum(column.extent - columns_left - start, COLUMN_BLOCK), start)
        if not columns_left:
            return whole
        return Block((whole, _in_last(blocks, along(edge, side, column.extent - side))))

    start = chunks.sym * ROW_BLOCKS
    body: Statement = For(number, expr.minimum(rows - start, ROW_BLOCKS), "serial", across((start + number) * side))
    if rows_left:
        body = Block((body, _in_last(chunks, across(row.extent - side))))
    return _outer_loops((*rest, chunks, blocks), body, stage.points)


def _with_long_rows(axes: tuple[Axis, ...], stage: TensorStage, side: int) -> tuple[tuple[Axis, ...], TensorStage]:
    """The axis along which strided loads are contiguous, joined with the one around it if it is short."""
    sides = _transposed_axes(axes, stage)
    number = axes.index(sides[0]) if sides is not None else 0
    if sides is None or number == 0 or axes[number - 1] == sides[1] or not _is_shorter(sides[0], side):
        return axes, stage
    joined, bindings = join_axes(axes[number - 1 : number + 1])
    body, place = substitute_scalar(stage.body, bindings), _substituted(stage.place, bindings)
    return (*axes[: number - 1], joined, *axes[number + 1 :]), replace(stage, body=body, place=place)


def _is_shorter(axis: Axis, length: int) -> bool:
    return isinstance(axis.extent, int) and axis.extent < length


def _in_last(axis: Axis, statement: Statement) -> Statement:
    return Guard(Apply("eq", (Index(axis.sym), Index(axis.extent - 1))), statement)


def _transposed_axes(axes: tuple[Axis, ...], stage: TensorStage) -> tuple[Axis, Axis] | None:
    """(axis along which the strided loads are contiguous, axis along which the store is)."""
    column = next((a for a in axes if access_stride(stage.buffer, stage.place, a.sym) == 1), None)
    if column is None or stage.buffer.dtype.itemsize not in (4, 8):
        return None
    strided: list[Load] = []
    for load in loads_in(stage.body):
        plain = tuple(index for index in load.indices if isinstance(index, (int, expr.Expr)))
        assert isinstance(load.source, Buffer)
        if len(plain) != len(load.indices) or load.source.dtype.itemsize != stage.buffer.dtype.itemsize:
            return None
        if access_stride(load.source, plain, column.sym) not in (0, 1):
            strided.append(load)
    for axis in axes:
        if strided and all(_stride_of(load, axis.sym) == 1 for load in strided):
            return axis, column
    return None


def _stride_of(load: Load, sym: Sym) -> int | None:
    assert isinstance(load.source, Buffer)
    return stride_along(load.source, load.indices, sym)


def _outer_loops(axes: tuple[Axis, ...], body: Statement, points: Dim) -> Statement:
    """The outermost loops; where there is enough to do, as many of them as it takes are joined and shared by threads.

    The others stay loops: an index of a joined loop costs a division.
    """
    if not _is_large(points):
        return _loops(axes, body)
    count = _axes_to_share(axes)
    body = _loops(axes[count:], body)
    if count == 0:
        return body
    joined, bindings = join_axes(axes[:count])
    return For(joined.sym, joined.extent, "parallel", substitute_statement(body, bindings))


def _axes_to_share(axes: tuple[Axis, ...]) -> int:
    """The least number of leading axes whose iterations keep all threads busy."""
    tasks: Dim = 1
    for count, axis in enumerate(axes):
        if not isinstance(tasks, int) or tasks >= ENOUGH_TASKS:
            return count
        tasks = tasks * axis.extent
    return len(axes)


def _is_large(points: Dim) -> bool:
    return not isinstance(points, int) or points >= PARALLEL_POINTS


def _blocked(axis: Axis, body: Statement, points: Dim) -> Statement:
    """A flat vector loop, cut into blocks that threads share.

    before: for i < n vector      after: for b < ceil(n / B) parallel: for j < min(B, n - b*B) vector    i = b*B + j
    """
    if not _is_large(points):
        return For(axis.sym, axis.extent, "vector", body)
    size = CHAIN_POINTS if is_chain(body) else BLOCK_POINTS
    blocks = Axis(Sym(f"{axis.sym.name}.b", 0), expr.ceildiv(axis.extent, size))
    inside = Sym(f"{axis.sym.name}.j", 0, size - 1)
    start = blocks.sym * size
    body = substitute_statement(body, {axis.sym: start + inside})
    extent = expr.minimum(axis.extent - start, size)
    if is_chain(body):
        return For(blocks.sym, blocks.extent, "parallel", split_chain(inside, extent, size, body))
    return For(blocks.sym, blocks.extent, "parallel", For(inside, extent, "vector", body))
