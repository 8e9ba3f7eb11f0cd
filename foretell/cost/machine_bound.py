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
from dataclasses import dataclass, field, replace

from foretell.cost.assembly import assemble_kernel, parse_assembly
from foretell.cost.instruction import Decoded
from foretell.cost.machine_loops import MachineLoop, machine_loops
from foretell.ir.expr import Sym
from foretell.loops.nodes import Kernel
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.instructions import CLASSES, InstructionForm, family_of
from foretell.target.resolve import Target

ROUNDS = 4
"""Iterations over which a chain is followed: it may come round in more than one."""
IN_ORDER_WINDOW = 16
"""Instructions that a core which works in order looks ahead by."""
SCALAR_CLASSES = dict.fromkeys(("integer", "logic", "shift", "compare", "blend"), "scalar") | {
    "integer_multiply": "scalar_multiply"
}


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
    """What the instructions of a core cost."""

    issue_width: float
    """Instructions that enter in a cycle."""
    forms: Mapping[str, tuple[Form, ...]]
    """The micro-operations of a class; none for moves that only rename."""
    widest: Mapping[str, tuple[Form, ...]] = field(default_factory=dict[str, tuple[Form, ...]])
    """The same for vectors of the full width, where it differs."""
    full_bytes: int = 64
    window: float = 350.0
    """Instructions that may wait for their turn: those of later iterations run beside what a chain holds up."""
    accumulate_cycles: float = 4.0
    """From accumulator to accumulator of a multiply-add."""
    forward_cycles: float = 5.0
    """From a store to a load of the same place."""

    def operations(self, operation: str, width_bytes: int) -> tuple[Form, ...]:
        if width_bytes == 0 and operation in SCALAR_CLASSES and SCALAR_CLASSES[operation] in self.forms:
            return self.forms[SCALAR_CLASSES[operation]]
        found = self.widest.get(operation) if width_bytes == self.full_bytes else None
        return self.forms.get(operation, ()) if found is None else found


def core_of(spec: HardwareSpec) -> Core:
    """The core of a CPU, by the table of its family; full vectors are loaded at the rate that the CPU's spec says."""
    family = family_of(spec.name)
    narrow, wide = (
        {name: _forms(family.form(name, width)) for name in CLASSES} for width in (family.vector_bytes // 2, None)
    )
    for name in ("load", "broadcast_load"):
        wide[name] = tuple(
            replace(form, busy_cycles=max(form.busy_cycles, len(form.ports) / spec.loads_per_cycle))
            for form in wide[name]
        )
    narrow["prefetch"] = tuple(replace(form, latency_cycles=0) for form in narrow["load"])
    return Core(
        family.issue_width,
        narrow,
        wide,
        family.vector_bytes,
        max(IN_ORDER_WINDOW, family.reorder_buffer),
        family.form("fma").latency_cycles,
        family.form("store").latency_cycles,
    )


def _forms(form: InstructionForm) -> tuple[Form, ...]:
    """Ports are taken for as long as makes the rate what it is."""
    busy = max(1.0, form.port_bound_per_cycle / form.per_cycle) if form.micro_ops else 1.0
    return tuple(Form(tuple(sorted(ports)), form.latency_cycles, busy) for ports in form.micro_ops)


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
    return bound_time(root, core_of(target.spec), target.spec.frequency_hz)


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
