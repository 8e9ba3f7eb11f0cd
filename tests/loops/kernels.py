"""Lowering small graphs in tests."""

from __future__ import annotations

from foretell.graph.nodes import Array, Graph
from foretell.ir.expr import Sym
from foretell.loops.lower import Scheduler, lower
from foretell.loops.lower_graph import NativeStep, buffer_of, lower_graph
from foretell.loops.nodes import Kernel
from foretell.loops.stages import flatten, inline


def kernels_of(graph: Graph, lanes: int = 8) -> list[Kernel]:
    """All kernels of a graph whose nodes all have definitions."""
    steps = lower_graph(graph, lambda node: True, lanes)
    assert all(isinstance(step, NativeStep) for step in steps)
    return [kernel for step in steps if isinstance(step, NativeStep) for kernel in step.kernels]


def kernel_of(graph: Graph, lanes: int = 8) -> Kernel:
    """The only kernel."""
    (kernel,) = kernels_of(graph, lanes)
    return kernel


def kernels_as_given(graph: Graph, lanes: int = 8, schedule: Scheduler | None = None) -> list[Kernel]:
    """All kernels of a graph, with every tensor stored in the order of its dimensions."""
    kept = frozenset(map(buffer_of, graph.outputs))
    return lower(inline(flatten(graph.nodes, buffer_of), kept), kept, lanes, schedule)


def symbols_of(graph: Graph, feeds: dict[str, Array]) -> dict[Sym, int]:
    """The symbolic dimensions of the inputs, as the data has them."""
    return {
        dim: extent
        for value in graph.inputs
        for dim, extent in zip(value.shape, feeds[value.name].shape, strict=True)
        if isinstance(dim, Sym)
    }
