"""What must be known of symbolic dimensions before a kernel runs, so that it stays inside its buffers."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.ir import expr
from foretell.ir.expr import Dim, Op
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Const, Index, Load, Scalar, Select
from foretell.loops.nodes import Accumulate, Allocate, Block, Fetch, For, Guard, Kernel, Statement, Store, free_symbols
from foretell.loops.verify import corners


def bounds_checks(kernel: Kernel) -> list[Dim]:
    """Expressions over dimensions that must not be negative: whatever interval bounds do not prove by themselves.

    for i < n: y[i] = x[i]     with x: f32[m]     ->  m - n

    Accesses under a condition are left out: the condition is there to keep them inside.
    """
    if not free_symbols(kernel):
        return []
    found: dict[Dim, None] = {}
    for buffer, index, extent, loops in _indices(kernel.body, ()):
        if buffer.scope == "table":
            least, greatest = corners(index, loops)
            found |= dict.fromkeys(value for value in (least, extent - 1 - greatest) if not _is_known(value))
    return list(found)


def _is_known(value: Dim) -> bool:
    low, _ = expr.bounds(value)
    return (low is not None and low >= 0) or _divides_by_unknown(value)


def _divides_by_unknown(value: Dim) -> bool:
    """Whether evaluation might divide by zero; such indices are parts of a reshape, which is checked as a whole."""
    for monomial, _ in expr.terms_of(value):
        for atom in monomial:
            if isinstance(atom, Op):
                low, _ = expr.bounds(atom.right)
                divides = atom.kind in ("//", "%") and (low is None or low <= 0)
                if divides or _divides_by_unknown(atom.left) or _divides_by_unknown(atom.right):
                    return True
    return False


def _indices(statement: Statement, loops: tuple[For, ...]) -> Iterator[tuple[Buffer, Dim, Dim, tuple[For, ...]]]:
    """(buffer, index, extent, loops around it) of every access that is sure to happen if its loops run."""
    match statement:
        case Block(statements):
            for inner in statements:
                yield from _indices(inner, loops)
        case For(_, _, _, body):
            yield from _indices(body, (*loops, statement))
        case Allocate(_, body):
            yield from _indices(body, loops)
        case Guard() | Fetch():
            return
        case Store(buffer, indices, value) | Accumulate(buffer, indices, _, value):
            for place in (Load(buffer, indices, buffer.dtype), *_certain_loads(value)):
                assert isinstance(place.source, Buffer)
                for index, extent in zip(place.indices, place.source.shape, strict=True):
                    if isinstance(index, (int, expr.Expr)):
                        yield place.source, index, extent, loops


def _certain_loads(scalar: Scalar) -> Iterator[Load]:
    match scalar:
        case Load(_, indices):
            yield scalar
            for index in indices:
                if not isinstance(index, (int, expr.Expr)):
                    yield from _certain_loads(index)
        case Apply(_, arguments):
            for argument in arguments:
                yield from _certain_loads(argument)
        case Select(condition, _, _):
            yield from _certain_loads(condition)
        case Cast(value):
            yield from _certain_loads(value)
        case Const() | Index():
            return
