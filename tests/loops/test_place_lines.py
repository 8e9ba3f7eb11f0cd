"""Loops whose results are large for the caches: what they become, what stays, and that results are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_program
from foretell.graph.nodes import Array, Graph
from foretell.ir.dtypes import BF16, F32, DType
from foretell.ir.expr import Sym
from foretell.link_program import link_program
from foretell.loops.interpret import interpret
from foretell.loops.nodes import Kernel
from foretell.loops.place_lines import place_lines
from foretell.loops.verify import verify
from foretell.target.resolve import Target, resolve_target
from tests.graph.build_graphs import Sketch, random_feeds, text
from tests.loops.kernels import kernel_of
from tests.random_graphs import assert_agrees

CACHES = (1 << 10, 1 << 14, 1 << 18)
NATIVE = resolve_target("native")


def bias(rows: int | Sym, columns: int, dtype: DType = F32) -> Graph:
    sketch = Sketch()
    x, b = sketch.data(rows, columns, dtype=dtype), sketch.data(rows, 1, dtype=dtype, name="b")
    return sketch.graph(sketch.op("Add", x, b))


def softmax(columns: int) -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("Softmax", sketch.data(64, columns), axis=1))


def concat(columns: int) -> Graph:
    sketch = Sketch()
    parts = [sketch.data(5, columns, name=name) for name in "ab"]
    return sketch.graph(sketch.op("Concat", *parts, axis=1))


def compared(count: int) -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("Less", sketch.data(count, name="a"), sketch.data(count, name="b")))


def placed(graph: Graph) -> Kernel:
    kernel = place_lines(kernel_of(graph), CACHES)
    verify(kernel)
    return kernel


def with_caches(target: Target, *sizes: int) -> Target:
    levels = tuple(replace(target.spec.caches[0], size_bytes=size) for size in sizes)
    return Target(replace(target.spec, caches=levels))


def test_results_larger_than_the_last_cache_stream() -> None:
    expected = """
        kernel add(%x: f32[32, 2048], %b: f32[32, 1]) -> %add: f32[32, 2048] {
          for i0.0 < 32 parallel:
            for i1.0 < 2048 stream:
              %add[i0.0, i1.0] = add(%x[i0.0, i1.0], %b[i0.0, 0])
        }
    """
    assert str(placed(bias(32, 2048))) == text(expected)


def test_lines_of_smaller_ones_are_fetched() -> None:
    assert "fetch %add[i0.0, i1.0 + 256] to write\n" in str(placed(bias(4, 2048)))


def test_a_second_pass_fetches_the_next_row() -> None:
    """The second of three passes fetches the next row, and the lines it is the first to store to."""
    expected = """
        kernel softmax(%x: f32[64, 2048]) -> %softmax: f32[64, 2048] {
          for i0.0 < 64 parallel:
            %softmax.0.max: f32[] in register
            %softmax.2.sum: f32[] in register
            %softmax.3.inverse: f32[] in register
            %softmax.0.max.acc: f32[] in register
            %softmax.0.max.acc[] = -inf:f32
            for r1.0 < 2048 vector:
              %softmax.0.max.acc[] max= %x[i0.0, r1.0]
            %softmax.0.max[] = %softmax.0.max.acc[]
            %softmax.2.sum.acc: f32[] in register
            %softmax.2.sum.acc[] = 0:f32
            for i1.1 < 2048 vector:
              fetch %x[i0.0 + 1, i1.1] to read
              fetch %softmax[i0.0, i1.1 + 256] to write
              %softmax[i0.0, i1.1] = exp(sub(%x[i0.0, i1.1], %softmax.0.max[]))
              %softmax.2.sum.acc[] sum= %softmax[i0.0, i1.1]
            %softmax.2.sum[] = %softmax.2.sum.acc[]
            %softmax.3.inverse[] = reciprocal(%softmax.2.sum[])
            for i1.4 < 2048 vector:
              %softmax[i0.0, i1.4] = mul(%softmax[i0.0, i1.4], %softmax.3.inverse[])
        }
    """
    kernel = place_lines(kernel_of(softmax(2048)), (1 << 15, 1 << 18, 1 << 22))
    verify(kernel)
    assert str(kernel) == text(expected)


def test_a_row_too_long_for_the_second_cache_is_fetched_in_its_first_pass() -> None:
    printed = str(place_lines(kernel_of(softmax(2048)), (1 << 12, 1 << 14, 1 << 22)))
    assert "fetch %x[i0.0, r1.0 + 512] to read" in printed and "fetch %x[i0.0 + 1" not in printed


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(bias(1, 1024), id="what the nearer caches hold"),
        pytest.param(bias(64, 500), id="short rows that are not made of lines"),
        pytest.param(bias(Sym("n", 1), 2048), id="an unknown number of rows"),
    ],
)
def test_declines(graph: Graph) -> None:
    kernel = kernel_of(graph)
    assert place_lines(kernel, CACHES) is kernel


def test_what_is_read_again_does_not_stream() -> None:
    assert " stream:" not in str(placed(softmax(2048)))


def test_means_the_same() -> None:
    graph = bias(3, 64)
    kernel, feeds = kernel_of(graph), random_feeds(graph)
    after = place_lines(kernel, (64, 128))
    assert " stream:" in str(after)
    np.testing.assert_array_equal(interpret([after], feeds, {})["add"], interpret([kernel], feeds, {})["add"])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(1 << 14, 1 << 15), (1 << 14, 1 << 15, 1 << 30)], ids=["stream", "fetch"])
@pytest.mark.parametrize(
    "graph",
    [
        bias(40, 1024),
        bias(40, 1040),
        bias(3, 17 * 1024 + 5),
        bias(40, 1024, BF16),
        concat(1056),
        compared(70001),
        softmax(1033),
    ],
    ids=["rows", "odd vectors", "odd rows", "bfloat16", "concat", "bool", "softmax"],
)
def test_compiled(graph: Graph, sizes: tuple[int, ...], threads: int) -> None:
    model = link_program(graph, with_caches(NATIVE, *sizes), threads)
    feeds = random_feeds(graph)
    assert_agrees(graph, feeds, list(model.run(feeds).values()))
    for shift in (0, 4, 16):
        out = {"y0": _shifted(graph, shift)}
        model.run(feeds, out=out)
        assert_agrees(graph, feeds, list(out.values()))


def _shifted(graph: Graph, shift_bytes: int) -> Array:
    """An array that begins so many bytes behind a multiple of 64."""
    (output,) = graph.outputs
    shape, dtype = output.type.static_shape, output.dtype.numpy
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + shift_bytes
    return raw[start : start + size].view(dtype).reshape(shape)


@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "neoverse-n1", "apple-m1", "riscv64"])
@pytest.mark.parametrize("sizes", [(1 << 14, 1 << 15), (1 << 14, 1 << 15, 1 << 30)], ids=["stream", "fetch"])
def test_emits_for_every_architecture(name: str, sizes: tuple[int, ...]) -> None:
    target = resolve_target(name)
    kernel = place_lines(kernel_of(bias(40, 1024)), sizes)
    slots = {buffer.name: number for number, buffer in enumerate((*kernel.reads, *kernel.writes))}
    assert emit_program([[kernel]], Layout(slots, {}), target)
