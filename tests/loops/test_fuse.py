"""What a tile needs of the nests before it, and that kernels fused so compute what the nests do one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.nodes import Graph, Value
from foretell.ir.dtypes import F32, I64
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Const, Load, Scalar
from foretell.loops.analysis import flops
from foretell.loops.cluster import Cluster
from foretell.loops.fuse import Fused, Tiling, is_static, try_fuse, try_tiling
from foretell.loops.interpret import interpret
from foretell.loops.lower import Fusion, lower
from foretell.loops.nodes import Kernel
from foretell.loops.ranges import Range
from foretell.loops.stages import TensorStage
from foretell.loops.verify import verify
from tests.fusing import NoGroups, RandomGroups, interpreted, kernels_with
from tests.graph.build_graphs import Sketch, random_feeds, text
from tests.loops.image_graphs import conv, pool
from tests.random_graphs import Draw

X, T, U, Y = (Buffer(name, F32, (24,)) for name in "xtuy")


def points(buffer: Buffer, extent: Dim, body: Callable[[Sym], Scalar], start: int = 0) -> Cluster:
    """Elements of a vector, from some index on, each computed by itself."""
    i = Sym(f"i.{buffer.name}{start}", 0, extent - 1 if isinstance(extent, int) else None)
    return Cluster((TensorStage(buffer, (Axis(i, extent),), body(i), None, (), (start + i,), ""),), 1)


def window(buffer: Buffer, source: Buffer, extent: int, taps: int, stride: int = 1, dilation: int = 1) -> Cluster:
    """Sums of neighbours."""
    i, k = Sym(f"i.{buffer.name}", 0, extent - 1), Sym(f"k.{buffer.name}", 0, taps - 1)
    body = load(source, stride * i + dilation * k)
    return Cluster((TensorStage(buffer, (Axis(i, extent),), body, "sum", (Axis(k, taps),), (i,), ""),), 1)


def load(source: Buffer, index: Dim | Scalar) -> Load:
    return Load(source, (index,), source.dtype)


def add(left: Scalar, right: Scalar) -> Scalar:
    return Apply("add", (left, right))


def twice(source: Buffer) -> Callable[[Sym], Scalar]:
    return lambda i: add(load(source, i), load(source, i))


def zero(_: Sym) -> Scalar:
    return Const(0.0, F32)


def tiling_of(cluster: Cluster, size: int) -> Tiling:
    tiling = try_tiling(cluster, {0: size})
    assert tiling is not None
    return tiling


def fused_of(clusters: Sequence[Cluster], size: int, steps: int = 1) -> Fused:
    fused = try_fuse(clusters, {0: size}, steps)
    assert fused is not None
    return fused


def divisors(count: int) -> list[int]:
    return [number for number in range(1, count + 1) if count % number == 0]


def kernels_of(clusters: Sequence[Cluster], groups: Sequence[Cluster | Fused]) -> list[Kernel]:
    """Kernels of groups that somebody chose."""
    kept = frozenset(stage.buffer for stage in clusters[-1].stages)
    fusion = Fusion(lambda clusters, kept: groups, lambda kernel: None)
    kernels = lower([stage for cluster in clusters for stage in cluster.stages], kept, 4, None, fusion)
    for kernel in kernels:
        verify(kernel)
    return kernels


def check_clusters(clusters: Sequence[Cluster], size: int) -> Kernel:
    """The fused kernel of clusters that read x and fill y, with the results of the nests one by one.

    That holds as well if any number of tiles is run in turn.
    """
    data = {"x": np.random.default_rng(1).standard_normal(24).astype(np.float32)}
    expected = interpret(kernels_of(clusters, clusters), data, {})["y"]
    assert np.isnan(expected).sum() == expected.size - int(str(clusters[-1].stages[0].axes[0].extent))
    alone = fused_of(clusters, size)
    for steps in divisors(alone.tile_count):
        in_turn = kernels_of(clusters, [fused_of(clusters, size, steps)])
        np.testing.assert_array_equal(interpret(in_turn, data, {})["y"], expected)
    (kernel,) = kernels_of(clusters, [alone])
    return kernel


# --- what a tile needs -----------------------------------------------------------------------------------------


def test_points_need_the_same_points() -> None:
    tiling = tiling_of(points(Y, 24, twice(T)), 8)
    (tile,) = tiling.tiles
    assert tile.extent == 3
    assert tiling.needs == {T: (Range(8 * tile.sym, 8),)}


@pytest.mark.parametrize(("taps", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (2, 1, 5), (4, 2, 2), (1, 3, 1)])
def test_a_window_needs_neighbours(taps: int, stride: int, dilation: int) -> None:
    extent, size = 6, 2
    source = Buffer("t", F32, (stride * (extent - 1) + dilation * (taps - 1) + 1,))
    tiling = tiling_of(window(Y, source, extent, taps, stride, dilation), size)
    needed = Range(stride * size * tiling.tiles[0].sym, stride * (size - 1) + dilation * (taps - 1) + 1)
    assert tiling.needs == {source: (needed,)}


def test_a_vector_that_is_read_backwards() -> None:
    tiling = tiling_of(points(Y, 24, lambda i: load(T, 23 - i)), 8)
    assert tiling.needs == {T: (Range(16 - 8 * tiling.tiles[0].sym, 8),)}


def test_several_loads_need_what_lies_between() -> None:
    tiling = tiling_of(points(Y, 16, lambda i: add(load(T, i + 7), load(T, i + 2))), 4)
    assert tiling.needs == {T: (Range(4 * tiling.tiles[0].sym + 2, 9),)}


def test_all_is_needed_where_no_range_can_be_told() -> None:
    forth_and_back = points(Y, 12, lambda i: add(load(T, i), load(T, 11 - i)))
    by_thirds = points(Y, 24, lambda i: load(T, (i + 1) // 3))
    for cluster in (forth_and_back, by_thirds):
        assert tiling_of(cluster, 4).needs == {T: (Range(0, 24),)}


def test_readers_of_one_buffer_need_it_together() -> None:
    """y[i] = t[i] + u[i] where u[i] = t[i] + t[i + 1]: the range of both."""
    t = points(T, 24, twice(X))
    u = points(U, 23, lambda i: add(load(T, i), load(T, i + 1)))
    y = points(Y, 20, lambda i: add(load(T, i), load(U, i + 2)))
    tiling = tiling_of(y, 5).with_cluster(u)
    assert tiling is not None
    start = 5 * tiling.tiles[0].sym
    assert tiling.needs[T] == (Range(start, 8),) and tiling.needs[U] == (Range(start + 2, 5),)
    check_clusters([t, u, y], 5)


def test_ranges_grow_along_a_chain() -> None:
    chain = [window(T, X, 22, 3), window(U, T, 20, 3), window(Y, U, 18, 3)]
    fused = fused_of(chain, 6)
    assert {buffer.name: buffer.shape for buffer in fused.between} == {"t.near": (10,), "u.near": (8,)}
    assert fused.tile_count == 3 and fused.between_bytes == 4 * 18


# --- what cannot be done ---------------------------------------------------------------------------------------


def test_a_tile_must_divide() -> None:
    assert try_tiling(points(Y, 24, twice(T)), {0: 7}) is None


def test_no_tiles_of_what_is_inside_shared_loops() -> None:
    i, r = Sym("i", 0, 3), Sym("r", 0, 5)
    rows, sums = Buffer("rows", F32, (4, 6)), Buffer("y", F32, (4,))
    total = TensorStage(sums, (Axis(i, 4),), Load(rows, (i, r), F32), "sum", (Axis(r, 6),), (i,), "")
    wide = Buffer("wide", F32, (4, 6))
    spread = TensorStage(wide, (Axis(i, 4), Axis(r, 6)), load(sums, i), None, (), (i, r), "")
    assert try_tiling(Cluster((spread, total), 1), {1: 3}) is None
    assert try_tiling(Cluster((spread, total), 1), {0: 2}) is not None


def test_data_decides_what_is_read() -> None:
    numbers = Buffer("numbers", I64, (24,))
    gathered = points(Y, 24, lambda i: load(T, load(numbers, i)))
    assert try_fuse([points(T, 24, twice(X)), gathered], {0: 8}) is None


def test_data_decides_what_another_buffer_is_read_for() -> None:
    """What is gathered from is no member: nothing in the way."""
    numbers = Buffer("numbers", I64, (24,))
    gathered = points(Y, 24, lambda i: add(load(T, i), load(X, load(numbers, i))))
    assert try_fuse([points(T, 24, twice(X)), gathered], {0: 8}) is not None


def test_results_that_no_member_reads() -> None:
    assert try_fuse([points(U, 24, twice(X)), points(Y, 24, twice(T))], {0: 8}) is None


def test_static_sizes() -> None:
    rows = Sym("n", 1)
    assert is_static(points(Y, 24, twice(T)))
    assert not is_static(points(Buffer("y", F32, (rows,)), rows, twice(T)))
    assert not is_static(points(Y, 24, twice(Buffer("t", F32, (rows,)))))


# --- borders ---------------------------------------------------------------------------------------------------


def padded(before: int, extent: int, after: int) -> list[Cluster]:
    """t is x with zeros around it."""
    wide = Buffer("t", F32, (before + extent + after,))
    ends = [(0, before), (before + extent, after)]
    borders = [points(wide, length, zero, start) for start, length in ends if length]
    return [points(wide, extent, twice(X), before), *borders]


def test_borders_are_filled_by_tiles_that_touch_them() -> None:
    clusters = [*padded(1, 24, 1), window(Y, Buffer("t", F32, (26,)), 24, 3)]
    inside, first, last, _ = fused_of(clusters, 8).members
    assert inside.condition is None
    assert str(first.condition) == "lt(index(8*tile0), index(1))"
    assert str(last.condition) == "ge(index(8*tile0 - 25), index(-9))"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize(("before", "after", "taps"), [(1, 1, 3), (4, 0, 5), (0, 4, 5), (4, 4, 9)])
def test_tiles_at_the_ends(size: int, before: int, after: int, taps: int) -> None:
    extent = 12
    wide = Buffer("t", F32, (before + extent + after,))
    result = Buffer("y", F32, (extent,))
    check_clusters([*padded(before, extent, after), window(result, wide, extent, taps)], size)


def test_a_border_wider_than_a_tile() -> None:
    """Some tiles need nothing but border."""
    wide = Buffer("t", F32, (6 + 4 + 6,))
    clusters = [*padded(6, 4, 6), points(Buffer("y", F32, (16,)), 16, lambda i: load(wide, i))]
    assert all(member.condition is not None for member in fused_of(clusters, 2).members[:-1])
    check_clusters(clusters, 2)


@pytest.mark.parametrize(("pad", "kernel", "stride"), [(1, 1, 1), (2, 1, 2), (2, 2, 1), (3, 2, 2), (3, 3, 1)])
@pytest.mark.parametrize("tile", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_borders_in_two_directions(pad: int, kernel: int, stride: int, tile: tuple[int, int]) -> None:
    """Whether a nest runs depends on both loops over tiles, and so does where it stores."""
    sketch = Sketch()
    y = sketch.op("Relu", conv(sketch, sketch.data(1, 1, 4, 4), 1, 1))
    graph = sketch.graph(conv(sketch, y, 1, kernel, pad=pad, stride=stride))
    check_by_hand(graph, {2: tile[0], 3: tile[1]})


# --- fused kernels ---------------------------------------------------------------------------------------------


def test_golden() -> None:
    kernel = check_clusters([points(T, 24, lambda i: Apply("exp", (load(X, i),))), window(Y, T, 22, 3)], 11)
    assert str(kernel) == text(GOLDEN)


GOLDEN = """
    kernel y(%x: f32[24]) -> %y: f32[24] {
      for tile0 < 2 parallel:
        %t.near: f32[13] in stack
        for i.t0 < 13 vector:
          %t.near[i.t0] = exp(%x[i.t0 + 11*tile0])
        for i.y < 11 serial:
          %y.acc: f32[] in register
          %y.acc[] = 0:f32
          for k.y < 3 vector:
            %y.acc[] sum= %t.near[i.y + k.y]
          %y[i.y + 11*tile0] = %y.acc[]
    }
