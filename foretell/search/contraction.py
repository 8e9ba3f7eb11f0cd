"""What a sum of products looks like to a schedule: its loops, its operands, and which axes suit vectors and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Load, Scalar, dtype_of
from foretell.loops.axes import stands_alone, stride_along
from foretell.loops.nodes import Accumulate, Allocate, Block, Fetch, For, Guard, Kernel, Statement, Store, loads_in
from foretell.loops.stages import cost_together
from foretell.target.hardware_spec import HardwareSpec

UNROLLED_POINTS = 32
"""Sums of at most so many points are written out where neighbouring rows read the same elements."""
EVERY_SECOND = 2.5
"""What a vector of every second element counts as, in loads: two of them and a shuffle."""
FACTORS = 2
"""Of a product, where they are sums themselves."""
LINE_BYTES = 64
JUMP_COST = 0.5
"""What waiting for a line at every step adds to a sum, as a part of computing it."""


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
    around: tuple[tuple[Buffer, tuple[Dim | Scalar, ...]], ...]
    """Places that are read or written once for each point of the output."""
    bits: int
    operations: float
    """What is computed besides the sum, once for each point of the output, in additions."""
    products: int = 1
    """Multiply-adds of a step of the sum."""
    additions: int = 0
    """What is added up before it is multiplied, in each step."""

    @property
    def reduced(self) -> int:
        return prod(loop.extent for loop in self.reductions)

    @property
    def points(self) -> int:
        return prod(loop.extent for loop in self.outer) * self.reduced


def try_contraction(kernel: Kernel) -> Contraction | None:
    """A plain nest with one sum in it, all of whose extents are known and not 0; None for anything else."""
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
    if any(not isinstance(loop.extent, int) or loop.extent == 0 for loop in (*outer, *reductions)):
        return None
    loops = tuple(Loop(loop.sym.name, loop.sym, loop.extent) for loop in reductions if isinstance(loop.extent, int))
    loads = tuple(dict.fromkeys(loads_in(update.value)))
    if not all(_is_plain(load) for load in loads):
        return None
    bits = 8 * max(4, update.buffer.dtype.itemsize, *(dtype_of(load).itemsize for load in loads))
    products, additions = _products(update.value), _additions(update.value)
    return Contraction(
        tuple(outer), loops, loads, tuple(_places(body)), bits, cost_together(_values(body)), products, additions
    )


def _products(value: Scalar) -> int:
    """Terms that a step of a sum adds up."""
    match value:
        case Apply("add", (first, second)):
            return _products(first) + _products(second)
        case _:
            return 1


def _additions(value: Scalar) -> int:
    """Additions inside of terms."""
    match value:
        case Apply("add", (first, second)):
            return _additions(first) + _additions(second)
        case Apply("mul", factors):
            return sum(isinstance(factor, Apply) and factor.op in ("add", "sub") for factor in factors)
        case _:
            return 0


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
        case Store() | Fetch():
            return


def _places(statement: Statement) -> Iterator[tuple[Buffer, tuple[Dim | Scalar, ...]]]:
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
        case For() | Accumulate() | Fetch():
            return


def _values(statement: Statement) -> Iterator[Scalar]:
    """What is stored outside the reduction."""
    match statement:
        case Block(statements):
            for inner in statements:
                yield from _values(inner)
        case Allocate(_, body) | Guard(_, body):
            yield from _values(body)
        case Store(_, _, value):
            yield value
        case For() | Accumulate() | Fetch():
            return


def _is_plain(load: Load) -> bool:
    return all(isinstance(index, (int, expr.Expr)) for index in load.indices)


# --- how operands move along an axis --------------------------------------------------------------------------


def can_be_packed(load: Load, sym: Sym, constants: frozenset[str]) -> bool:
    """Whether a load is of a constant that can be stored with this axis innermost."""
    assert isinstance(load.source, Buffer)
    return load.source.name in constants and stands_alone(load, sym)


def is_vector_axis(contraction: Contraction, loop: Loop, constants: frozenset[str]) -> bool:
    """Whether every operand is the same in all lanes, or every element or every second one of a run, or can be made a
    vector at compile time."""
    for load in contraction.loads:
        assert isinstance(load.source, Buffer)
        is_near = stride_along(load.source, load.indices, loop.sym) in (0, 1, 2)
        if not is_near and not can_be_packed(load, loop.sym, constants):
            return False
    return True


def axis_cost(contraction: Contraction, loop: Loop, lanes: int, constants: frozenset[str]) -> float:
    """Per point of the output: lanes that stay empty, operands whose every element is on a line of its own, unless they
    are packed, and strided places around the sum."""
    filled = loop.extent / (-(-loop.extent // lanes) * lanes)
    strided = sum(stride_along(buffer, indices, loop.sym) not in (0, 1) for buffer, indices in contraction.around)
    around = [load for load in contraction.loads if not uses(load, loop) and not _is_constant(load, constants)]
    jumping = sum(_jumps(load, contraction) for load in around)
    return (contraction.reduced / lanes) * (1 / filled + JUMP_COST * jumping) + strided


def _is_constant(load: Load, constants: frozenset[str]) -> bool:
    return isinstance(load.source, Buffer) and load.source.name in constants


def _jumps(load: Load, contraction: Contraction) -> bool:
    """Whether each step of a sum reads an operand from another line, whichever reduction runs innermost."""
    assert isinstance(load.source, Buffer)
    strides = [stride_along(load.source, load.indices, loop.sym) for loop in contraction.reductions]
    return all(stride is None or abs(stride) * load.source.dtype.itemsize >= LINE_BYTES for stride in strides)


def is_batch(contraction: Contraction, loop: Loop) -> bool:
    """Whether iterations of a loop have no operand in common."""
    return all(uses(load, loop) for load in contraction.loads)


def uses(load: Load, loop: Loop) -> bool:
    return any(isinstance(index, expr.Expr) and loop.sym in expr.symbols(index) for index in load.indices)


def touched_bytes(load: Load, contraction: Contraction) -> int:
    """Bytes of an operand that are read at all: loops may go through a part of it, and a stride may leave some out."""
    assert isinstance(load.source, Buffer)
    loops = (*contraction.outer, *contraction.reductions)
    own = frozenset(loop.sym for loop in loops)
    elements = 1
    for index, dim in zip(load.indices, load.source.shape, strict=True):
        assert isinstance(index, (int, expr.Expr))
        _, inside = expr.split(index, own)
        low, high = expr.bounds(inside)
        points = prod(loop.extent for loop in loops if loop.sym in expr.symbols(inside))
        reach = points if low is None or high is None else high - low + 1
        elements *= min(points, reach, dim if isinstance(dim, int) else points)
    points = prod(loop.extent for loop in loops if uses(load, loop))
    return min(elements, points) * load.source.dtype.itemsize


# --- the axes of a tile ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Window:
    """A short sum in which rows read, besides their own, elements of their neighbours."""

    points: int
    """Of the whole sum."""
    length: int
    """Of the sum along the rows."""
    step: int
    """By how much the window moves from row to row, in points of the sum."""
    shared: int
    """Operands that all rows and vectors share: one element each."""
    grain_bytes: int = 4
    """Places where vectors begin are multiples of this."""
    overlap: float = 0.0
    """What one iteration of the innermost loop besides rows and vectors reads of the next one's, over its own."""

    def distinct(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Places along the rows that so many of them read."""
        return np.minimum(rows * self.length, (rows - 1) * self.step + self.length)

    def reach(self, length: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """What so many iterations of that loop read, over what is their own: windows reach into their neighbours."""
        return 1 + self.overlap / length


@dataclass(frozen=True, slots=True)
class TileLoads:
    """What a step of the reduction loads: for each row, for each vector, and for each vector of each row."""

    by_row: float
    by_vector: float
    by_both: float
    row_bytes: int = 0
    """How far apart rows lie in memory."""
    window: Window | None = None
    """What neighbouring rows have in common, if the sum is so short that all of it is written out."""
    packed: float = 0.0
    """Of those for each vector, what constants count that are packed tile by tile."""
    products: int = 1
    """Multiply-adds for each vector of each row,"""
    additions: int = 0
    """and additions besides."""

    @property
    def held(self) -> int:
        """Registers for each vector besides its sums."""
        return int(self.by_vector) if self.additions else 1

    @property
    def spare(self) -> int:
        """Registers that hold neither sums nor the vectors they are made from: elements for all lanes, and factors."""
        return int(self.by_row) + FACTORS if self.additions else 1


@dataclass(frozen=True, slots=True)
class Operands:
    """Bytes of the operands that serve all rows, of those that serve all vectors, and of those that serve neither."""

    vector_bytes: float
    row_bytes: float
    other_bytes: float
    vector_loads: tuple[Load, ...] = ()
    row_loads: tuple[Load, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """What tiles read of an operand that others read again, by how far apart it lies in memory, in bytes; 0 where it
    stays the same."""

    lane_bytes: int
    row_bytes: int
    sum_bytes: tuple[int, ...]
    """Along each reduction."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction with the axis that runs in vectors and the one whose rows share them."""

    contraction: Contraction
    lanes: int
    vector: Loop
    rows: Loop | None
    others: tuple[Loop, ...]
    """Loops of the output besides these two, in order."""
    reductions: tuple[Loop, ...]
    """In the order in which the operand that is not in vectors lies in memory, its neighbours last."""
    loads: TileLoads
    operands: Operands
    batch: int
    """Independent contractions: iterations of loops that every operand depends on."""
    row_gap_bytes: int
    """How far apart the rows of a tile are stored."""
    copyable: Load | None
    """The operand in vectors that all rows share, unless it is a constant, which is packed anyway."""
    vector_panels: tuple[Panel, ...] = ()
    """Of operands that serve all rows."""
    row_panels: tuple[Panel, ...] = ()
    """Of operands that serve all vectors."""

    @property
    def row_count(self) -> int:
        return self.rows.extent if self.rows else 1

    @property
    def points(self) -> int:
        """Rows of all loops of one batch but the one in vectors."""
        return self.row_count * prod(loop.extent for loop in self.others) // self.batch


def try_problem(contraction: Contraction, spec: HardwareSpec, constants: frozenset[str]) -> Problem | None:
    """The problem with the axes that cost least; None if no axis of the output suits vectors."""
    lanes = spec.vector_lanes(contraction.bits)
    candidates = [loop for loop in contraction.outer if is_vector_axis(contraction, loop, constants)]
    if not candidates:
        return None
    vector = min(reversed(candidates), key=lambda loop: axis_cost(contraction, loop, lanes, constants))
    rows = _row_axis(contraction, [loop for loop in contraction.outer if loop != vector], vector)
    others = tuple(loop for loop in contraction.outer if loop not in (vector, rows))
    batch = prod(loop.extent for loop in others if is_batch(contraction, loop))
    order = sorted(contraction.reductions, key=lambda loop: -_reduction_stride(contraction, loop, vector))
    loads, operands = tile_loads(contraction, rows, vector, constants), _operands(contraction, vector, rows, batch)
    gap, copyable = _row_gap(contraction, rows), _copyable(contraction, rows, vector, constants)
    panels = [
        tuple(_panels(some, vector, rows, order, constants)) for some in (operands.vector_loads, operands.row_loads)
    ]
    return Problem(
        contraction, lanes, vector, rows, others, tuple(order), loads, operands, batch, gap, copyable, *panels
    )


def _row_axis(contraction: Contraction, others: Sequence[Loop], vector: Loop) -> Loop | None:
    """The axis along which most is shared: operands in vectors should not depend on it."""

    def key(loop: Loop) -> tuple[float, bool, int]:
        return tile_loads(contraction, loop, vector).by_both, loop.extent == 1, -others.index(loop)

    return min(others, key=key) if others else None


def tile_loads(
    contraction: Contraction, rows: Loop | None, vector: Loop, constants: frozenset[str] = frozenset()
) -> TileLoads:
    """Counted for one step; rows of a constant lie side by side, because it is packed so."""
    by_row = by_vector = by_both = packed = 0.0
    row_bytes = 0
    for load in contraction.loads:
        assert isinstance(load.source, Buffer)
        on_row, on_lane = rows is not None and uses(load, rows), uses(load, vector)
        is_strided = on_lane and stride_along(load.source, load.indices, vector.sym) == 2
        price = EVERY_SECOND if is_strided and not can_be_packed(load, vector.sym, constants) else 1.0
        by_both += price if on_row and on_lane else 0.0
        by_vector += price if on_lane and not on_row else 0.0
        packed += on_lane and not on_row and can_be_packed(load, vector.sym, constants)
        by_row += on_row and not on_lane
        if rows is not None and on_row and not on_lane and not can_be_packed(load, rows.sym, constants):
            stride = stride_along(load.source, load.indices, rows.sym) or 0
            row_bytes = max(row_bytes, abs(stride) * load.source.dtype.itemsize)
    window = _window(contraction, rows, vector)
    return TileLoads(by_row, by_vector, by_both, row_bytes, window, packed, contraction.products, contraction.additions)


def _window(contraction: Contraction, rows: Loop | None, vector: Loop) -> Window | None:
    both = [load for load in contraction.loads if rows is not None and uses(load, rows) and uses(load, vector)]
    if rows is None or len(both) != 1 or contraction.reduced > UNROLLED_POINTS:
        return None
    (load,) = both
    assert isinstance(load.source, Buffer)
    shared = sum(not uses(other, rows) and not uses(other, vector) for other in contraction.loads)
    loops = [loop for loop in (*contraction.outer, *contraction.reductions) if loop != vector]
    strides = (stride_along(load.source, load.indices, loop.sym) for loop in loops)
    grain_bytes = load.source.dtype.itemsize * gcd(*(1 if stride is None else stride for stride in strides))
    length, step = _length_and_step(contraction, load, rows)
    others = [loop for loop in contraction.outer if loop not in (vector, rows)]
    reach, move = _length_and_step(contraction, load, others[-1]) if others else (1, 1)
    return Window(contraction.reduced, length, step, shared, grain_bytes, (reach - move) / move)


def _length_and_step(contraction: Contraction, load: Load, loop: Loop) -> tuple[int, int]:
    """Of the window along a loop: points of the sum, and by how many of them it moves; 1 and 1 if none lie along it."""
    assert isinstance(load.source, Buffer)
    step = stride_along(load.source, load.indices, loop.sym)
    for reduction in contraction.reductions:
        along = stride_along(load.source, load.indices, reduction.sym)
        if step and along and step % along == 0 and step // along < reduction.extent:
            return reduction.extent, step // along
    return 1, 1


def _row_gap(contraction: Contraction, rows: Loop | None) -> int:
    if rows is None:
        return 0
    strides = [(stride_along(buffer, indices, rows.sym) or 0, buffer) for buffer, indices in contraction.around]
    return max((abs(stride) * buffer.dtype.itemsize for stride, buffer in strides), default=0)


def _copyable(contraction: Contraction, rows: Loop | None, vector: Loop, constants: frozenset[str]) -> Load | None:
    """The one operand of which every tile of rows reads the same vectors, if it is read at one place only."""
    shared = [load for load in contraction.loads if uses(load, vector) and not (rows and uses(load, rows))]
    if len(shared) != 1 or rows is None or can_be_packed(shared[0], vector.sym, constants):
        return None
    return shared[0] if sum(load.source == shared[0].source for load in contraction.loads) == 1 else None


def _panels(
    loads: Iterable[Load], vector: Loop, rows: Loop | None, reductions: Sequence[Loop], constants: frozenset[str]
) -> Iterator[Panel]:
    """Of operands that move by one number along each loop; what is packed lies side by side."""
    axes = [vector] if rows is None else [vector, rows]
    for load in loads:
        assert isinstance(load.source, Buffer)
        strides = [stride_along(load.source, load.indices, loop.sym) for loop in (*axes, *reductions)]
        if None in strides or any(uses(load, axis) and can_be_packed(load, axis.sym, constants) for axis in axes):
            continue
        lane, *others = (abs(stride or 0) * load.source.dtype.itemsize for stride in strides)
        row = 0 if rows is None else others.pop(0)
        yield Panel(lane, row, tuple(others))


def _operands(contraction: Contraction, vector: Loop, rows: Loop | None, batch: int) -> Operands:
    """Of one batch."""
    by_both = tuple(load for load in contraction.loads if rows is not None and uses(load, vector) and uses(load, rows))
    by_vector = tuple(load for load in contraction.loads if uses(load, vector) and load not in by_both)
    by_row = tuple(load for load in contraction.loads if not uses(load, vector))
    vector_bytes, row_bytes, other_bytes = (
        sum(touched_bytes(load, contraction) / batch for load in some) for some in (by_vector, by_row, by_both)
    )
    return Operands(vector_bytes, row_bytes, other_bytes, by_vector, by_row)


def _reduction_stride(contraction: Contraction, loop: Loop, vector: Loop) -> float:
    """How far apart neighbours along a reduction lie, in the operand that is not in vectors if there is one."""
    moving = [load for load in contraction.loads if not uses(load, vector)] or list(contraction.loads)
    strides = [stride_along(load.source, load.indices, loop.sym) for load in moving if isinstance(load.source, Buffer)]
    return max((abs(stride) if stride is not None else float("inf")) for stride in strides)
