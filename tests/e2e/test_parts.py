"""The compiler without one of its parts: other kernels, the same results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from foretell.graph.nodes import Graph
from foretell.link_program import Lowered, is_native, link_program, lower_program
from foretell.loops.lower_graph import NativeStep, NodeStep, lower_graph
from foretell.loops.nodes import Kernel
from foretell.support.parts import Part
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.image_graphs import conv
from tests.random_graphs import assert_agrees

SERVER = resolve_target("icelake-server")
"""Decisions are a machine's own: those of one that all machines know."""


def block() -> Graph:
    """An inverted residual after a first convolution, for which channels are best last."""
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(1, 3, 56, 56), 32, 3, pad=1, stride=2))
    y = sketch.op("Relu", conv(sketch, x, 128, 1))
    y = sketch.op("Relu", conv(sketch, y, 128, 3, pad=1, group=128))
    return sketch.graph(sketch.op("Add", conv(sketch, y, 32, 1), x))


def kernels(lowered: Lowered) -> list[Kernel]:
    return _kernels(lowered.steps)


def _kernels(steps: Sequence[NativeStep | NodeStep]) -> list[Kernel]:
    return [kernel for step in steps if isinstance(step, NativeStep) for kernel in step.kernels]


@pytest.mark.parametrize("without", [(), *((part,) for part in Part), tuple(Part)], ids=str)
def test_results_are_the_same(without: tuple[Part, ...]) -> None:
    graph = block()
    feeds = random_feeds(graph)
    found = [link_program(graph, resolve_target(), n, without=frozenset(without)).run(feeds) for n in (1, 2)]
    assert_agrees(graph, feeds, list(found[0].values()))
    for one, two in zip(found[0].values(), found[1].values(), strict=True):
        np.testing.assert_array_equal(one, two)


def test_without_fusion_more_is_stored_between_more_kernels() -> None:
    graph = block()
    whole, apart = (lower_program(graph, SERVER, without=without) for without in (frozenset(), {Part.FUSION}))
    assert len(kernels(whole)) < len(kernels(apart))
    stored, stored_apart = ({b.name for k in kernels(each) for b in k.writes} for each in (whole, apart))
    assert stored < stored_apart
    assert any(decision.is_fused for decision in whole.decisions) and not apart.decisions


def test_without_inner_schedules_the_same_kernels_run_other_loops() -> None:
    graph = block()
    whole, plain = (lower_program(graph, SERVER, without=without) for without in (frozenset(), {Part.INNER_SCHEDULES}))
    assert whole.decisions == plain.decisions
    assert [kernel.name for kernel in kernels(whole)] == [kernel.name for kernel in kernels(plain)]
    assert kernels(whole) != kernels(plain)
    assert {nest.workload for nest, _ in plain.nests} < {nest.workload for nest, _ in whole.nests}


def test_without_layouts_channels_stay_first() -> None:
    graph = block()
    given = {value.name: value.shape for node in graph.nodes for value in node.outputs}
    steps = [lower_graph(graph, is_native, 16, permute=permute) for permute in (True, False)]
    last, first = ({b.name: b.shape for k in _kernels(each) for b in k.writes if b.name in given} for each in steps)
    assert any(last[name] != given[name] for name in last)
    assert len(first) > 1 and all(first[name] == given[name] for name in first)
    lowered = [lower_program(graph, SERVER, without=without) for without in (frozenset(), {Part.LAYOUTS})]
    assert kernels(lowered[0]) != kernels(lowered[1])