"""


# --- tiles in turn ---------------------------------------------------------------------------------------------


def test_golden_in_turn() -> None:
    clusters = [points(T, 24, lambda i: Apply("exp", (load(X, i),))), window(Y, T, 20, 5)]
    (kernel,) = kernels_of(clusters, [fused_of(clusters, 5, 2)])
    assert str(kernel) == text(IN_TURN)


IN_TURN = """
    kernel y(%x: f32[24]) -> %y: f32[24] {
      for tile0.turns < 2 parallel:
        %t.near: f32[9] in stack
        for turn < 2 serial:
          if lt(index(turn), index(1)):
            for i.t0 < 9 vector:
              %t.near[i.t0] = exp(%x[i.t0 + 10*tile0.turns + 5*turn])
          if ge(index(turn), index(1)):
            for element < 4 vector:
              %t.near[element] = %t.near[element + 5]
            for i.t0 < 5 vector:
              %t.near[i.t0 + 4] = exp(%x[i.t0 + 10*tile0.turns + 5*turn + 4])
          for i.y < 5 serial:
            %y.acc: f32[] in register
            %y.acc[] = 0:f32
            for k.y < 5 vector:
              %y.acc[] sum= %t.near[i.y + k.y]
            %y[i.y + 10*tile0.turns + 5*turn] = %y.acc[]
    }
