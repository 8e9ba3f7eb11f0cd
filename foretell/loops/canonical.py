"""One name for loop nests that do the same: layers of a network repeat, and each distinct one is compiled once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Const, Index, Load, Scalar, Select
from foretell.loops.nodes import (
    Accumulate,
    Allocate,
    Block,
    Done,
    Fetch,
    For,
    Guard,
    Kernel,
    Statement,
    Store,
)


def canonical(kernel: Kernel) -> Kernel:
    """The kernel with buffers and loop variables named by their place, so that equal nests print alike.

    before: kernel layer3(%x, %w) -> %y { for i0.7 ... }      after: kernel k(%b0, %b1) -> %b2 { for s0 ... }
    """
    renaming = _Renaming()
    reads = tuple(renaming.buffer(buffer) for buffer in kernel.reads)
    writes = tuple(renaming.buffer(buffer) for buffer in kernel.writes)
    return Kernel("k", reads, writes, renaming.statement(kernel.body))


@dataclass(slots=True)
class _Renaming:
    buffers: dict[Buffer, Buffer] = field(default_factory=dict)
    symbols: dict[Sym, Dim] = field(default_factory=dict)
    loops: int = 0
    renamed: Done = field(default_factory=dict[int, Scalar])
    """What scalars became with the symbols as they are now; and indices."""
    indices: dict[expr.Expr, Dim] = field(default_factory=dict[expr.Expr, Dim])

    def buffer(self, old: Buffer) -> Buffer:
        if old not in self.buffers:
            self.buffers[old] = replace(old, name=f"b{len(self.buffers)}")
        return self.buffers[old]

    def statement(self, statement: Statement) -> Statement:
        match statement:
            case For(sym, extent, kind, body):
                fresh = replace(sym, name=f"s{self.loops}")
                self.loops += 1
                extent = expr.substitute(extent, self.symbols)
                self.symbols[sym] = fresh
                self.renamed, self.indices = {}, {}
                return For(fresh, extent, kind, self.statement(body))
            case Store(buffer, indices, value):
                places = tuple(self._index(index) for index in indices)
                return Store(self.buffer(buffer), places, self.scalar(value))
            case Accumulate(buffer, indices, reduction, value):
                places = tuple(expr.substitute(index, self.symbols) for index in indices)
                return Accumulate(self.buffer(buffer), places, reduction, self.scalar(value))
            case Fetch(buffer, indices):
                places = tuple(expr.substitute(index, self.symbols) for index in indices)
                return replace(statement, buffer=self.buffer(buffer), indices=places)
            case Guard(condition, body):
                return Guard(self.scalar(condition), self.statement(body))
            case Allocate(buffer, body):
                return Allocate(self.buffer(buffer), self.statement(body))
            case Block(statements):
                return Block(tuple(self.statement(inner) for inner in statements))

    def scalar(self, scalar: Scalar) -> Scalar:
        """With symbols and buffers renamed at once: most of a large kernel is scalars."""
        found = self.renamed.get(id(scalar))
        if found is not None:
            return found
        if isinstance(scalar, Apply):
            made: Scalar = Apply(scalar.op, tuple([self.scalar(argument) for argument in scalar.arguments]))
        elif isinstance(scalar, Load):
            assert isinstance(scalar.source, Buffer)
            places = tuple([self._index(index) for index in scalar.indices])
            made = Load(self.buffer(scalar.source), places, scalar.dtype)
        elif isinstance(scalar, Const):
            return scalar
        elif isinstance(scalar, Index):
            made = Index(expr.substitute(scalar.value, self.symbols))
        elif isinstance(scalar, Select):
            made = Select(*[self.scalar(part) for part in (scalar.condition, scalar.then, scalar.otherwise)])
        else:
            made = Cast(self.scalar(scalar.value), scalar.dtype, scalar.saturate)
        self.renamed[id(scalar)] = made
        return made

    def _index(self, index: Dim | Scalar) -> Dim | Scalar:
        if isinstance(index, int):
            return index
        if not isinstance(index, expr.Expr):
            return self.scalar(index)
        if index not in self.indices:
            self.indices[index] = expr.substitute(index, self.symbols)
        return self.indices[index]
