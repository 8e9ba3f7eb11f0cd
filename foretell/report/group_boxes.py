"""A compiled model as boxes and wires: its kernels, the nests inside each, and the tensors that go between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from foretell.compiler import Lowered
from foretell.graph.nodes import Graph
from foretell.ir import expr
from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Buffer
from foretell.loops.lower_graph import NodeStep, buffer_of
from foretell.loops.nodes import Kernel
from foretell.partition.choose_groups import Decision
from foretell.report.flops import smallest
from foretell.report.layer_graph import Wire
from foretell.report.predict_model import KernelPrediction, Prediction
from foretell.report.units import plural

Kind = Literal["input", "nest", "group", "python", "output"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a wire carries. Symbols stand for the smallest numbers they may."""

    name: str
    shape: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Box:
    """A kernel, a node that runs in Python, or an input or output of the model."""

    kind: Kind
    name: str
    location: str = ""
    nests: tuple[str, ...] = ()
    """Of a kernel that has several."""
    decision: Decision | None = None
    """Why they are one."""
    more: int = 0
    """Kernels that fill other parts of the same buffer from the same tensors, or its border, and have no box."""
    seconds: float | None = None
    """What the kernel is predicted to take, with those."""
    binds: str = ""


@dataclass(slots=True)
class GroupGraph:
    """Boxes in the order they run, wires between them, and what each wire carries."""

    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    left_out: int = 0
    """Kernels that come after the last box."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A box with the names that it reads and writes."""

    box: Box
    reads: frozenset[str]
    writes: frozenset[str]


def group_boxes(graph: Graph, lowered: Lowered, prediction: Prediction, most: int) -> GroupGraph:
    """At most so many kernels, the first ones. Constants are not drawn."""
    constants = frozenset(value.name for value in graph.constants) | frozenset(lowered.packed)
    kernels = list(_kernels(lowered, prediction, constants))
    inputs = [_Part(Box("input", value.name), frozenset(), frozenset([value.name])) for value in graph.inputs]
    outputs = [
        _Part(Box("output", name), frozenset([value.name]), frozenset())
        for name, value in zip(graph.output_names, graph.outputs, strict=True)
    ]
    parts = [*inputs, *kernels[:most], *outputs]
    read = {name for part in parts for name in part.reads}
    shown = [part for part in parts if part.box.kind != "input" or part.writes & read]
    found = GroupGraph([part.box for part in shown], left_out=max(0, len(kernels) - most))
    tensors = _tensors(graph, lowered)
    for number, part in enumerate(shown):
        for name in sorted(part.writes):
            targets = tuple(n for n, other in enumerate(shown) if n > number and name in other.reads)
            if targets:
                found.wires.append(Wire(number, targets))
                found.tensors.append(tensors[name])
    return found


def _kernels(lowered: Lowered, prediction: Prediction, constants: frozenset[str]) -> Iterator[_Part]:
    """A box each, but for those that fill what another one leaves of a buffer."""
    predicted = {place: kernel for kernel in prediction.kernels for place in kernel.places}
    kernels = [kernel for step in lowered.steps if not isinstance(step, NodeStep) for kernel in step.kernels]
    reads = [_names(kernel.reads) - constants for kernel in kernels]
    homes = _homes(kernels, reads)
    decisions = _decisions(kernels, lowered.decisions)
    place = -1
    for step in lowered.steps:
        if isinstance(step, NodeStep):
            yield _python(step)
            continue
        for kernel in step.kernels:
            place += 1
            if homes[place] == place:
                parts = [n for n, home in enumerate(homes) if home == place]
                box = _box(kernel, decisions.get(place), [predicted.get(n) for n in parts])
                yield _Part(box, reads[place], _names(kernel.writes))


def _python(step: NodeStep) -> _Part:
    reads, writes = (frozenset(v.name for v in some) for some in (step.node.present_inputs, step.node.outputs))
    operator = str(step.node.attrs.get("op_type", step.node.op))
    return _Part(Box("python", operator, step.node.location), reads, writes)


