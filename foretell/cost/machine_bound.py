"""The time of a kernel's machine code while its data is near: ports, front end, and chains of dependent instructions.

An iteration takes as long as the worst of three bounds allows:
  ports      micro-operations that can only run on some ports, over the number of those ports
  front end  instructions over those that are issued in a cycle; one with a memory operand counts once
  chain      what an iteration waits for of the one before it, through registers and spilled registers
and a loop takes its iterations times that, plus what the loops inside it take. Waiting for caches is not in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foretell.cost.assembly import assemble_kernel, parse_assembly
from foretell.cost.instruction import Decoded
from foretell.cost.machine_loops import MachineLoop, machine_loops
from foretell.ir.expr import Sym
from foretell.loops.nodes import Kernel
from foretell.target.resolve import Target

ROUNDS = 4
"""Iterations over which a chain is followed: it may come round in more than one."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a core runs one class of micro-operation."""

    ports: tuple[str, ...]
    """Any one of them."""
    latency_cycles: float
    busy_cycles: float = 1.0
    """For which the port is taken."""


@dataclass(frozen=True, slots=True)
class Core:
    """A core family: what its instructions cost."""

    issue_width: float
    """Instructions that enter in a cycle."""
    forms: Mapping[str, tuple[Form, ...]]
    """The micro-operations of a class; none for moves that only rename."""
    widest: Mapping[str, tuple[Form, ...]] = field(default_factory=dict[str, tuple[Form, ...]])
    """The same for vectors of 64 bytes, where it differs."""
    window: float = 350.0
    """Instructions that may wait for their turn: those of later iterations run beside what a chain holds up."""
    accumulate_cycles: float = 4.0
    """From accumulator to accumulator of a multiply-add."""
    forward_cycles: float = 5.0
    """From a store to a load of the same place."""

    def operations(self, operation: str, width_bytes: int) -> tuple[Form, ...]:
        found = self.widest.get(operation) if width_bytes == 64 else None
        return self.forms.get(operation, ()) if found is None else found


def _forms(**classes: tuple[str, float] | tuple[str, float, float]) -> dict[str, tuple[Form, ...]]:
    """Classes of one micro-operation each: names of ports, latency, and for how long a port is taken."""
    return {name: (Form(tuple(numbers[0].split()), *numbers[1:]),) for name, numbers in classes.items()}


ICE_LAKE = Core(
    issue_width=5,
    forms=_forms(
        fma=("p0 p1", 4), add=("p0 p1", 4), mul=("p0 p1", 4), max=("p0 p1", 4), div=("p0", 11, 5), sqrt=("p0", 12, 6),
        shuffle=("p1 p5", 1), blend=("p0 p1 p5", 1), compare=("p0 p1", 4), convert=("p0 p1", 4), logic=("p0 p1 p5", 1),
        shift=("p0 p1", 1), integer=("p0 p1 p5 p6", 1), integer_multiply=("p1", 3), branch=("p6", 1),
        load=("p2 p3", 6), broadcast_load=("p2 p3", 6), prefetch=("p2 p3", 0),
    ) | {"store": (Form(("p4", "p9"), 0), Form(("p7", "p8"), 0)), "move": ()},
    widest=_forms(
        fma=("p0 p5", 4), add=("p0 p5", 4), mul=("p0 p5", 4), max=("p0 p5", 4), div=("p0", 17, 10), sqrt=("p0", 20, 12),
        shuffle=("p5", 2), blend=("p0 p5", 1), compare=("p5", 3), convert=("p0 p5", 4), logic=("p0 p5", 1),
        shift=("p0", 1), load=("p2 p3", 7, 1.8), broadcast_load=("p2 p3", 7, 1.8),
    ) | {"store": (Form(("p4",), 0), Form(("p7", "p8"), 0))},
)  # fmt: skip
"""As published in Intel's optimization manual and on uops.info; where forms of a class differ, the usual one.

Loads of 64 bytes, broadcast ones too, are the exception: that a port is taken for 1.8 cycles, where 1 is published, is
fitted to one machine's times of the kernels in `benchmarks/machine_code.py`. Loads by themselves were measured at 1.2
there, so that the number stands for more than the port.
"""
NEOVERSE_N1 = Core(
    issue_width=4,
    forms=_forms(
        fma=("v0 v1", 4), add=("v0 v1", 2), mul=("v0 v1", 3), max=("v0 v1", 2), div=("v0", 10, 7), sqrt=("v0", 10, 7),
        shuffle=("v0 v1", 2), blend=("v0 v1", 2), compare=("v0 v1", 2), convert=("v0", 3), logic=("v0 v1", 2),
        shift=("v1", 2), integer=("i0 i1 m", 1), integer_multiply=("m", 2), branch=("b", 1), move=("i0 i1 m", 1),
        load=("l0 l1", 5), broadcast_load=("l0 l1", 7), prefetch=("l0 l1", 0),
    ) | {"store": (Form(("l0", "l1"), 0), Form(("v0", "v1"), 0))},
    window=128.0,
    accumulate_cycles=2.0,
)  # fmt: skip
"""As published in Arm's Neoverse N1 software optimization guide: multiply-adds forward their sums after two cycles."""
CORES = {"x86_64": ICE_LAKE, "aarch64": NEOVERSE_N1}
"""One for each architecture, until every CPU has its own."""


