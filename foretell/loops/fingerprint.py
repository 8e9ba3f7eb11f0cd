"""One name for runs of clusters that do the same: blocks of a network repeat, and each is looked at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Cast, Const, Index, Load, Scalar, Select
from foretell.loops.stages import TensorStage


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a cluster does, and the buffers it does it to."""

    text: str
    buffers: tuple[Buffer, ...]


def fingerprint(stages: Sequence[TensorStage], depth: int, loads: Sequence[Load]) -> Fingerprint:
    """Equal texts for stages, sharing so many axes, that differ in nothing but what buffers and axes are called.

    y[i.7] = max(a[i.7] + b[i.7], a[i.7])   ->   %0=b0[s0], %1=b1[s0], %2=add(%0, %1), %3=max(%2, %0), b2[s0]=%3
    """
    reads = (load.source for load in loads if isinstance(load.source, Buffer))
    buffers = tuple(dict.fromkeys((*reads, *(stage.buffer for stage in stages))))
    written = _Written({buffer: f"b{number}" for number, buffer in enumerate(buffers)})
    lines = [f"{depth}", *(f"{name}: {buffer.type} {buffer.scope}" for buffer, name in written.buffers.items())]
    for stage in stages:
        outer, inner = (", ".join(map(written.axis, axes)) for axes in (stage.axes, stage.reduction_axes))
        place = ", ".join(map(written.index, stage.place))
        value = written.scalar(stage.body)
        lines.append(f"[{outer}] {written.buffers[stage.buffer]}[{place}]={stage.reduction}[{inner}] {value}")
    return Fingerprint("\n".join((*lines, *written.parts)), buffers)


@dataclass(slots=True)
class _Written:
    """Expressions as text, each distinct part once: what shares parts may be long when it is written out."""

    buffers: dict[Buffer, str]
    symbols: dict[Sym, Dim] = field(default_factory=dict[Sym, Dim])
    parts: dict[str, str] = field(default_factory=dict[str, str])
    """What is written of each part, and its name."""
    _names: dict[int, str] = field(default_factory=dict[int, str])
    """Those of objects, by identity."""
    _indices: dict[Dim, str] = field(default_factory=dict[Dim, str])

    def axis(self, axis: Axis) -> str:
        fresh = self.symbols.setdefault(axis.sym, replace(axis.sym, name=f"s{len(self.symbols)}"))
        return f"{fresh}<{axis.extent}"

    def index(self, index: Dim | Scalar) -> str:
        if not isinstance(index, (int, expr.Expr)):
            return self.scalar(index)
        found = self._indices.get(index)
        if found is None:
            found = self._indices[index] = str(expr.substitute(index, self.symbols))
        return found

    def scalar(self, scalar: Scalar) -> str:
        found = self._names.get(id(scalar))
        if found is None:
            text = self._text(scalar)
            found = self._names[id(scalar)] = self.parts.setdefault(text, f"%{len(self.parts)}")
        return found

    def _text(self, scalar: Scalar) -> str:
        if isinstance(scalar, Apply):
            return f"{scalar.op}({', '.join([self.scalar(argument) for argument in scalar.arguments])})"
        if isinstance(scalar, Load):
            assert isinstance(scalar.source, Buffer)
            return f"{self.buffers[scalar.source]}[{', '.join([self.index(index) for index in scalar.indices])}]"
        if isinstance(scalar, Const):
            return str(scalar)
        if isinstance(scalar, Index):
            return f"index({self.index(scalar.value)})"
        if isinstance(scalar, Select):
            parts = (scalar.condition, scalar.then, scalar.otherwise)
            return f"select({', '.join([self.scalar(part) for part in parts])})"
        assert isinstance(scalar, Cast)
        return f"{scalar.dtype}({self.scalar(scalar.value)}, {scalar.saturate})"


def run_key(fingerprints: Sequence[Fingerprint], classes: Sequence[frozenset[Buffer]]) -> object:
    """Equal for runs that do the same to buffers that are related, and belong to the classes, in the same way."""
    numbers: dict[Buffer, int] = {}
    for each in fingerprints:
        for buffer in each.buffers:
            numbers.setdefault(buffer, len(numbers))
    kinds = tuple(tuple(buffer in some for some in classes) for buffer in numbers)
    return tuple((each.text, tuple(numbers[buffer] for buffer in each.buffers)) for each in fingerprints), kinds
