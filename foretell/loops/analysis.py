"""What a loop nest does to memory and how much it computes, as expressions over its extents.

Counts are of distinct elements: an access is the image of the loops around it. They are exact for rectangular nests,
and nests cut into blocks with a rest, whose indices are linear (windows of convolutions included) or joined axes;
otherwise an upper bound. Everything takes a kernel or any statement of one; symbols bound outside the statement
stand for fixed values, so "what one iteration touches" is the footprint of a loop's body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Op, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Index, Scalar, operation_count
from foretell.loops.nodes import (
    Accumulate,
    Allocate,
    Block,
    Fetch,
    For,
    Guard,
    Kernel,
    Statement,
    Store,
    loads_in,
    offset,
)

Nest = Kernel | Statement


@dataclass(frozen=True, slots=True)
class Access:
    """A load, store or update of one element per iteration of `loops`, outer to inner."""

    buffer: Buffer
    indices: tuple[Dim | Scalar, ...]
    kind: str
    """read, write or update (an accumulation reads and writes)."""
    loops: tuple[For, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One loop of a nest, and what a single iteration of its body does."""

    loop: For
    depth: int
    elements: dict[Buffer, Dim]
    """Distinct elements touched of each buffer that exists outside the body."""
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Dependence:
    """Iterations of a loop that are not independent.

    `reduction`: they update one element. `output`: they store to one element, the last one wins. `flow`: one may read
    what another wrote.
    """

    loop: For
    buffer: Buffer
    kind: str


# --- what is accessed ----------------------------------------------------------------------------------------


def accesses(nest: Nest) -> Iterator[Access]:
    """Every access in order, with the loops around it that belong to the nest."""
    yield from _accesses(nest.body if isinstance(nest, Kernel) else nest, ())


def _accesses(statement: Statement, loops: tuple[For, ...]) -> Iterator[Access]:
    match statement:
        case Block(statements):
            for inner in statements:
                yield from _accesses(inner, loops)
        case For(_, _, _, body):
            yield from _accesses(body, (*loops, statement))
        case Allocate(_, body):
            yield from _accesses(body, loops)
        case Guard(condition, body):
            yield from _reads(condition, loops)
            yield from _accesses(body, loops)
        case Store(buffer, indices, value) | Accumulate(buffer, indices, _, value):
            for index in indices:
                if not isinstance(index, (int, expr.Expr)):
                    yield from _reads(index, loops)
            yield from _reads(value, loops)
            yield Access(buffer, indices, "write" if isinstance(statement, Store) else "update", loops)
        case Fetch():
            return


def _reads(scalar: Scalar, loops: tuple[For, ...]) -> Iterator[Access]:
    for load in loads_in(scalar):
        assert isinstance(load.source, Buffer)
        yield Access(load.source, load.indices, "read", loops)


def allocated_in(nest: Nest) -> frozenset[Buffer]:
    """Buffers that exist only inside the nest."""
    match nest.body if isinstance(nest, Kernel) else nest:
        case Block(statements):
            return frozenset().union(*map(allocated_in, statements))
        case For(_, _, _, body) | Guard(_, body):
            return allocated_in(body)
        case Allocate(buffer, body):
            return allocated_in(body) | {buffer}
        case Store() | Accumulate() | Fetch():
            return frozenset()


def buffers_read(nest: Nest) -> tuple[Buffer, ...]:
    """Buffers from outside the nest that it loads from, in order."""
    return _named(nest, "read", "update")


def buffers_written(nest: Nest) -> tuple[Buffer, ...]:
    """Buffers from outside the nest that it stores to, in order."""
    return _named(nest, "write", "update")


def _named(nest: Nest, *kinds: str) -> tuple[Buffer, ...]:
    own = allocated_in(nest)
    found = {access.buffer: None for access in accesses(nest) if access.kind in kinds}
    return tuple(buffer for buffer in found if buffer not in own)


# --- footprints ----------------------------------------------------------------------------------------------


def footprint(nest: Nest, buffer: Buffer) -> Dim:
    """Bytes of the buffer that the nest touches, each counted once."""
    return elements_touched(nest, buffer) * buffer.dtype.itemsize


def elements_touched(nest: Nest, buffer: Buffer, kinds: tuple[str, ...] = ("read", "write", "update")) -> Dim:
    """Distinct elements of the buffer that accesses of these kinds touch."""
    return _distinct_elements(
        buffer, [access for access in accesses(nest) if access.buffer == buffer and access.kind in kinds]
    )


def touched(nest: Nest) -> dict[Buffer, Dim]:
    """Distinct elements of every buffer that the nest touches."""
    found: dict[Buffer, list[Access]] = {}
    for access in accesses(nest):
        found.setdefault(access.buffer, []).append(access)
    return {buffer: _distinct_elements(buffer, own) for buffer, own in found.items()}