@dataclass(frozen=True, slots=True)
class LoopBound:
    """One loop: what an iteration of its own instructions takes by each bound."""

    loop: MachineLoop
    iterations: float
    """In the whole kernel."""
    port_cycles: float
    front_end_cycles: float
    chain_cycles: float

    @property
    def cycles(self) -> float:
        """Of one iteration."""
        return max(self.port_cycles, self.front_end_cycles, self.chain_cycles)


@dataclass(frozen=True, slots=True)
class MachineTime:
    """What a kernel's machine code takes on one core, and why."""

    seconds: float
    cycles: float
    port_cycles: float
    """What the kernel would take if only its ports mattered; and so on."""
    front_end_cycles: float
    chain_cycles: float
    spills: float
    """Instructions that store and load vectors because registers ran out, inside loops."""
    address_instructions: float
    """Scalar instructions inside loops: addresses and counters."""
    code_bytes: int
    hot_code_bytes: int
    """Of the innermost loop that takes the most cycles."""
    loops: tuple[LoopBound, ...]
    """Outer before inner; the first is the code around all of them."""


def machine_time(kernel: Kernel, target: Target, symbols: Mapping[Sym, int] | None = None) -> MachineTime:
    """Compile a kernel for a target, which need not be this machine, and bound the time of what comes out."""
    functions = parse_assembly(assemble_kernel(kernel, target), target.architecture)
    (body,) = (function for function in functions if function.name.endswith(".body"))
    root = machine_loops(body, kernel, target.spec.vector_bytes, symbols or {})
    return bound_time(root, CORES[target.architecture], target.spec.frequency_hz)


def bound_time(root: MachineLoop, core: Core, frequency_hz: float) -> MachineTime:
    """The bounds of every loop, and their sum."""
    bounds = tuple(_bound(loop, iterations, core) for loop, iterations in root.walk())
    kinds: Counter[str] = Counter()
    for bound in bounds[1:]:
        for kind, count in bound.loop.counts.items():
            kinds[kind] += count * bound.iterations  # type: ignore[assignment]
    cycles = sum(bound.iterations * bound.cycles for bound in bounds)
    hottest = max(
        (bound for bound in bounds if not bound.loop.children), key=lambda b: b.iterations * b.cycles, default=bounds[0]
    )
    return MachineTime(
        cycles / frequency_hz,
        cycles,
        sum(bound.iterations * bound.port_cycles for bound in bounds),
        sum(bound.iterations * bound.front_end_cycles for bound in bounds),
        sum(bound.iterations * bound.chain_cycles for bound in bounds),
        float(kinds["spill_load"] + kinds["spill_store"]),
        float(kinds["scalar"]),
        root.code_bytes,
        hottest.loop.code_bytes,
        bounds,
    )


