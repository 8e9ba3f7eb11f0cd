"""Which clusters become one kernel: the cheapest division, in order, and nothing hidden that somebody reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.nodes import Array, Graph
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Buffer
from foretell.link_program import Lowered, lower_program
from foretell.loops.cluster import Cluster
from foretell.loops.fuse import Fused, is_static, try_tiling
from foretell.loops.lower_graph import NativeStep
from foretell.loops.nodes import Kernel
from foretell.partition.choose_groups import GroupChooser, cheapest_division
from foretell.partition.group_cost import GroupCosts
from foretell.partition.nest_cost import NestCosts
from foretell.target.hardware_spec import HardwareSpec, with_cores
from foretell.target.resolve import resolve_target
from tests.fusing import clusters_of, kernels_with
from tests.graph.build_graphs import Sketch
from tests.loops.image_graphs import conv, image_graphs
from tests.random_graphs import Draw, graphs

TARGET = resolve_target("icelake-server")

# --- the cheapest division -------------------------------------------------------------------------------------


@st.composite
def tables(draw: Draw) -> tuple[list[float], dict[tuple[int, int], float]]:
    """What each of a few clusters takes, and what some runs of them take; small numbers, so that sums are exact."""
    cost = st.integers(0, 12)
    alone = draw(st.lists(cost, max_size=8))
    assert isinstance(alone, list)
    spans = [(first, end) for end in range(len(alone) + 1) for first in range(end - 1)]
    runs = draw(st.dictionaries(st.sampled_from(spans), cost, max_size=12)) if spans else {}
    assert isinstance(runs, dict)
    return alone, runs


def divisions(count: int) -> Iterator[list[tuple[int, int]]]:
    for chosen in range(1 << max(0, count - 1)):
        cuts = [number + 1 for number in range(count - 1) if chosen >> number & 1]
        yield list(pairwise([0, *cuts, count])) if count else []


def seconds(division: Sequence[tuple[int, int]], alone: list[float], runs: dict[tuple[int, int], float]) -> float:
    none = float("inf")
    return sum(alone[first] if end - first == 1 else runs.get((first, end), none) for first, end in division)


@settings(max_examples=300, deadline=None)
@given(tables())
def test_no_division_is_cheaper(table: tuple[list[float], dict[tuple[int, int], float]]) -> None:
    found = cheapest_division(*table)
    assert [number for first, end in found for number in range(first, end)] == list(range(len(table[0])))
    assert seconds(found, *table) == min(seconds(each, *table) for each in divisions(len(table[0])))


def test_a_tie_is_fused() -> None:
    assert cheapest_division([1.0, 1.0], {(0, 2): 2.0}) == [(0, 2)]


# --- programs --------------------------------------------------------------------------------------------------


def network(rows: int = 28, batch: int | Sym = 1) -> Graph:
    """An inverted residual block with a fork at its input and its end."""
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(batch, 32, rows, rows), 32, 1))
    y = sketch.op("Relu", conv(sketch, x, 128, 1))
    y = sketch.op("Relu", conv(sketch, y, 128, 3, pad=1, group=128))
    y = sketch.op("Add", conv(sketch, y, 32, 1), x)
    return sketch.graph(conv(sketch, y, 64, 1), y)


def test_kernels_are_drafted_under_their_names() -> None:
    """All but borders of a padded tensor, which are kernels of the same name."""
    lowered = lower_program(network(), TARGET)
    names = [kernel.name for step in lowered.steps if isinstance(step, NativeStep) for kernel in step.kernels]
    assert set(lowered.drafts) == {name for name in names if names.count(name) == 1}
    assert all(0 < seconds < 1e-2 for seconds in lowered.drafts.values())


def choose(graph: Graph, spec: HardwareSpec = TARGET.spec) -> tuple[Sequence[Cluster], list[Cluster | Fused]]:
    """The clusters of a graph, and the groups that they form."""
    clusters, kept = clusters_of(graph, spec.vector_bytes // 4)
    constants = frozenset(value.name for value in graph.constants)
    return clusters, GroupChooser(spec, constants)(clusters, kept)


def names(groups: Sequence[Cluster | Fused]) -> list[str]:
    """What groups fill, in order."""
    members = [[m.cluster for m in group.members] if isinstance(group, Fused) else [group] for group in groups]
    return [stage.buffer.name.removesuffix(".near") for each in members for c in each for stage in c.stages]


def kernels_of(lowered: Lowered) -> list[Kernel]:
    return [kernel for step in lowered.steps if isinstance(step, NativeStep) for kernel in step.kernels]


def check_program(graph: Graph) -> None:
    """Groups keep the order, kernels read only what is there, and outputs are filled."""
    chosen: list[Cluster | Fused] = []

    def groups(clusters: Sequence[Cluster], kept: frozenset[Buffer]) -> list[Cluster | Fused]:
        found = GroupChooser(TARGET.spec, frozenset(value.name for value in graph.constants))(clusters, kept)
        assert names(found) == names(clusters)
        chosen.extend(found)
        return found

    kernels = kernels_with(groups, graph)
    after_empty = kernels[len(kernels) - len(chosen) :]
    assert [kernel.name for kernel in after_empty] == [names([group])[-1] for group in chosen]
    known = {value.name for value in (*graph.inputs, *graph.constants)}
    for kernel in kernels:
        assert {buffer.name for buffer in kernel.reads} <= known
        known |= {buffer.name for buffer in kernel.writes}
    assert {value.name for value in graph.outputs} <= known


@settings(max_examples=290, deadline=None)
@given(graphs(sizes=(1, 2, 3, 5, 16)))
def test_kernels_of_random_graphs(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check_program(drawn[0])


def test_a_graph_whose_only_result_is_empty() -> None:
    sketch = Sketch()
    check_program(sketch.graph(sketch.op("Slice", sketch.data(3), starts=(3,), steps=(1,), shape=(0,))))


@settings(max_examples=10, deadline=None)
@given(image_graphs(channels=(4, 8, 32)))
def test_kernels_of_random_images(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check_program(drawn[0])


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(st.one_of(graphs(sizes=(1, 2, 3, 5, 16, 64), most_steps=7), image_graphs(channels=(4, 8, 32))))
def test_kernels_of_many_graphs(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check_program(drawn[0])


def test_nothing_is_hidden_that_others_read() -> None:
    """The second output is read by a member besides: it is stored for both."""
    graph = network()
    _, groups = choose(graph)
    fused = [group for group in groups if isinstance(group, Fused)]
    assert fused, "nothing to look at"
    hidden = {buffer.name.removesuffix(".near") for group in fused for buffer in group.between}
    assert not hidden & {value.name for value in (*graph.outputs, *graph.inputs, *graph.constants)}
    kernels = kernels_of(lower_program(graph, TARGET))
    assert not hidden & {buffer.name for kernel in kernels for buffer in (*kernel.reads, *kernel.writes)}


def test_outputs_on_the_way() -> None:
    """All of a chain is fused, by channels; where everybody may read every link, they are tensors nevertheless."""
    sketch = Sketch()
    links = [sketch.data(1, 16, 64, 64)]
    for seed in range(3):
        links.append(conv(sketch, links[-1], 16, 3, group=16, bias=bool(seed)))
    (alone,) = choose(sketch.graph(links[-1]))[1]
    (together,) = choose(sketch.graph(*links[1:]))[1]
    assert isinstance(alone, Fused) and isinstance(together, Fused)
    assert len(alone.between) == 2 and not alone.kept
    assert not together.between and [buffer.name for buffer in together.kept] == [link.name for link in links[1:-1]]
    check_program(sketch.graph(*links[1:]))


def test_an_output_that_tiles_would_share_ends_a_run() -> None:
    """Channels depend on all channels of the link before, and rows on their neighbours."""
    sketch = Sketch()
    links = [sketch.data(1, 16, 64, 64)]
    for _ in range(2):
        links.append(conv(sketch, links[-1], 16, 3))
    assert not any(isinstance(group, Fused) for group in choose(sketch.graph(*links[1:]))[1])


def test_unknown_sizes_are_not_fused() -> None:
    clusters, groups = choose(network(batch=Sym("n", 1)))
    assert not any(map(is_static, clusters))
    assert groups == list(clusters)


def test_the_same_choice_each_time() -> None:
    first, second = choose(pair())[1], choose(pair())[1]
    assert any(isinstance(group, Fused) for group in first)
    assert list(map(str, first)) == list(map(str, second))


def test_equal_blocks_are_fused_alike() -> None:
    """The second block is known from the first."""
    sketch = Sketch()
    x = sketch.data(1, 32, 28, 28)
    for _ in range(2):
        y = sketch.op("Relu", conv(sketch, x, 96, 1))
        x = conv(sketch, sketch.op("Relu", conv(sketch, y, 96, 3, pad=1, group=96)), 32, 1)
    _, groups = choose(sketch.graph(x))
    tiles = [[axis.extent for axis in group.tiles] for group in groups if isinstance(group, Fused)]
    assert tiles and tiles == tiles[:1] * len(tiles)


def test_what_every_tile_reads_must_stay_near() -> None:
    """Tiles of channels all read the whole image, which fits no cache of a megabyte beside what they make of it."""
    sketch = Sketch()
    y = sketch.op("Relu", conv(sketch, sketch.data(1, 16, 112, 112), 96, 1))
    graph = sketch.graph(conv(sketch, y, 96, 3, stride=2, pad=1, group=96))
    zen5 = with_cores(resolve_target("znver5").spec, 2)
    first, second, third = zen5.caches
    large = replace(zen5, caches=(first, replace(second, size_bytes=1 << 22), third))
    for spec, tile in ((zen5, "tile2"), (large, "tile1")):
        tiles = [group.tiles for group in choose(graph, spec)[1] if isinstance(group, Fused)]
        assert [[axis.sym.name for axis in each] for each in tiles] == [[tile]]


# --- cores -----------------------------------------------------------------------------------------------------


def pair() -> Graph:
    sketch = Sketch()
    y = sketch.op("Relu", conv(sketch, sketch.data(1, 16, 48, 48), 64, 1))
    return sketch.graph(conv(sketch, y, 64, 3, pad=1, group=64))


@pytest.mark.parametrize("cores", [2, 8, 64])
@pytest.mark.parametrize("tiles", [2, 12, 48])
def test_idle_cores_are_counted(cores: int, tiles: int) -> None:
    """The mean of one core, that is never idle, and of all, of which some wait for the last tiles."""
    busy, many = (fused_seconds(pair(), replace(TARGET.spec, cores=n, barrier_cost_s=0.0), tiles) for n in (1, cores))
    rounds = -(-tiles // cores)
    assert many == pytest.approx(busy * (1 + cores * rounds / tiles) / 2)


@pytest.mark.parametrize("cores", [8, 64])
def test_tiles_enough_for_the_cores(cores: int) -> None:
    """At least half of them have something to do, if it is not for barriers that kernels are fused."""
    spec = replace(TARGET.spec, cores=cores, barrier_cost_s=0.0)
    for graph in (pair(), network(14)):
        _, groups = choose(graph, spec)
        assert all(2 * group.tile_count >= cores for group in groups if isinstance(group, Fused))


def fused_seconds(graph: Graph, spec: HardwareSpec, tiles: int) -> float:
    """What all clusters of a graph take as one kernel with so many tiles along the rows of the result."""
    clusters, kept = clusters_of(graph, TARGET.spec.vector_bytes // 4)
    filled = frozenset(stage.buffer for cluster in clusters for stage in cluster.stages)
    nests = NestCosts(spec, frozenset(value.name for value in graph.constants))
    costs = GroupCosts(nests, frozenset(), filled | kept)
    rows = [axis.extent for axis in clusters[-1].stages[0].axes].index(48)
    tiling = try_tiling(clusters[-1], {rows: 48 // tiles})
    for cluster in reversed(clusters[:-1]):
        tiling = None if tiling is None else tiling.with_cluster(cluster)
    assert tiling is not None
    return costs.fused(tiling, lambda place: place).seconds
