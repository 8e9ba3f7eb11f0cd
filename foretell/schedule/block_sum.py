"""A sum in blocks: part of a reduction for many points of the output, then the next part for all of them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretell.ir import expr
from foretell.ir.tensor_expr import Apply, Buffer, Index, Load, Scalar, Select
from foretell.loops.analysis import carried_by
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Guard, Statement, Store, loops_in
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.loops_by_name import chain, loops_named, nested, replace_loops

PARTIAL_BYTES = 64 << 10
"""The most that partial sums may take of the stack."""


def check_block_sum(nest: Statement, loop: str, around: Sequence[str]) -> None:
    """The loops around must be directly inside one another, independent, and contain the sum's outermost loop."""
    found = [each for each in loops_named(nest, around[0]) if _names(each, len(around)) == list(around)]
    if not found:
        raise IllegalStep(f"{', '.join(around)} are not directly inside one another")
    for outermost in found:
        block = chain(outermost, len(around))
        inside = list(loops_in(block[-1].body))
        if not inside or inside[0].sym.name != loop:
            raise IllegalStep(f"{loop} is not the first loop inside {', '.join(around)}")
        if any(not isinstance(each.extent, int) for each in (*block, inside[0])):
            raise IllegalStep("the size of a block of sums is not known")
        if any(True for each in block for _ in carried_by(each)):
            raise IllegalStep(f"iterations of {', '.join(around)} depend on each other")


def block_sum(nest: Statement, loop: str, around: Sequence[str]) -> Statement:
    """Run a loop of a sum outside the loops around it; partial sums wait on the stack.

    before: for i: s = 0;  for r.o: for r.i: s += A(i, r);  y[i] = f(s)
    after:  for r.o: for i: s = select(r.o == 0, 0, p[i]);  for r.i: s += A(i, r);
                            if r.o is last: y[i] = f(s)  else: p[i] = s
    """
    check_block_sum(nest, loop, around)

    def blocked(outermost: For) -> Statement:
        if _names(outermost, len(around)) != list(around):
            return outermost
        block = chain(outermost, len(around))
        (reduction, *_) = loops_in(block[-1].body)
        accumulator = _accumulator(reduction)
        shape = tuple(each.extent for each in block)
        partial = Buffer(f"{accumulator.name}.partial", accumulator.dtype, shape, "stack")
        if _bytes(partial) > PARTIAL_BYTES:
            raise IllegalStep(f"partial sums take {_bytes(partial)} bytes")
        split = _Split(reduction, accumulator, partial, tuple(each.sym for each in block))
        return Allocate(partial, replace(reduction, body=nested(block, split.statement(block[-1].body))))

    return replace_loops(nest, around[0], blocked)


@dataclass(frozen=True, slots=True)
class _Split:
    """Rewrites what is computed at one point of the output."""

    reduction: For
    accumulator: Buffer
    partial: Buffer
    place: tuple[expr.Sym, ...]

    def statement(self, statement: Statement) -> Statement:
        """One block of the sum; what follows the sum waits for the last block."""
        match statement:
            case Allocate(buffer, body):
                return Allocate(buffer, self.statement(body))
            case Block(statements):
                number = next(n for n, each in enumerate(statements) if self.reduction in loops_in(each))
                before = tuple(self.start(each) for each in statements[:number])
                rest = statements[number + 1 :]
                after = (Guard(self.is_last("eq"), Block(rest)),) if rest else ()
                return Block((*before, self.statement(statements[number]), *after))
            case For():
                keep = Store(self.partial, self.place, Load(self.accumulator, (), self.accumulator.dtype))
                return Block((self.reduction.body, Guard(self.is_last("ne"), keep)))
            case _:
                raise IllegalStep("a sum that is not computed point by point")

    def start(self, statement: Statement) -> Statement:
        """The accumulator starts from what it came to before."""
        if not isinstance(statement, Store) or statement.buffer != self.accumulator:
            return statement
        is_first = Apply("eq", (Index(self.reduction.sym), Index(0)))
        so_far = Load(self.partial, self.place, self.partial.dtype)
        return replace(statement, value=Select(is_first, statement.value, so_far))

    def is_last(self, comparison: str) -> Scalar:
        assert isinstance(self.reduction.extent, int)
        return Apply(comparison, (Index(self.reduction.sym), Index(self.reduction.extent - 1)))


def _names(outermost: For, count: int) -> list[str]:
    return [loop.sym.name for loop in chain(outermost, count)]


def _accumulator(reduction: For) -> Buffer:
    body: Statement = reduction
    while isinstance(body, For):
        body = body.body
    if not isinstance(body, Accumulate):
        raise IllegalStep("a sum of more than one statement")
    return body.buffer


def _bytes(buffer: Buffer) -> int:
    elements = expr.product(buffer.shape)
    assert isinstance(elements, int)
    return elements * buffer.dtype.itemsize