def _bound(loop: MachineLoop, iterations: float, core: Core) -> LoopBound:
    slots = sum(instruction.slots for instruction in loop.body)
    chain = chain_bound(loop.body, core) if not loop.children and loop.name else 0.0
    # A loop that ends before the window is full runs beside the next one, which has chains of its own.
    beside = max(1.0, core.window / max(1.0, slots * loop.trips))
    return LoopBound(
        loop, iterations, port_bound(loop.body, core, loop.splits), slots / core.issue_width, chain / beside
    )


def port_bound(body: Iterable[Decoded], core: Core, splits: tuple[float, float] = (0.0, 0.0)) -> float:
    """Cycles by the ports: for every set of them, what can only run there over how many there are.

    By Hall's theorem that is what the best assignment of micro-operations to ports takes. `splits` is the share of
    vectors loaded and stored that take two turns.
    """
    busy: dict[frozenset[str], float] = {}
    for instruction in body:
        for form, turns in micro_operations(instruction, core, splits):
            ports = frozenset(form.ports)
            busy[ports] = busy.get(ports, 0.0) + turns * form.busy_cycles
    unions: set[frozenset[str]] = set()
    for ports in busy:
        unions |= {ports | other for other in unions} | {ports}
    return max((sum(busy[p] for p in busy if p <= union) / len(union) for union in unions), default=0.0)


def micro_operations(instruction: Decoded, core: Core, splits: tuple[float, float]) -> Iterator[tuple[Form, float]]:
    """What an instruction occupies ports with, and how many turns it takes there."""
    width = instruction.width_bytes
    for form in core.operations(instruction.operation, width):
        yield form, 1.0
    if instruction.operation == "prefetch":
        return
    is_whole = width > 0 and not instruction.is_broadcast and not instruction.spills
    split_loads, split_stores = splits if is_whole else (0.0, 0.0)
    if instruction.loads:
        for form in core.operations("broadcast_load" if instruction.is_broadcast else "load", width):
            yield form, instruction.loads * (1.0 + split_loads)
    if instruction.stores:
        for form in core.operations("store", width):
            yield form, instruction.stores * (1.0 + split_stores)


def chain_bound(body: Sequence[Decoded], core: Core) -> float:
    """Cycles that each iteration adds to when the last of its results is there, with ports without end."""
    steps = [_step(instruction, core) for instruction in body]
    ready: dict[str, float] = {}
    ends: list[float] = []
    for _ in range(2 * ROUNDS):
        for instruction, latency, load_latency in steps:
            at = max((ready.get(name, 0.0) for name in instruction.address), default=0.0)
            at += load_latency
            for name in instruction.reads:
                at = max(at, ready.get(name, 0.0))
            at += latency
            if instruction.accumulator:
                at = max(at, ready.get(instruction.accumulator, 0.0) + core.accumulate_cycles)
            for name in instruction.writes:
                ready[name] = at
        ends.append(max(ready.values(), default=0.0))
    return (ends[-1] - ends[ROUNDS - 1]) / ROUNDS


def _step(instruction: Decoded, core: Core) -> tuple[Decoded, float, float]:
    """An instruction, its latency from registers, and what an address adds."""
    forms = core.operations(instruction.operation, instruction.width_bytes)
    latency = max((form.latency_cycles for form in forms), default=0.0)
    if instruction.stores:
        latency += core.forward_cycles
    load = core.operations("load", instruction.width_bytes) if instruction.loads else ()
    return instruction, latency, max((form.latency_cycles for form in load), default=0.0)
