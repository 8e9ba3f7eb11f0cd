"""The loops of a kernel's machine code: which loop of the nest each is, how often it runs, what one iteration does.

Blocks that are in a loop but in none inside it are its own. Where a body branches, the path that costs most counts:
guards are taken to hold, remainders to exist. Loops in guards that hold for some iterations run in those.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foretell.codegen.loop_shape import vector_steps
from foretell.cost.assembly import BasicBlock, Instruction, MachineFunction
from foretell.cost.decode_aarch64 import decode_aarch64
from foretell.cost.decode_x86 import decode_x86
from foretell.cost.instruction import Decoded
from foretell.cost.line_splits import line_splits
from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Index
from foretell.loops.canonical import canonical
from foretell.loops.nodes import VECTOR_KINDS, Allocate, Block, For, Guard, Kernel, Statement, loops_in

DECODERS: Mapping[str, Callable[[Instruction], Decoded]] = {"x86_64": decode_x86, "aarch64": decode_aarch64}
AVERAGED = 4096
"""Iterations of outer loops over which an extent that depends on them is averaged; beyond that the first one counts."""


@dataclass(slots=True)
class MachineLoop:
    """A loop, or as the root the function that is around all loops and runs once."""

    name: str
    """Of the variable in the kernel; "" for the root and for loops of functions that were inlined."""
    step: int
    """Iterations of the kernel's loop that one iteration here does."""
    trips: float
    """Iterations each time the loop is entered."""
    share: float = 1.0
    """How often it is entered in an iteration of the loop around it: less than once where a guard decides."""
    body: list[Decoded] = field(default_factory=list)
    """Its own instructions, in order, along the path that costs most."""
    children: list[MachineLoop] = field(default_factory=list)
    splits: tuple[float, float] = (0.0, 0.0)
    """The share of vectors that it loads, and that it stores, across two lines."""
    code_bytes: int = 0
    """Of all its blocks, those of loops inside it included."""

    @property
    def counts(self) -> Counter[str]:
        """Its own instructions per iteration, by kind."""
        return Counter(kind for instruction in self.body for kind in instruction.kinds)

    def walk(self, entries: float = 1.0) -> Iterator[tuple[MachineLoop, float]]:
        """This loop and those inside it, each with its iterations in all."""
        iterations = entries * self.share * self.trips
        yield self, iterations
        for child in self.children:
            yield from child.walk(iterations)


def machine_loops(
    function: MachineFunction, kernel: Kernel, vector_bytes: int, symbols: Mapping[Sym, int]
) -> MachineLoop:
    """The loops of a kernel's function, and the straight code around them as the root."""
    decode = DECODERS[function.architecture]
    blocks = function.blocks
    decoded = [[decode(instruction) for instruction in block.instructions] for block in blocks]
    found = _natural_loops(blocks)
    trips = _Trips(kernel, vector_bytes, symbols)
    marks = {head: _mark(blocks, head, found[head]) for head in found}
    loops: dict[int, MachineLoop] = {}
    costs: dict[int, float] = {}
    for head in sorted(found, key=lambda head: len(found[head])):
        inside = found[head]
        within = [marks[other] for other in found if other in inside and marks[other][0]]
        number, step = marks[head] if marks[head][0] else (trips.around(within), 1)
        loop = loops[head] = trips.machine_loop(number, step, is_split=not marks[head][0])
        loop.code_bytes = _bytes(decoded, inside)
        outer = min(
            (other for other in found if inside < found[other]), key=lambda each: len(found[each]), default=None
        )
        if outer is not None and number and marks[outer][0] == trips.parent(number):
            loop.share = trips.share(number)
        costs[head] = loop.share * loop.trips * _fill(loop, head, inside, blocks, decoded, found, loops, costs)
    root = MachineLoop("", 1, 1.0, code_bytes=_bytes(decoded, range(len(blocks))))
    if blocks:
        _fill(root, 0, frozenset(range(len(blocks))), blocks, decoded, found, loops, costs, is_root=True)
    return root


def _bytes(decoded: Sequence[Sequence[Decoded]], inside: frozenset[int] | range) -> int:
    return sum(instruction.size_bytes for number in inside for instruction in decoded[number])