def _distinct_elements(buffer: Buffer, own: Sequence[Access]) -> Dim:
    regions: list[_Region] = []
    alike = {(access.indices, *((loop.sym, loop.extent) for loop in access.loops)): access for access in own}
    for region in dict.fromkeys(map(_region, alike.values())):
        regions = _joined(regions, region)
    total: Dim = 0
    for region in regions:
        total = total + region.elements
    return expr.minimum(total, buffer.type.elements) if len(regions) > 1 else total


def bytes_moved(nest: Nest) -> Dim:
    """Bytes that must come from memory and go to it: every element of a table buffer read or written, each once.

    A buffer that the nest stores to is its own product: what it reads of that again need not be fetched.
    """
    total: Dim = 0
    own = {access.buffer for access in accesses(nest) if access.kind == "write"}
    for buffer in buffers_read(nest):
        if buffer.scope == "table" and buffer not in own:
            total = total + elements_touched(nest, buffer, ("read", "update")) * buffer.dtype.itemsize
    for buffer in buffers_written(nest):
        if buffer.scope == "table":
            total = total + elements_touched(nest, buffer, ("write", "update")) * buffer.dtype.itemsize
    return total


@dataclass(frozen=True, slots=True)
class _Range:
    """Indices along one dimension: `count` values from `start` on; neighbours if `dense`."""

    start: Dim
    count: Dim
    dense: bool

    @property
    def stop(self) -> Dim:
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class _Region:
    """What one access touches: a product of ranges, one per dimension (or a single one, of places in memory)."""

    ranges: tuple[_Range, ...]

    @property
    def elements(self) -> Dim:
        return expr.product(tuple(part.count for part in self.ranges))


@dataclass(frozen=True, slots=True)
class _Variable:
    """A loop, or a pair of loops that run through `extent` points in blocks: block * `size` + inner."""

    sym: Sym
    extent: Dim
    block: Sym | None = None
    size: int = 1


def _region(access: Access) -> _Region:
    """Index by index where the dimensions vary apart from each other, else by place in memory, else everything."""
    variables = _variables(access.loops)
    plain = tuple(index for index in access.indices if isinstance(index, (int, expr.Expr)))
    if len(plain) == len(access.indices):
        if _vary_apart(plain, variables):
            ranges = [_try_range(index, variables) for index in plain]
            if all(part is not None for part in ranges):
                return _Region(tuple(part for part in ranges if part is not None))
        place = _try_range(offset(access.buffer.shape, plain), variables)
        if place is not None:
            return _Region((place,))
    return _bounded(access, variables)


def _bounded(access: Access, variables: Sequence[_Variable]) -> _Region:
    """No more elements than the buffer has, nor than there are iterations that move the access."""
    moving: frozenset[Sym] = frozenset()
    for index in access.indices:
        if isinstance(index, (int, expr.Expr)):
            moving |= expr.symbols(index)
        else:
            moving |= frozenset(variable.sym for variable in variables)
    points = expr.product(tuple(v.extent for v in variables if v.sym in moving or v.block in moving))
    return _Region((_Range(0, expr.minimum(points, access.buffer.type.elements), False),))


def _variables(loops: Sequence[For]) -> list[_Variable]:
    """The loops, with each pair that runs through blocks and a rest as one variable."""
    found: list[_Variable] = []
    for loop in loops:
        outer = next((v for v in found if v.block is None and v.sym in expr.symbols(loop.extent)), None)
        blocked = None if outer is None else _try_blocks(outer, loop)
        if blocked is None:
            found.append(_Variable(loop.sym, _largest(loop.extent, found)))
        else:
            found[found.index(outer)] = blocked  # pyright: ignore[reportArgumentType]
    return found


def _try_blocks(outer: _Variable, inner: For) -> _Variable | None:
    """for b < ceil(n / B): for j < min(B, n - b*B)     is one loop over n"""
    match inner.extent:
        case Op("min", int() as size, rest) | Op("min", rest, int() as size):
            total = rest + outer.sym * size
        case _:
            return None
    if outer.sym in expr.symbols(total) or outer.extent != expr.ceildiv(total, size):
        return None
    return _Variable(inner.sym, total, outer.sym, size)


def _largest(extent: Dim, outer: Sequence[_Variable]) -> Dim:
    """An extent without symbols of outer loops: at the first iteration, where blocks and triangles are largest."""
    return expr.substitute(extent, {variable.sym: 0 for variable in outer})