"""


def test_nothing_is_computed_twice_in_turn() -> None:
    """A chain of windows: each nest computes as many elements as it does alone, but for the ends of its range."""
    chain = [window(T, X, 22, 3), window(U, T, 20, 3), window(Y, U, 18, 3)]
    check_clusters(chain, 6)
    by_themselves, in_turn = (kernels_of(chain, [fused_of(chain, 6, steps)]) for steps in (1, 3))
    assert flops(kernels_of(chain, chain)[0]) == 3 * 22 * 1
    assert flops(by_themselves[0]) == 3 * (3 * 10 + 3 * 8 + 3 * 6)
    assert flops(in_turn[0]) == 3 * (22 + 20 + 18)


def test_tiles_that_share_nothing_are_not_run_in_turn() -> None:
    assert fused_of([points(T, 24, twice(X)), points(Y, 24, twice(T))], 4, 3).steps == 1
    assert fused_of([points(T, 24, twice(X)), window(Y, T, 12, 2, 2)], 4, 3).steps == 1


def test_rows_that_are_read_backwards_are_computed_again() -> None:
    back = points(Y, 20, lambda i: add(load(T, 23 - i), load(T, 20 - i)))
    assert fused_of([points(T, 24, twice(X)), back], 5, 4).steps == 1
    check_clusters([points(T, 24, twice(X)), back], 5)


def test_rows_of_images_in_turn() -> None:
    sketch = Sketch()
    y = sketch.op("Relu", conv(sketch, sketch.data(2, 3, 12, 6), 2, 3))
    graph = sketch.graph(conv(sketch, y, 2, 3))
    for size, steps in [(1, 8), (2, 4), (2, 2), (4, 2)]:
        check_by_hand(graph, {0: 1, 2: size}, steps)
        check_by_hand(graph, {2: size}, steps)


# --- results on the way ----------------------------------------------------------------------------------------


def test_what_others_read_is_kept() -> None:
    clusters = [points(T, 24, twice(X)), points(Y, 24, twice(T))]
    fused = try_fuse(clusters, {0: 8}, kept=frozenset({T}))
    assert fused is not None and fused.kept == (T,) and not fused.between
    (kernel,) = kernels_of(clusters, [fused])
    assert {buffer.name for buffer in kernel.writes} == {"t", "y"}
    data = {"x": np.arange(24, dtype=np.float32)}
    found = interpret([kernel], data, {})
    np.testing.assert_array_equal(found["t"], 2 * data["x"])
    np.testing.assert_array_equal(found["y"], 4 * data["x"])


def test_what_tiles_share_is_not_kept() -> None:
    """Two tiles would fill it, or none."""
    kept = frozenset({T})
    assert try_fuse([points(T, 24, twice(X)), window(Y, T, 22, 3)], {0: 11}, kept=kept) is None
    assert try_fuse([points(T, 24, twice(X)), points(Y, 12, twice(T))], {0: 4}, kept=kept) is None
    assert try_fuse([points(T, 24, twice(X)), points(Y, 24, lambda i: load(T, 23 - i))], {0: 4}, kept=kept) is None
    assert try_fuse([*padded(1, 22, 1), points(Y, 24, twice(T))], {0: 8}, kept=kept) is None


def test_a_result_that_is_read_and_kept() -> None:
    """A residual: what the first product makes is an output, the operand of the second, and added to it."""
    sketch = Sketch()
    first = sketch.op("Relu", sketch.op("MatMul", sketch.data(12, 5), sketch.data(5, 6)))
    second = sketch.op("Add", sketch.op("MatMul", first, sketch.data(6, 6)), first)
    graph = sketch.graph(first, second)
    groups = RandomGroups(Random(0))
    check_equal(graph, kernels_with(groups, graph))
    assert [buffer.name for fused in groups.fused for buffer in fused.kept] == [first.name]


# --- names -----------------------------------------------------------------------------------------------------


def test_names_that_are_taken() -> None:
    """A model may call its tensors what we would call ours."""
    sketch = Sketch()
    y = sketch.op("Relu", conv(sketch, sketch.data(1, 2, 4, 4), 2))
    near = sketch.data(1, 2, 2, 2, name=f"{y.name}.near")
    check_by_hand(sketch.graph(sketch.op("Add", conv(sketch, y, 2, 1), near)), {2: 1})


def check_by_hand(graph: Graph, tile: dict[int, int], steps: int = 1) -> None:
    """All clusters in one kernel, if tiles of that size are possible."""

    def all_in_one(clusters: Sequence[Cluster], kept: frozenset[Buffer]) -> list[Cluster | Fused]:
        fused = try_fuse(clusters, tile, steps)
        return list(clusters) if fused is None else [fused]

    check_equal(graph, kernels_with(all_in_one, graph))


def check_equal(graph: Graph, kernels: Sequence[Kernel]) -> None:
    """Results are those of the nests one by one; sums may run in another order, where another axis suits vectors."""
    feeds = random_feeds(graph)
    expected = interpreted(kernels_with(NoGroups(), graph), graph, feeds)
    for found, wanted in zip(interpreted(kernels, graph, feeds), expected, strict=True):
        assert not np.isnan(wanted).any()
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max(initial=0.0))


# --- structures ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choices:
    """Numbers that a structure is made from."""

    draw: Draw

    def of(self, *options: int) -> int:
        found = self.draw(st.sampled_from(options))
        assert isinstance(found, int)
        return found

    def image(self, sketch: Sketch, channels: int = 2) -> Value:
        return sketch.data(self.of(1, 1, 2), channels, self.of(3, 4), 4)

    def conv(self, sketch: Sketch, x: Value, outputs: int = 2, group: int = 1) -> Value:
        kernel, dilation = self.of(1, 2, 3), self.of(1, 1, 2)
        reach, sizes = dilation * (kernel - 1), [size for size in x.shape[2:] if isinstance(size, int)]
        pad = self.of(0, 1, 2) if reach < min(sizes) else reach
        return conv(sketch, x, outputs, kernel, stride=self.of(1, 1, 2), pad=pad, dilation=dilation, group=group)


def two_convolutions(choose: Choices) -> Graph:
    sketch = Sketch()
    y = sketch.op("Relu", choose.conv(sketch, choose.image(sketch), choose.of(1, 2, 3)))
    return sketch.graph(choose.conv(sketch, y))


def pointwise_depthwise(choose: Choices) -> Graph:
    sketch = Sketch()
    y = sketch.op("Relu", conv(sketch, choose.image(sketch), 4, 1))
    return sketch.graph(choose.conv(sketch, y, 4, group=4))


def depthwise_pointwise(choose: Choices) -> Graph:
    sketch = Sketch()
    y = sketch.op("Relu", choose.conv(sketch, choose.image(sketch, 4), 4, group=4))
    return sketch.graph(conv(sketch, y, choose.of(2, 3, 4), 1))


def attention(choose: Choices) -> Graph:
    sketch = Sketch()
    rows, size = choose.of(4, 6, 18), choose.of(3, 4)
    q, k, v = (sketch.data(rows, size, name=name) for name in "qkv")
    scores = sketch.op("Softmax", sketch.op("MatMul", q, sketch.op("Transpose", k, perm=(1, 0))), axis=1)
    return sketch.graph(sketch.op("MatMul", scores, v))


def residual(choose: Choices) -> Graph:
    sketch = Sketch()
    x = sketch.op("Tanh", choose.image(sketch))
    y = sketch.op("Relu", conv(sketch, x, 2, pad=1))
    return sketch.graph(sketch.op("Add", conv(sketch, y, 2, pad=1), x))


def diamond(choose: Choices) -> Graph:
    sketch = Sketch()
    x = conv(sketch, choose.image(sketch), 2, 1)
    left, right = conv(sketch, x, 2, 3, pad=1), pool(sketch, "MaxPool", x, 3, pad=1)
    return sketch.graph(choose.conv(sketch, sketch.op("Mul", left, right)))


def concatenation(choose: Choices) -> Graph:
    sketch = Sketch()
    x = choose.image(sketch)
    parts = [sketch.op("Sigmoid", same_size(sketch, x, kernel)) for kernel in (1, 3)]
    return sketch.graph(choose.conv(sketch, sketch.op("Concat", *parts, axis=choose.of(1, 2, 3))))


def same_size(sketch: Sketch, x: Value, kernel: int) -> Value:
    """A convolution that keeps sizes."""
    return conv(sketch, x, 2, kernel, pad=kernel // 2)


def invented(choose: Choices) -> Graph:
    """Sums of rows, transposed, convolved, pooled, normalised: what no pattern names."""
    sketch = Sketch()
    x = sketch.data(choose.of(4, 6), 2, choose.of(3, 5), choose.of(4, 6))
    y = sketch.op("ReduceSum", sketch.op("Exp", x), axes=(2,), keepdims=True)
    y = sketch.op("Transpose", y, perm=(2, 1, 0, 3))
    y = pool(sketch, "AveragePool", choose.conv(sketch, y), 2, pad=1)
    y = sketch.op("ReduceMax", sketch.op("Tanh", y), axes=(1,), keepdims=True)
    return sketch.graph(sketch.op("Softmax", y, axis=choose.of(2, 3)))


def norm_and_products(choose: Choices) -> Graph:
    """A layer norm, a product, its rows backwards, and the product of both."""
    sketch = Sketch()
    rows, size = choose.of(4, 17, 18), choose.of(4, 6)
    x = sketch.data(rows, size)
    y = sketch.op("LayerNorm", x, sketch.weights(size), sketch.weights(size), axis=1, epsilon=1e-5)
    y = sketch.op("Gelu", sketch.op("MatMul", y, sketch.weights(size, size)))
    z = sketch.op("Slice", y, starts=(rows - 1, 0), steps=(-1, 1), shape=(rows, size))
    return sketch.graph(sketch.op("Mul", sketch.op("MatMul", z, sketch.weights(size, size)), y))


STRUCTURES = (
    *(two_convolutions, pointwise_depthwise, depthwise_pointwise, attention, residual, diamond, concatenation),
    *(invented, norm_and_products),
)


@pytest.mark.parametrize("structure", STRUCTURES)
@settings(max_examples=4, deadline=None)
@given(st.data(), st.integers(0, 1 << 16))
def test_structures(structure: Callable[[Choices], Graph], data: st.DataObject, seed: int) -> None:
    check_structure(structure, data, seed)


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, 1 << 16))
def test_many_structures(structure: Callable[[Choices], Graph], data: st.DataObject, seed: int) -> None:
    check_structure(structure, data, seed)


def check_structure(structure: Callable[[Choices], Graph], data: st.DataObject, seed: int) -> None:
    graph = structure(Choices(data.draw))
    groups = RandomGroups(Random(seed))
    kernels = kernels_with(groups, graph)
    assert groups.fused
    check_equal(graph, kernels)
