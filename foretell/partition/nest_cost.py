"""What a nest takes, alone or as a part of a fused kernel: computing, and moving its operands between the caches.

The closed forms that choose the schedule of a sum of products (`search/plans.py`) say what it computes and what it
reads again and again. Fusing changes from where operands come the first time, and where results go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Cast, Const, Index, Load, Scalar, Select
from foretell.loops.axes import vector_cost
from foretell.loops.cluster import Cluster
from foretell.loops.fuse import with_tiles_apart
from foretell.loops.lower import try_plain_nest
from foretell.loops.nodes import Kernel, at_origin
from foretell.loops.ranges import Range, ranges_written, shortened
from foretell.loops.restrict import Restricted
from foretell.loops.stages import OPERATION_COSTS
from foretell.search.schedule_contraction import best_terms
from foretell.search.tiles import OVERLAP_LOSS
from foretell.support.frozen import frozen
from foretell.target.hardware_spec import HardwareSpec, with_cores

MOVE_CYCLES = 0.75
"""What a vector costs that is loaded, stored or made by a simple operation."""
TRANSPOSED = 4.0
"""What a vector costs, in loads, that is transposed with others in registers."""
PAGE_BYTES = 4096


@frozen
class Operand:
    """What one run of a nest reads of a buffer, or writes to it."""

    buffer: Buffer
    size_bytes: float
    tiles: frozenset[Sym]
    """Symbols that decide which part it is; of what is read."""
    pieces: int
    """Runs that it consists of, each on pages of its own."""
    run_bytes: float
    """How much of it lies side by side."""


@dataclass(frozen=True, slots=True)
class NestCost:
    """Cycles of one core for one run of a nest, and what it reads and writes."""

    compute: float
    memory: float
    """Moving operands, if each was read or written just before."""
    waiting: float
    near_bytes: float
    """What was touched since, as `memory` has it: 0 if it leaves operands out."""
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]

    def cycles(self, further: float = 0.0) -> float:
        """With further cycles of moving operands."""
        shorter, longer = sorted((self.compute, self.memory + further))
        return longer + OVERLAP_LOSS * shorter + self.waiting


@dataclass(slots=True)
class NestCosts:
    """Costs of nests on one CPU; equal nests are looked at once."""

    spec: HardwareSpec
    constants: frozenset[str]
    _known: dict[object, _Known] = field(default_factory=dict)
    _moves: dict[object, list[_Moves]] = field(default_factory=dict)
    _one_core: HardwareSpec = field(init=False)

    def __post_init__(self) -> None:
        self._one_core = with_cores(self.spec, 1)

    def of(
        self,
        nest: Restricted,
        visible: frozenset[Buffer],
        whole: object,
        tiles: Sequence[Axis] = (),
    ) -> NestCost:
        """A cluster whose sizes are numbers; `whole` is equal for whole clusters that do the same."""
        operands = tuple(_operand(buffer, ranges) for buffer, ranges in nest.reads.items())
        key = (whole, nest.part, nest.extents)
        if key not in self._known:
            products = self._of_products(nest, tiles, visible)
            compute, memory, waiting = products or (self._moving(nest, key[:2]), 0.0, 0.0)
            writes = tuple(_writes(nest, visible))
            self._known[key] = _Known(compute, memory, waiting, products is not None, writes)
        known = self._known[key]
        near_bytes = sum(operand.size_bytes for operand in operands) if known.is_product else 0.0
        filled = [stage.buffer for stage in nest.whole.stages if stage.buffer in visible]
        writes = tuple(
            each if each.buffer is buffer else replace(each, buffer=buffer)
            for each, buffer in zip(known.writes, filled, strict=True)
        )
        return NestCost(known.compute, known.memory, known.waiting, near_bytes, operands, writes)

    def _of_products(
        self, nest: Restricted, tiles: Sequence[Axis], visible: frozenset[Buffer]
    ) -> tuple[float, float, float] | None:
        is_sum = any(stage.reduction is not None for stage in nest.whole.stages)
        plain = try_plain_nest(with_tiles_apart(nest.cluster, tiles), visible) if is_sum else None
        if plain is None:
            return None
        return self._of_plan(plain, frozenset(b.name for b in plain.reads if b.name in self.constants))

    def _of_plan(self, nest: Kernel, constants: frozenset[str]) -> tuple[float, float, float] | None:
        terms = best_terms(nest, self._one_core, constants)
        return None if terms is None else (float(terms.compute), float(terms.memory), float(terms.waiting))

    def _moving(self, nest: Restricted, key: object) -> float:
        """Cycles of a cluster that is no sum of products: loads and stores along its best axis, and operations.

        How addresses move is the same whatever part of its points a tile has.
        """
        if key not in self._moves:
            self._moves[key] = list(self._stage_moves(nest.cluster))
        cycles = 0.0
        for stage, moves in zip(nest.whole.stages, self._moves[key], strict=True):
            extents = [_number(axis.extent) for axis in (*shortened(stage.axes, nest.shorter), *stage.reduction_axes)]
            empty = [_empty_lanes(extent, moves.lanes) for extent in extents]
            costs = [cost * lost for cost, lost in zip(moves.along, empty, strict=True)]
            if sum(extent >= moves.lanes for extent in extents) > 1 and stage.reduction is None:
                costs.append(TRANSPOSED * moves.count / moves.lanes)
            operations = moves.operations * min(empty, default=float(moves.lanes)) / moves.lanes
            cycles += MOVE_CYCLES * prod(extents) * (min(costs, default=1.0) + operations)
        return cycles

    def _stage_moves(self, cluster: Cluster) -> Iterator[_Moves]:
        seen: set[int] = set()
        for stage in cluster.stages:
            lanes = self.spec.vector_lanes(8 * stage.buffer.dtype.itemsize)
            loads, operations = _new_parts(stage.body, seen)
            alike = Counter(map(at_origin, loads))
            endless = [replace(axis, extent=lanes) for axis in (*stage.axes, *stage.reduction_axes)]
            along = tuple(vector_cost(axis, [(stage.buffer, stage.place)], alike, lanes) for axis in endless)
            yield _Moves(lanes, operations, 1 + len(loads), along)


@dataclass(frozen=True, slots=True)
class _Known:
    """What clusters that do the same on as many points have in common."""

    compute: float
    memory: float
    waiting: float
    is_product: bool
    writes: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class _Moves:
    """What one point of a stage costs: operations, loads and stores; these along each axis, in full vectors."""

    lanes: int
    operations: float
    count: int
    along: tuple[float, ...]


def _empty_lanes(extent: int, lanes: int) -> float:
    """Lanes of all vectors over those that an axis fills."""
    return -(-extent // lanes) * lanes / max(1, extent)


def _number(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


def _new_parts(scalar: Scalar, seen: set[int]) -> tuple[list[Load], float]:
    """Loads of an expression, and the cost of its operations, that were not seen before."""
    if id(scalar) in seen:
        return [], 0.0
    seen.add(id(scalar))
    loads: list[Load] = [scalar] if isinstance(scalar, Load) else []
    inside, cost = _arguments(scalar)
    for part in inside:
        more, further = _new_parts(part, seen)
        loads += more
        cost += further
    return loads, cost


def _arguments(scalar: Scalar) -> tuple[tuple[Scalar, ...], float]:
    match scalar:
        case Cast(value):
            return (value,), 0.0
        case Select(condition, then, otherwise):
            return (condition, then, otherwise), 1.0
        case Apply(op, arguments):
            return arguments, OPERATION_COSTS.get(op, 1.0)
        case Const() | Index() | Load():
            return (), 0.0


def _operand(buffer: Buffer, ranges: tuple[Range, ...]) -> Operand:
    symbols = frozenset[Sym]().union(*(expr.symbols(each.start) for each in ranges))
    extents = [each.extent for each in ranges]
    size_bytes = float(prod(extents) * buffer.dtype.itemsize)
    return Operand(buffer, size_bytes, symbols, _pieces(buffer, extents), _run_bytes(buffer, extents))


def _run_bytes(buffer: Buffer, extents: Sequence[int]) -> float:
    size_bytes = float(buffer.dtype.itemsize)
    for extent, dim in zip(reversed(extents), reversed(buffer.shape), strict=True):
        size_bytes *= extent
        if extent != dim:
            break
    return size_bytes


def _pieces(buffer: Buffer, extents: Sequence[int]) -> int:
    """Boxes of a buffer on pages of their own: dimensions outside the first that is cut count if they jump far."""
    pieces, is_whole, stride_bytes = 1, True, buffer.dtype.itemsize
    for extent, dim in zip(reversed(extents), reversed(buffer.shape), strict=True):
        pieces *= extent if not is_whole and stride_bytes >= PAGE_BYTES else 1
        is_whole = is_whole and extent == dim
        stride_bytes *= _number(dim)
    return pieces


def _writes(nest: Restricted, visible: frozenset[Buffer]) -> Iterator[Operand]:
    for stage, ranges in zip(nest.whole.stages, ranges_written(nest.whole, nest.shorter), strict=True):
        if stage.buffer in visible:
            found = _operand(stage.buffer, ranges)
            points = prod(_number(axis.extent) for axis in shortened(stage.axes, nest.shorter))
            yield replace(found, size_bytes=min(found.size_bytes, float(points * stage.buffer.dtype.itemsize)))
