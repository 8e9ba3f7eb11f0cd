"""Cases by the value of an index become loops of their own, in which nobody asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import is_

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Cast, Index, Scalar, Select, axis_over
from foretell.loops.cases import Cases, cases_of
from foretell.loops.nodes import Done, Substituted, scalar_symbols, substitute_scalar
from foretell.loops.stages import TensorStage


def split_by_value(stages: Sequence[TensorStage]) -> list[TensorStage]:
    """Cut a stage whose body compares an index, what remains of one, or where it lies, with numbers: a part for each.

    before: v[a < 2, i] = select(a == 0, x[i], x[i + 1])
    after:  v[0, i] = x[i];   v[1, i] = x[i + 1]

    before: y[i < 5] = select(i % 2 == 0, p[i // 2], q[i // 2])
    after:  y[2*t | t < 2] = p[t];   y[2*t + 1 | t < 2] = q[t];   y[4] = p[2]

    before: y[j < 16] = select(j // 8 == 0, p[j], q[j % 8])
    after:  y[t | t < 8] = p[t];     y[8 + t | t < 8] = q[t]

    Parts of equal extents follow each other, so that they share their loops; what does not fill a whole period has
    loops of its own. Declines for reductions, unknown extents, and when there are too many cases.
    """
    return [part for stage in stages for part in (_try_parts(stage) or [stage])]


@dataclass(frozen=True, slots=True)
class _Range:
    """Some values of an axis: of each case in `cases`, step * inner + apart * case."""

    axis: Axis
    step: int
    cases: range
    case: Sym
    apart: int = 1

    @property
    def value(self) -> Dim:
        start = self.case * self.apart
        return self.axis.sym * self.step + start if self.axis.extent != 1 else start


def _try_parts(stage: TensorStage) -> list[TensorStage] | None:
    cases = cases_of(stage.body, stage.axes) if stage.reduction is None else {}
    if not cases:
        return None
    choices = [list(_ranges(axis, cases[axis.sym])) if axis.sym in cases else [None] for axis in stage.axes]
    return [part for ranges in product(*choices) for part in _parts(stage, ranges)]


def _ranges(axis: Axis, cases: Cases) -> Iterator[_Range]:
    """Whole runs; or whole periods, and what is left."""
    assert isinstance(axis.extent, int)
    period, name = cases.count, axis.sym.name
    whole, case = axis.extent // period, Sym(f"{name}.case", 0, axis.extent - 1)
    if cases.run > 1:
        inner = axis_over(cases.run, f"{name}.{cases.run}")
        yield _Range(inner, 1, range(period), replace(case, hi=period - 1), cases.run)
        return
    if whole:
        yield _Range(axis_over(whole, f"{name}.{period}"), period, range(period), replace(case, hi=period - 1))
    if axis.extent % period:
        yield _Range(axis_over(1, f"{name}.{period}e"), period, range(whole * period, axis.extent), case)


def _parts(stage: TensorStage, ranges: Sequence[_Range | None]) -> Iterator[TensorStage]:
    """The stage on some values of each axis, one part for each case; what cases have in common is one object."""
    cut = {axis.sym: each for axis, each in zip(stage.axes, ranges, strict=True) if each is not None}
    bindings: dict[Sym, Dim] = {sym: each.value for sym, each in cut.items()}
    axes = tuple(cut[axis.sym].axis if axis.sym in cut else axis for axis in stage.axes)
    body = substitute_scalar(stage.body, bindings)
    place = tuple(expr.substitute(index, bindings) for index in stage.place)
    fixed = _without_symbols(body, frozenset(each.case for each in cut.values()))
    for values in product(*(each.cases for each in cut.values())):
        chosen: dict[Sym, Dim] = {each.case: value for each, value in zip(cut.values(), values, strict=True)}
        here = tuple(expr.substitute(index, chosen) for index in place)
        yield replace(stage, axes=axes, place=here, body=_decided(body, chosen, dict(fixed), Substituted()))


def _without_symbols(scalar: Scalar, symbols: frozenset[Sym]) -> Done:
    """The parts of an expression that mention none of the symbols, by identity."""
    found: Done = {}
    seen: set[int] = set()

    def visit(part: Scalar) -> bool:
        if id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, Apply):
                is_fixed = all([visit(argument) for argument in part.arguments])
            elif isinstance(part, Select):
                is_fixed = all([visit(each) for each in (part.condition, part.then, part.otherwise)])
            elif isinstance(part, Cast):
                is_fixed = visit(part.value)
            else:
                is_fixed = scalar_symbols(part).isdisjoint(symbols)
            if is_fixed:
                found[id(part)] = part
        return id(part) in found

    visit(scalar)
    return found


def _decided(scalar: Scalar, bindings: dict[Sym, Dim], done: Done, replaced: Substituted) -> Scalar:
    """The scalar with symbols replaced; of selections that are decided by that, only the branch taken.

    `done` has the parts that mention none of them.
    """
    found = done.get(id(scalar))
    if found is not None:
        return found
    if isinstance(scalar, Apply):
        decided = [_decided(argument, bindings, done, replaced) for argument in scalar.arguments]
        made = scalar if all(map(is_, decided, scalar.arguments)) else Apply(scalar.op, tuple(decided))
    elif isinstance(scalar, Select):
        asked = substitute_scalar(scalar.condition, bindings, replaced)
        holds = _known(asked)
        if holds is None:
            made = Select(
                asked, *(_decided(part, bindings, done, replaced) for part in (scalar.then, scalar.otherwise))
            )
        else:
            made = _decided(scalar.then if holds else scalar.otherwise, bindings, done, replaced)
    elif isinstance(scalar, Cast):
        made = Cast(_decided(scalar.value, bindings, done, replaced), scalar.dtype, scalar.saturate)
    else:
        made = substitute_scalar(scalar, bindings, replaced)
    done[id(scalar)] = made
    return made


def _known(condition: Scalar) -> bool | None:
    match condition:
        case Apply("eq", (Index(int() as left), Index(int() as right))):
            return left == right
        case _:
            return None
