"""From lowered steps to a model that runs: slots, symbols, machine code, and Python for what has none.

The one place where the compiler's stages meet the run time besides `compiler.py`, which calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import ProgramEmitter, emit_pool
from foretell.graph.control_flow import is_control_flow, run_control_flow
from foretell.graph.equal_dims import equal_dims
from foretell.graph.evaluate import evaluate_node
from foretell.graph.nodes import Array, Graph, Node
from foretell.graph.optable import OPS
from foretell.ir import dtypes, expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer
from foretell.loops.bounds_checks import bounds_checks
from foretell.loops.finish_kernel import finish_kernel
from foretell.loops.lower import Fusion
from foretell.loops.lower_graph import NativeStep, NodeStep, buffer_of, lower_graph
from foretell.loops.nodes import Kernel, free_symbols
from foretell.partition.align_operands import is_worth_aligning
from foretell.partition.choose_groups import Decision, GroupChooser
from foretell.runtime.arena import gathered
from foretell.runtime.program import Binary, Check, Program, Slot, Step
from foretell.runtime.session import CompiledModel, Fallback
from foretell.schedule.pack import packed_view
from foretell.search.schedule_nests import Nest, NestScheduler, Packing, Recorded
from foretell.support.collect_later import collect_later
from foretell.support.parts import Part
from foretell.support.stage_times import StageTimes
from foretell.target.resolve import Target


def is_native(node: Node) -> bool:
    """Whether kernels can be made from a node's definition."""
    return OPS[node.op].define is not None


@dataclass(frozen=True, slots=True)
class Lowered:
    """The kernels of a graph, and the nodes that have none, in order; and constants that kernels read packed."""

    steps: list[NativeStep | NodeStep]
    packed: Mapping[str, Packing]
    """Names of packed constants: what they are made of, and how."""
    nests: tuple[tuple[Nest, int], ...]
    """Distinct sums of products, and how often each occurs."""
    decisions: tuple[Decision, ...]
    """Which clusters became one kernel, which did not, and why."""
    drafts: Mapping[str, float]
    """Seconds that kernels should take on one core, as was thought before there was code for them; by their names."""


def lower_program(
    graph: Graph,
    target: Target,
    recorded: Recorded | None = None,
    without: Set[Part] = frozenset(),
    use: Callable[[Kernel], object] = lambda kernel: None,
) -> Lowered:
    """Kernels for a graph; `recorded` knows schedules that were measured. `without` is for ablations alone.

    `use` is given kernels as soon as they are final; one that does the same as another before, to other buffers, may be
    left out.
    """

    def finish(kernel: Kernel) -> Kernel:
        finished = finish_kernel(kernel, target.spec)
        use(finished)
        return finished

    constants = frozenset(value.name for value in graph.constants)
    schedule = NestScheduler(target.spec, constants, recorded)
    inside = NestScheduler(target.spec, constants, recorded, is_inside=True, packed=schedule.packed)
    chooser = GroupChooser(target.spec, constants)
    fusion = Fusion(chooser, _declined if Part.INNER_SCHEDULES in without else inside)
    steps = lower_graph(
        graph,
        is_native,
        target.spec.vector_bytes // 4,
        schedule,
        None if Part.FUSION in without else fusion,
        finish,
        lambda operand: is_worth_aligning(operand, target.spec),
        permute=Part.LAYOUTS not in without,
    )
    nests = tuple((nest, each.counts[name]) for each in (schedule, inside) for name, nest in each.nests.items())
    return Lowered(steps, schedule.packed, nests, tuple(chooser.decisions), chooser.drafts)


def _declined(_: Kernel) -> None:
    """No schedule for any nest."""


@collect_later()
def link_program(
    graph: Graph,
    target: Target,
    threads: int = 1,
    times: StageTimes | None = None,
    recorded: Recorded | None = None,
    without: Set[Part] = frozenset(),
) -> CompiledModel:
    """Lower, emit and load a graph; subgraphs of control flow become models of their own.

    `without` names parts of the compiler that take no part, so that developers can measure what each is worth.
    """
    times = StageTimes() if times is None else times
    with ProgramEmitter(target, times) as emitter, ThreadPoolExecutor(1) as beside:
        with times.measure("lower"):
            lowered = lower_program(graph, target, recorded, without, emitter.add)
            steps, constants = lowered.steps, _constants(graph, lowered)
            program = _program(graph, steps, constants)
        numbers = {slot.name: number for number, slot in enumerate(program.slots)}
        # Most of it is memory that is touched for the first time.
        gathering = beside.submit(gathered, {numbers[name]: array for name, array in constants.items()})
        kernels = [step.kernels for step in steps if isinstance(step, NativeStep)]
        code = emitter.finish(kernels, _layout(program))
        with times.measure("load"):  # LLVM is still at work.
            arrays = gathering.result()
        binary = Binary(target, code(), emit_pool(target))
    link = partial(link_program, target=target, threads=threads, times=times, recorded=recorded, without=without)
    fallbacks = [_fallback(step.node, link) for step in steps if isinstance(step, NodeStep)]
    with times.measure("load"):
        return CompiledModel(program, binary, arrays, fallbacks, threads)


def _constants(graph: Graph, lowered: Lowered) -> dict[str, Array]:
    """Arrays by name: constants as they are, if anything reads them so, and packed ones."""
    arrays = {value.name: array for value, array in graph.constants.items()}
    packed = {
        name: packed_view(arrays[source.name].reshape(source.type.static_shape), parts)
        for name, (source, parts) in lowered.packed.items()
    }
    only_packed = {source.name for source, _ in lowered.packed.values()} - _read_unpacked(graph, lowered.steps)
    return {name: array for name, array in arrays.items() if name not in only_packed} | packed


