"""From a graph to the steps of a program: runs of native kernels, and the nodes between them that run elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from foretell.graph.nodes import Graph, Node, Value
from foretell.ir.tensor_expr import Buffer
from foretell.loops.choose_layouts import choose_layouts
from foretell.loops.lower import Finish, Fusion, Scheduler, lower
from foretell.loops.nodes import Kernel
from foretell.loops.part_constants import part_constants
from foretell.loops.split_by_value import split_by_value
from foretell.loops.spread_rows import spread_rows
from foretell.loops.stages import flatten, inline, split_at_conditions
from foretell.loops.transpose_operands import Aligns, never, transpose_operands
from foretell.loops.widen_buffers import widen_buffers


@dataclass(frozen=True, slots=True)
class NativeStep:
    """Kernels that run one after the other."""

    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A node without native code."""

    node: Node


def lower_graph(
    graph: Graph,
    is_native: Callable[[Node], bool],
    lanes: int,
    schedule: Scheduler | None = None,
    fusion: Fusion | None = None,
    finish: Finish = lambda kernel: kernel,
    aligns: Aligns = never,
    *,
    permute: bool = True,
) -> list[NativeStep | NodeStep]:
    """The steps that compute a graph's outputs, in order.

    `schedule` is asked about sums of products, `fusion` about what is fused, `aligns` about operands of the caller, and
    `finish` has the last word on a kernel; unless they may be permuted, buffers have the order of dimensions that the
    graph gives them.
    """
    steps: list[NativeStep | NodeStep] = []
    run: list[Node] = []
    for node in graph.nodes:
        if is_native(node):
            run.append(node)
            continue
        if run:
            steps.append(_native_step(run, graph, lanes, schedule, fusion, finish, aligns, permute))
            run = []
        steps.append(NodeStep(node))
    if run:
        steps.append(_native_step(run, graph, lanes, schedule, fusion, finish, aligns, permute))
    return steps


def buffer_of(value: Value) -> Buffer:
    return Buffer(value.name, value.dtype, value.shape)


def _native_step(
    nodes: Sequence[Node],
    graph: Graph,
    lanes: int,
    schedule: Scheduler | None,
    fusion: Fusion | None,
    finish: Finish,
    aligns: Aligns,
    permute: bool,
) -> NativeStep:
    inside = {value for node in nodes for value in node.outputs}
    own = {id(node) for node in nodes}
    read_elsewhere = {
        value for node in graph.nodes if id(node) not in own for value in node.present_inputs if value in inside
    }
    kept = frozenset(buffer_of(value) for value in read_elsewhere | (set(graph.outputs) & inside))
    constants = frozenset(value.name for value in graph.constants)
    stages = part_constants(inline(flatten(nodes, buffer_of, _numbers(graph)), kept), constants)
    if permute:
        stages = choose_layouts(stages, kept, constants, lanes)
    stages = spread_rows(widen_buffers(stages, kept), kept)
    stages = split_by_value(split_at_conditions(stages))
    stages = transpose_operands(stages, constants, frozenset(value.name for value in graph.inputs), aligns)
    return NativeStep(tuple(lower(stages, kept, lanes, schedule, fusion, finish)))


def _numbers(graph: Graph) -> dict[str, float]:
    """Constants of one element, by name: floats that are numbers."""
    arrays = {value.name: array for value, array in graph.constants.items() if array.size == 1}
    found = {name: array.item() for name, array in arrays.items() if array.dtype.kind == "f"}
    return {name: number for name, number in found.items() if not isnan(number)}
