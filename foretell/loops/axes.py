"""Choosing axes: which can be joined into one loop, and which should run in vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Cast, Index, Load, Scalar, Select
from foretell.loops.nodes import at_origin, distinct_loads, offset

Access = tuple[Buffer, tuple[Dim, ...]]


def collapse(
    axes: tuple[Axis, ...], stores: Sequence[Access], bodies: Sequence[Scalar]
) -> tuple[tuple[Axis, ...], dict[Sym, Dim]]:
    """Join neighbouring axes wherever every address stays linear; returns the new axes and what the old ones became.

    before: for i < 3: for j < 4: y[i, j] = x[i, j]      after: for m < 12: y[m] = x[m]
    """
    bindings: dict[Sym, Dim] = {}
    as_values = index_symbols(bodies)
    loads = [(load.source, load.indices) for load in moving_alike(bodies)]
    places = dict.fromkeys((buffer, tuple(map(expr.without_constant, place))) for buffer, place in stores)
    accesses = [_Access(buffer, indices) for buffer, indices in (*loads, *places) if isinstance(buffer, Buffer)]
    current = list(axes)
    position = len(current) - 2
    while position >= 0:
        pair = (current[position], current[position + 1])
        if any(axis.extent == 0 for axis in pair):
            break
        joined, step = join_axes(pair)
        combined = {sym: expr.substitute(value, step) for sym, value in bindings.items()} | step
        if as_values.isdisjoint(combined) and all(each.stays_linear(pair, joined.sym, combined) for each in accesses):
            bindings = combined
            current[position : position + 2] = [joined]
            for access in accesses:
                access.join(pair, joined.sym)
        position -= 1
    return tuple(current), bindings


def moving_alike(bodies: Sequence[Scalar]) -> Mapping[Load, int]:
    """Loads that differ only by where they start as one, and how many there are."""
    return Counter(map(at_origin, distinct_loads(bodies)))


def join_axes(axes: tuple[Axis, ...]) -> tuple[Axis, dict[Sym, Dim]]:
    """One axis that runs through several in row-major order, and what each of them is in its terms."""
    if len(axes) == 1:
        return axes[0], {}
    extent = expr.product(tuple(axis.extent for axis in axes))
    _, high = expr.bounds(extent)
    sym = Sym("*".join(axis.sym.name for axis in axes), 0, None if high is None else max(0, high - 1))
    bindings: dict[Sym, Dim] = {}
    inner: Dim = 1
    for number in reversed(range(len(axes))):
        place = sym // inner
        bindings[axes[number].sym] = place if number == 0 else place % axes[number].extent
        inner = inner * axes[number].extent
    return Axis(sym, extent), bindings


@dataclass(slots=True)
class _Access:
    """A place that is read or written, as axes are joined one after the other."""

    buffer: Buffer
    indices: tuple[Dim | Scalar, ...]
    strides: dict[Sym, int | None] = field(default_factory=dict[Sym, "int | None"])
    """How far it moves along an axis; None if that is not one number."""

    def stays_linear(self, pair: tuple[Axis, Axis], joined: Sym, bindings: dict[Sym, Dim]) -> bool:
        """Whether it moves by one number along two axes that are joined; `bindings` has all that were joined so far."""
        (outer, inner), (count, length) = (self._stride(axis.sym) for axis in pair), (axis.extent for axis in pair)
        if outer is not None and inner is not None:
            return length == 1 or (count == 1 and isinstance(length, int)) or outer == inner * length
        moved: list[Dim] = []
        for index in self.indices:
            if not isinstance(index, (int, expr.Expr)):
                return False
            moved.append(expr.substitute(index, bindings))
        return expr.try_linear(offset(self.buffer.shape, tuple(moved)), frozenset({joined})) is not None

    def join(self, pair: tuple[Axis, Axis], joined: Sym) -> None:
        outer, inner = (self._stride(axis.sym) for axis in pair)
        self.strides[joined] = outer if pair[1].extent == 1 else inner

    def _stride(self, sym: Sym) -> int | None:
        if sym not in self.strides:
            self.strides[sym] = stride_along(self.buffer, self.indices, sym)
        return self.strides[sym]


def index_symbols(bodies: Sequence[Scalar]) -> frozenset[Sym]:
    """Symbols that values (not just addresses) depend on."""
    found: set[Sym] = set()
    seen: set[int] = set()
    waiting = list(bodies)
    while waiting:
        scalar = waiting.pop()
        if id(scalar) in seen:
            continue
        seen.add(id(scalar))
        match scalar:
            case Index(value):
                found |= expr.symbols(value)
            case Apply(_, arguments):
                waiting += arguments
            case Select(condition, then, otherwise):
                waiting += (condition, then, otherwise)
            case Cast(value):
                waiting.append(value)
            case _:
                pass
    return frozenset(found)


def vector_axis(axes: Sequence[Axis], stores: Sequence[Access], bodies: Sequence[Scalar], lanes: int) -> int:
    """The axis whose vectors cost least: contiguous loads are cheap, equal ones free, others one load per lane."""
    loads = moving_alike(bodies)
    costs = [vector_cost(axis, stores, loads, lanes) for axis in axes]
    return min(range(len(axes)), key=lambda number: (costs[number], -number)) if axes else -1


def vector_cost(axis: Axis, stores: Sequence[Access], loads: Mapping[Load, int], lanes: int) -> float:
    """Memory operations per element, were this axis in vectors."""
    accesses = [(load.source, load.indices, times) for load, times in loads.items()]
    total = 0.0
    for buffer, indices, times in [*accesses, *((buffer, place, 1) for buffer, place in stores)]:
        assert isinstance(buffer, Buffer)
        stride = stride_along(buffer, indices, axis.sym)
        total += times * (0.5 / lanes if stride == 0 else 1.0 / lanes if stride == 1 else 1.0)
    extent = axis.extent
    # A short axis leaves lanes empty.
    filled = 1.0 if not isinstance(extent, int) else extent / (-(-extent // lanes) * lanes) if extent else 1.0
    return total / max(filled, 1e-9)


def access_stride(buffer: Buffer, indices: tuple[Dim, ...], sym: Sym) -> int | None:
    """How far the address moves per step of `sym`, in elements; None if that is not one number."""
    stride, inner = 0, 1
    for dim, index in zip(reversed(buffer.shape), reversed(indices), strict=True):
        step = expr.try_step(index, sym)
        if step is None or not isinstance(dim, int):
            return expr.try_step(offset(buffer.shape, indices), sym)
        stride += step * inner
        inner *= dim
    return stride


def stride_along(buffer: Buffer, indices: Sequence[Dim | Scalar], sym: Sym) -> int | None:
    """The same for indices that may come from data, which move by no one number."""
    plain = tuple(index for index in indices if isinstance(index, (int, expr.Expr)))
    return access_stride(buffer, plain, sym) if len(plain) == len(indices) else None


def stands_alone(load: Load, sym: Sym) -> bool:
    """Whether a symbol is one index of a load by itself, and part of no other: its dimension can be stored last."""
    plain = [index for index in load.indices if isinstance(index, (int, expr.Expr))]
    return [index for index in plain if sym in expr.symbols(index)] == [sym]