def _read_unpacked(graph: Graph, steps: Sequence[NativeStep | NodeStep]) -> set[str]:
    read = {value.name for value in graph.outputs}
    for step in steps:
        if isinstance(step, NodeStep):
            read |= {value.name for value in step.node.present_inputs}
        else:
            read |= {buffer.name for kernel in step.kernels for buffer in kernel.reads}
    return read


def _program(graph: Graph, steps: Sequence[NativeStep | NodeStep], constants: Mapping[str, Array]) -> Program:
    slots = _slots(graph, steps, constants)
    numbers = {slot.name: number for number, slot in enumerate(slots)}
    return Program(
        graph.name,
        slots,
        _symbols(slots, steps),
        _steps(steps, numbers),
        tuple(numbers[value.name] for value in graph.inputs),
        tuple(numbers[value.name] for value in graph.outputs),
        graph.output_names,
        _checks(graph, steps),
    )


def _checks(graph: Graph, steps: Sequence[NativeStep | NodeStep]) -> tuple[Check, ...]:
    """Equal dimensions of nodes that have kernels, then bounds of the kernels; each only once."""
    elsewhere = {id(step.node) for step in steps if isinstance(step, NodeStep)}
    found: dict[Dim, str] = {}
    for node in graph.nodes:
        if id(node) not in elsewhere:
            for left, right in equal_dims(node):
                found.setdefault(left - right, node.location or node.op)
                found.setdefault(right - left, node.location or node.op)
    for step in steps:
        for kernel in step.kernels if isinstance(step, NativeStep) else ():
            for value in bounds_checks(kernel):
                found.setdefault(value, kernel.location or kernel.name)
    return tuple(Check(value, where) for value, where in found.items())


def _layout(program: Program) -> Layout:
    slots = {slot.name: number for number, slot in enumerate(program.slots)}
    symbols = {symbol: number for number, symbol in enumerate(program.symbols)}
    return Layout(slots, symbols)


def _slots(graph: Graph, steps: Sequence[NativeStep | NodeStep], constants: Mapping[str, Array]) -> tuple[Slot, ...]:
    """One slot per tensor that exists in memory, inputs first."""
    roles: dict[str, Slot] = {}

    def add(buffer: Buffer, role: str) -> None:
        roles.setdefault(buffer.name, Slot(buffer.name, buffer.dtype, buffer.shape, role))

    for value in graph.inputs:
        add(buffer_of(value), "input")
    for name, array in constants.items():
        roles[name] = Slot(name, dtypes.from_numpy(array.dtype), array.shape, "constant")
    for value in graph.outputs:
        add(buffer_of(value), "output")
    for step in steps:
        if isinstance(step, NodeStep):
            for value in (*step.node.present_inputs, *step.node.outputs):
                add(buffer_of(value), "temporary")
        else:
            for kernel in step.kernels:
                for buffer in (*kernel.reads, *kernel.writes):
                    add(buffer, "temporary")
    return tuple(roles.values())


def _symbols(slots: Sequence[Slot], steps: Sequence[NativeStep | NodeStep]) -> tuple[Sym, ...]:
    """Every symbol that a shape mentions, in a fixed order."""
    found: set[Sym] = set()
    for slot in slots:
        for dim in slot.shape:
            found |= expr.symbols(dim)
    for step in steps:
        if isinstance(step, NodeStep):
            found |= step.node.symbols
        else:
            for kernel in step.kernels:
                found |= free_symbols(kernel)
    return expr.in_order(found)


def _steps(steps: Sequence[NativeStep | NodeStep], numbers: Mapping[str, int]) -> tuple[Step, ...]:
    result: list[Step] = []
    native = fallback = 0
    for step in steps:
        if isinstance(step, NodeStep):
            reads = tuple(numbers[value.name] for value in step.node.present_inputs)
            writes = tuple(numbers[value.name] for value in step.node.outputs)
            operator = str(step.node.attrs.get("op_type", step.node.op))
            result.append(Step(None, fallback, reads, writes, operator=operator))
            fallback += 1
        else:
            result.append(_native_step(native, step.kernels, numbers))
            native += 1
    return tuple(result)


def _native_step(number: int, kernels: Sequence[Kernel], numbers: Mapping[str, int]) -> Step:
    uses = tuple(
        (tuple(numbers[b.name] for b in kernel.writes), tuple(numbers[b.name] for b in kernel.reads))
        for kernel in kernels
    )
    writes = dict.fromkeys(slot for written, _ in uses for slot in written)
    reads = dict.fromkeys(slot for _, read in uses for slot in read if slot not in writes)
    return Step(number, None, tuple(reads), tuple(writes), uses)


def _fallback(node: Node, link: Callable[[Graph], CompiledModel]) -> Fallback:
    """How a node without native code is run; `link` makes models of its subgraphs."""
    present = [value is not None for value in node.inputs]

    def spread(arrays: Sequence[Array]) -> list[Array | None]:
        given = iter(arrays)
        return [next(given) if here else None for here in present]

    if not is_control_flow(node):
        return lambda arrays, symbols: evaluate_node(node, spread(arrays), symbols)
    models = {id(graph): link(graph) for graph in node.subgraphs}

    def run(arrays: Sequence[Array], symbols: Mapping[Sym, int]) -> Sequence[Array]:
        return run_control_flow(
            node, spread(arrays), lambda graph, inputs: models[id(graph)].run_checked(inputs, symbols)
        )

    return run