def _mark(blocks: Sequence[BasicBlock], head: int, inside: frozenset[int]) -> tuple[int, int]:
    """What the branches back to the head are marked with; where a jump goes there, what leaves the loop is."""
    back = [blocks[number].mark for number in sorted(inside) if head in blocks[number].targets]
    leaving = [blocks[number].mark for number in sorted(inside) if not inside.issuperset(blocks[number].targets)]
    return next((mark for mark in back + leaving if mark[0]), (0, 1))


# --- structure -------------------------------------------------------------------------------------------------


def _natural_loops(blocks: Sequence[BasicBlock]) -> dict[int, frozenset[int]]:
    """Heads, and the blocks from which a head is reached again without leaving what it dominates."""
    before: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for target in block.targets:
            before[target].append(number)
    dominators = _dominators(before)
    found: dict[int, set[int]] = {}
    for number, block in enumerate(blocks):
        for head in block.targets:
            if dominators[number] >> head & 1:
                inside = found.setdefault(head, {head})
                waiting = [number]
                while waiting:
                    member = waiting.pop()
                    if member not in inside:
                        inside.add(member)
                        waiting += before[member]
    return {head: frozenset(inside) for head, inside in found.items()}


def _dominators(before: Sequence[Sequence[int]]) -> list[int]:
    """For each block the blocks that every path to it passes, as bits; of a block that none reaches, all."""
    every = (1 << len(before)) - 1
    found = [1, *([every] * (len(before) - 1))]
    changed = True
    while changed:
        changed = False
        for number in range(1, len(before)):
            passed = every
            for other in before[number]:
                passed &= found[other]
            passed |= 1 << number
            if passed != found[number]:
                found[number], changed = passed, True
    return found


def _fill(
    loop: MachineLoop,
    head: int,
    inside: frozenset[int],
    blocks: Sequence[BasicBlock],
    decoded: Sequence[Sequence[Decoded]],
    found: Mapping[int, frozenset[int]],
    loops: Mapping[int, MachineLoop],
    costs: Mapping[int, float],
    is_root: bool = False,
) -> float:
    """Give a loop what the costliest path through it runs; -> the instructions of one iteration."""
    children = [other for other in found if found[other] <= inside and (is_root or other != head)]
    outermost = [other for other in children if not any(other in found[each] for each in children if each != other)]
    owner = {number: other for other in outermost for number in found[other]}
    best: dict[int, tuple[float, int | None]] = {}

    def following(node: int) -> set[int]:
        """Nodes after a node, where a loop inside is one."""
        members = found[node] if owner.get(node) == node else (node,)
        targets = {target for member in members for target in blocks[member].targets}
        return {owner.get(t, t) for t in targets if t in inside and (t != head or is_root)} - {node}

    start = owner.get(head, head)
    for node in _last_first(start, following):
        own = costs[node] if owner.get(node) == node else len(decoded[node])
        after = max(((best[each][0], -each) for each in following(node) if each in best), default=(0.0, 0))
        best[node] = (own + after[0], -after[1] if after[0] else None)
    node: int | None = start
    while node is not None:
        if owner.get(node) == node:
            loop.children.append(loops[node])
        else:
            loop.body += decoded[node]
        node = best[node][1]
    aside = [
        loops[other] for other in sorted(outermost) if loops[other].share < 1.0 and loops[other] not in loop.children
    ]
    loop.children += aside
    return best[start][0]


def _last_first(start: int, following: Callable[[int], set[int]]) -> list[int]:
    """Every node that is reached, each after those that follow it."""
    order: list[int] = []
    seen = {start}
    waiting = [(start, iter(sorted(following(start))))]
    while waiting:
        node, rest = waiting[-1]
        for each in rest:
            if each not in seen:
                seen.add(each)
                waiting.append((each, iter(sorted(following(each)))))
                break
        else:
            waiting.pop()
            order.append(node)
    return order


# --- trips -----------------------------------------------------------------------------------------------------