def _box(kernel: Kernel, decision: Decision | None, predicted: Sequence[KernelPrediction | None]) -> Box:
    times = [each.time for each in predicted if each is not None]
    return Box(
        "nest" if decision is None else "group",
        kernel.name,
        kernel.location,
        () if decision is None else decision.names,
        decision,
        len(predicted) - 1,
        sum(time.seconds for time in times) if times else None,
        max(times, key=lambda time: time.seconds).binds if times else "",
    )


def _names(buffers: Sequence[Buffer]) -> frozenset[str]:
    return frozenset(buffer.name for buffer in buffers)


def _homes(kernels: Sequence[Kernel], reads: Sequence[frozenset[str]]) -> list[int]:
    """For each kernel the one whose box it is in: the first that fills the same buffers and reads all that it reads."""
    writers: dict[frozenset[str], list[int]] = {}
    for place, kernel in enumerate(kernels):
        writers.setdefault(_names(kernel.writes), []).append(place)
    homes = list(range(len(kernels)))
    for places in writers.values():
        ordered = sorted(places, key=lambda place: (-len(reads[place]), place))
        for number, place in enumerate(ordered):
            homes[place] = next((n for n in ordered[:number] if homes[n] == n and reads[place] <= reads[n]), place)
    return homes


def _decisions(kernels: Sequence[Kernel], decisions: Sequence[Decision]) -> dict[int, Decision]:
    """Why kernels of several nests are so, by their number.

    A kernel is called after its last nest; so are those that fill the border of the same buffer, but they read less.
    """
    found: dict[int, Decision] = {}
    for decision in decisions:
        places = [place for place, kernel in enumerate(kernels) if kernel.name == decision.names[-1]]
        if decision.is_fused and places:
            found[max(places, key=lambda place: len(kernels[place].reads))] = decision
    return found


# --- tensors ---------------------------------------------------------------------------------------------------


def _tensors(graph: Graph, lowered: Lowered) -> dict[str, Tensor]:
    """Every tensor in memory, by name; shapes as the graph has them where it knows the tensor."""
    found: dict[str, Tensor] = {}
    for value in (*graph.inputs, *(value for node in graph.nodes for value in node.outputs)):
        found.setdefault(value.name, _tensor(value.name, value.dtype, value.shape))
    for step in lowered.steps:
        buffers = (
            [buffer_of(value) for value in step.node.outputs]
            if isinstance(step, NodeStep)
            else [buffer for kernel in step.kernels for buffer in kernel.writes]
        )
        for buffer in buffers:
            found.setdefault(buffer.name, _tensor(buffer.name, buffer.dtype, buffer.shape))
    return found


def _tensor(name: str, dtype: DType, shape: Sequence[Dim]) -> Tensor:
    elements = expr.substitute(expr.product(tuple(shape)), smallest(shape))
    size_bytes = elements * dtype.itemsize if isinstance(elements, int) else None
    return Tensor(name, f"{dtype}[{', '.join(map(str, shape))}]", size_bytes)


def box_text(box: Box) -> str:
    """All that is known of a box, in lines."""
    return "\n".join(_facts(box))


def _facts(box: Box) -> Iterator[str]:
    if box.kind in ("input", "output"):
        yield f"{box.kind} {box.name} of the model"
        return
    if box.kind == "python":
        yield f"{box.name} has no native code and runs in Python"
    else:
        yield f"kernel {box.name}"
    if box.location:
        yield f"ONNX node: {box.location}"
    if box.decision is not None:
        yield f"{plural(len(box.nests), 'nest')} in one kernel, {box.decision.reason}"
        yield from _compared(box.decision)
    if box.more:
        yield f"and {plural(box.more, 'kernel')} that fill other parts of the same buffer, or its border"
    if box.seconds is not None:
        yield f"predicted: {box.seconds * 1e6:.1f} us, most of it {box.binds}"


def _compared(decision: Decision) -> Iterator[str]:
    if decision.alone_s is not None and decision.fused_s is not None:
        yield f"apart {decision.alone_s * 1e6:.1f} us, fused {decision.fused_s * 1e6:.1f} us of one core"


def saving(decision: Decision) -> float | None:
    """The part of the time that fusing was predicted to save."""
    if decision.alone_s is None or decision.fused_s is None or decision.alone_s <= 0:
        return None
    return 1 - decision.fused_s / decision.alone_s