def _vary_apart(indices: Sequence[Dim], variables: Sequence[_Variable]) -> bool:
    """Whether no variable moves two dimensions at once: else their ranges are not a product."""
    for variable in variables:
        own = {variable.sym, variable.block}
        if sum(bool(expr.symbols(index) & own) for index in indices) > 1:
            return False
    return True


def _try_range(index: Dim, variables: Sequence[_Variable]) -> _Range | None:
    """The values of a linear index: one run of neighbours as long as each variable steps no further than the run."""
    linear = expr.try_linear(index, frozenset(s for v in variables for s in (v.sym, v.block) if s is not None))
    if linear is None:
        return None
    coefficients, start = linear
    steps: list[tuple[int, Dim]] = []
    for variable in variables:
        step = coefficients.get(variable.sym, 0)
        if variable.block is not None and coefficients.get(variable.block, 0) != step * variable.size:
            return None
        if step:
            steps.append((abs(step), variable.extent))
            start = start + (variable.extent - 1) * min(step, 0)
    return _distinct(start, steps)


def _distinct(start: Dim, steps: Sequence[tuple[int, Dim]]) -> _Range | None:
    """How many values start + sum(step * x) takes for x < extent each.

    law: a run of L neighbours a distance g apart, moved by step <= L * g a number of times, is a longer run;
         moved by more, it is that many runs.
    """
    count: Dim = 1
    unit, dense = 1, True
    for number, (step, extent) in enumerate(sorted(steps, key=lambda pair: pair[0])):
        if number == 0:
            unit, count, dense = step, extent, step == 1
            continue
        gap, _ = expr.bounds(count * unit - step)
        if dense_run := (step % unit == 0 and gap is not None and gap >= 0):
            count = count + (extent - 1) * (step // unit)
        elif gap is not None and number + 1 < len(steps):
            return None  # runs of runs may meet again
        else:
            count = count * extent
        dense = dense and dense_run
    return _Range(start, count, dense)


def _joined(regions: Sequence[_Region], added: _Region) -> list[_Region]:
    """The regions with one more; where the two are one box, as one."""
    for number, region in enumerate(regions):
        union = _try_union(region, added)
        if union is not None:
            return _joined([*regions[:number], *regions[number + 1 :]], union) if union != region else list(regions)
    return [*regions, added]


def _try_union(left: _Region, right: _Region) -> _Region | None:
    """One region, if the two are alike in all dimensions, or in all but one where their runs meet."""
    if left == right:
        return left
    if len(left.ranges) != len(right.ranges):
        return None
    differing = [n for n, pair in enumerate(zip(left.ranges, right.ranges, strict=True)) if pair[0] != pair[1]]
    if len(differing) != 1:
        return None
    (number,) = differing
    hull = _try_hull(left.ranges[number], right.ranges[number])
    return None if hull is None else _Region((*left.ranges[:number], hull, *left.ranges[number + 1 :]))


def _try_hull(left: _Range, right: _Range) -> _Range | None:
    distance = right.start - left.start
    if not (left.dense and right.dense and isinstance(distance, int)):
        return None
    if distance < 0:
        return _try_hull(right, left)
    gap, _ = expr.bounds(left.count - distance)
    if gap is None or gap < 0:
        return None
    return _Range(left.start, expr.maximum(left.count, right.count + distance), True)


# --- work ----------------------------------------------------------------------------------------------------


def flops(nest: Nest) -> Dim:
    """Arithmetic operations: those of scalar bodies, and one per accumulation (so a multiply-add is two)."""
    return _flops(nest.body if isinstance(nest, Kernel) else nest, ())


def _flops(statement: Statement, loops: tuple[For, ...]) -> Dim:
    match statement:
        case Block(statements):
            total: Dim = 0
            for inner in statements:
                total = total + _flops(inner, loops)
            return total
        case For(_, _, _, body):
            return _flops(body, (*loops, statement))
        case Allocate(_, body):
            return _flops(body, loops)
        case Guard(condition, body):
            return _flops(body, tuple(_guarded(loop, condition) for loop in loops))
        case Store(_, _, value):
            return iterations(loops) * operation_count(value)
        case Accumulate(_, _, _, value):
            return iterations(loops) * (operation_count(value) + 1)
        case Fetch():
            return 0


def _guarded(loop: For, condition: Scalar) -> For:
    """The loop with those iterations only that pass a condition on its variable alone."""
    match condition:
        case Apply("lt", (Index(index), Index(int(bound)))) if index == loop.sym and isinstance(loop.extent, int):
            return replace(loop, extent=min(bound, loop.extent))
        case Apply("ge", (Index(index), Index(int(bound)))) if index == loop.sym and isinstance(loop.extent, int):
            return replace(loop, extent=max(0, loop.extent - bound))
        case _:
            return loop


def iterations(loops: Sequence[For]) -> Dim:
    """How often the body of nested loops runs."""
    return expr.product(tuple(variable.extent for variable in _variables(loops)))


# --- loops ---------------------------------------------------------------------------------------------------


def levels(nest: Nest) -> list[Level]:
    """The loops from outer to inner, in the order they are written, each with what one iteration touches."""
    return list(_levels(nest.body if isinstance(nest, Kernel) else nest, 0))


def _levels(statement: Statement, depth: int) -> Iterator[Level]:
    match statement:
        case Block(statements):
            for inner in statements:
                yield from _levels(inner, depth)
        case For(_, _, _, body):
            yield _level(statement, depth)
            yield from _levels(body, depth + 1)
        case Allocate(_, body) | Guard(_, body):
            yield from _levels(body, depth)
        case Store() | Accumulate() | Fetch():
            return


def _level(loop: For, depth: int) -> Level:
    reads, writes = buffers_read(loop.body), buffers_written(loop.body)
    elements = {buffer: elements_touched(loop.body, buffer) for buffer in dict.fromkeys((*reads, *writes))}
    return Level(loop, depth, elements, reads, writes)


def dependences(nest: Nest) -> list[Dependence]:
    """For every loop, the buffers through which its iterations depend on each other."""
    return [found for level in levels(nest) for found in carried_by(level.loop)]


def carried_by(loop: For) -> Iterator[Dependence]:
    """Buffers through which iterations of this loop depend on each other."""
    allocated = allocated_in(loop.body)
    inside = [access for access in accesses(loop.body) if access.buffer not in allocated]
    for buffer in dict.fromkeys(access.buffer for access in inside if access.kind != "read"):
        own = [access for access in inside if access.buffer == buffer]
        changes = [access for access in own if access.kind != "read"]
        if _share_a_moving_index(own, loop):
            continue
        if all(_moves_apart(access, loop) for access in changes):
            if any(access.indices != changes[0].indices for access in own):
                yield Dependence(loop, buffer, "flow")
        elif all(access.kind == "update" for access in own):
            yield Dependence(loop, buffer, "reduction")
        else:
            yield Dependence(loop, buffer, "flow" if len(own) > len(changes) else "output")


def _share_a_moving_index(own: Sequence[Access], loop: For) -> bool:
    """Whether along one dimension, each iteration of the loop has a range of indices to itself.

    All accesses go there by the same step, and what they add to it stays within that step.
    """
    inner = frozenset(inside.sym for access in own for inside in access.loops)
    return any(_is_split_up(own, loop, position, inner) for position in range(len(own[0].indices)))


def _is_split_up(own: Sequence[Access], loop: For, position: int, inner: frozenset[Sym]) -> bool:
    steps: set[int] = set()
    outer: set[Dim] = set()
    lows: list[int] = []
    highs: list[int] = []
    for access in own:
        index = access.indices[position]
        linear = expr.try_linear(index, inner | {loop.sym}) if isinstance(index, (int, expr.Expr)) else None
        if linear is None:
            return False
        coefficients, rest = linear
        steps.add(coefficients.get(loop.sym, 0))
        constant = dict(expr.terms_of(rest)).get((), 0)
        outer.add(rest - constant)
        low, high = expr.bounds(sum((c * s for s, c in coefficients.items() if s != loop.sym), start=constant))
        if low is None or high is None:
            return False
        lows.append(low)
        highs.append(high)
    return len(steps) == 1 and len(outer) == 1 and max(highs) - min(lows) < abs(next(iter(steps)))


def _moves_apart(access: Access, loop: For) -> bool:
    """Whether no two iterations of the loop reach the same element: each stays within its own step."""
    plain = tuple(index for index in access.indices if isinstance(index, (int, expr.Expr)))
    if len(plain) != len(access.indices):
        return False
    for index in (*plain, offset(access.buffer.shape, plain)):
        linear = expr.try_linear(index, frozenset({loop.sym}))
        step = 0 if linear is None else abs(linear[0].get(loop.sym, 0))
        if linear is not None and step and _spread(linear[1], access) <= step:
            return True
    return False


def _spread(rest: Dim, access: Access) -> int:
    """How many neighbouring places the loops inside can reach at most; huge if nobody knows."""
    inner = frozenset(loop.sym for loop in access.loops)
    linear = expr.try_linear(rest, inner)
    if linear is None:
        return _UNKNOWN
    reach = 1
    for loop in access.loops:
        _, most = expr.bounds(loop.extent)
        step = abs(linear[0].get(loop.sym, 0))
        if step:
            reach = _UNKNOWN if most is None else reach + step * (most - 1)
    return reach


_UNKNOWN = 1 << 62