class _Trips:
    """How often the loops of a kernel run, from its extents."""

    def __init__(self, kernel: Kernel, vector_bytes: int, symbols: Mapping[Sym, int]) -> None:
        self.names = [loop.sym.name for loop in loops_in(kernel.body)]
        self.loops = list(loops_in(canonical(kernel).body))
        self.extents: dict[Sym, Dim] = {loop.sym: loop.extent for loop in self.loops}
        self.vector_bytes = vector_bytes
        self.symbols = symbols

    def machine_loop(self, number: int, step: int, is_split: bool) -> MachineLoop:
        """The loop of that number, still without instructions; 0 is none of the kernel's.

        LLVM splits a loop where a guard begins to fail, and leaves it there by the guard's branch.
        """
        if not number:
            return MachineLoop("", 1, 1.0)
        loop = self.loops[number - 1]
        counts = [self._count(loop, step, extent) for extent in self._values(loop.extent)]
        count = sum(counts) / len(counts)
        if is_split:
            count = min(count, self._guarded(loop))
        return MachineLoop(self.names[number - 1], step, count, splits=line_splits(loop, self.vector_bytes))

    def around(self, marks: Sequence[tuple[int, int]]) -> int:
        """The number of a loop whose branch has no mark, by the marks inside it."""
        return self.parent(marks[0][0]) if marks else 0

    def parent(self, number: int) -> int:
        """The nearest loop around a loop that is still one: not written out, not run once; 0 if there is none."""
        for other in range(number - 1, 0, -1):
            loop = self.loops[other - 1]
            if loop.kind != "unroll" and loop.extent != 1 and number <= other + sum(1 for _ in loops_in(loop.body)):
                return other
        return 0

    def share(self, number: int) -> float:
        """In which share of the iterations of the loop around it a loop runs."""
        inner, outer = self.loops[number - 1], self.loops[self.parent(number) - 1]
        for guard in _guards(outer.body):
            if isinstance(outer.extent, int) and any(loop is inner for loop in loops_in(guard.body)):
                return _times(guard, outer, outer.extent) / max(1, outer.extent)
        return 1.0

    def _guarded(self, loop: For) -> float:
        """How often the first guard in a loop holds."""
        guards = _guards(loop.body)
        return _times(guards[0], loop, loop.extent) if guards and isinstance(loop.extent, int) else math.inf

    def _count(self, loop: For, step: int, extent: int) -> int:
        if loop.kind not in VECTOR_KINDS:
            return extent
        wide, lanes = vector_steps(loop.body, loop.extent, self.vector_bytes)
        return extent // wide if step == wide else extent % wide // lanes

    def _values(self, extent: Dim) -> list[int]:
        """What an extent is in each iteration of the loops that it depends on."""
        extent = expr.substitute(extent, self.symbols)
        outer = sorted((sym for sym in expr.symbols(extent) if sym in self.extents), key=lambda sym: sym.name)
        ranges = [range(max(self._values(self.extents[sym]))) for sym in outer]
        points = 1
        for each in ranges:
            points *= len(each)
        if points > AVERAGED:
            ranges = [range(1)] * len(outer)
        values = [expr.substitute(extent, dict(zip(outer, at, strict=True))) for at in itertools.product(*ranges)]
        numbers = [max(0, value) for value in values if isinstance(value, int)]
        assert len(numbers) == len(values), f"{extent} needs numbers for {', '.join(map(str, expr.symbols(extent)))}"
        return numbers


def _guards(statement: Statement) -> list[Guard]:
    """The outermost guards of a statement, those inside loops that run once included."""
    match statement:
        case Guard():
            return [statement]
        case Block(statements):
            return [guard for inner in statements for guard in _guards(inner)]
        case Allocate(_, body) | For(_, 1, _, body):
            return _guards(body)
        case _:
            return []


def _times(guard: Guard, loop: For, extent: int) -> int:
    """In how many iterations of a loop a guard holds; all, where other things decide too."""
    match guard.condition:
        case Apply("lt" | "ge" as test, (Index(value), Index(int(bound)))) if extent <= AVERAGED:
            values = [expr.substitute(value, {loop.sym: number}) for number in range(extent)]
            if all(isinstance(each, int) for each in values):
                return sum((each < bound) == (test == "lt") for each in values if isinstance(each, int))
    return extent
