"""What lowering makes of small graphs, as text; and where it keeps stages apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foretell.graph.nodes import Graph
from foretell.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I64, U8
from foretell.ir.expr import Sym
from foretell.loops.canonical import canonical
from foretell.loops.cluster import STACK_BYTES
from foretell.loops.nodes import Allocate, Block, For, Guard, Statement, identity
from foretell.loops.verify import verify
from tests.graph.build_graphs import Sketch, random_feeds, text
from tests.loops.image_graphs import check_kernels, conv
from tests.loops.kernels import kernel_of, kernels_of

ROWS = Sym("n", 1)


def chain() -> Graph:
    """An elementwise chain through a reshape: one pass over memory."""
    sketch = Sketch()
    y = sketch.op("Reshape", sketch.op("Exp", sketch.data(2, 3, 40)), shape=(6, 40))
    return sketch.graph(sketch.op("Add", y, sketch.data(40, name="c")))


def softmax() -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("Softmax", sketch.data(20, 37), axis=1))


def layer_norm() -> Graph:
    sketch = Sketch()
    sketch.hint = "y"
    x, scale, shift = sketch.data(ROWS, 48), sketch.data(48, name="s"), sketch.data(48, name="t")
    return sketch.graph(sketch.op("LayerNorm", x, scale, shift, axis=1, epsilon=1e-5))


def convolution(before: int = 0) -> Graph:
    sketch = Sketch()
    x, w, bias = sketch.data(2, 3, 10, 10), sketch.data(4, 3, 3, 3, name="w"), sketch.data(4, name="b")
    pads = {"before": (before, before), "after": (before, before)}
    y = sketch.op("Conv", x, w, bias, strides=(1, 1), dilations=(1, 1), group=1, **pads)
    return sketch.graph(sketch.op("Relu", y))


def concat() -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("Concat", sketch.data(2, 3, name="a"), sketch.data(2, 5, name="b"), axis=1))


def reduction(axis: int) -> Graph:
    sketch = Sketch()
    return sketch.graph(sketch.op("ReduceSum", sketch.data(4, 5, 32), axes=(axis,), keepdims=False))


def flat() -> Graph:
    """Large and of unknown length: blocks for threads, vectors in blocks."""
    sketch = Sketch()
    return sketch.graph(sketch.op("Neg", sketch.data(ROWS)))


GRAPHS: dict[str, Callable[[], Graph]] = {
    "chain through a reshape": chain,
    "softmax": softmax,
    "layer norm of symbolic rows": layer_norm,
    "convolution, bias, relu": convolution,
    "concat": concat,
    "sum over the first axis": lambda: reduction(0),
    "sum over the middle axis": lambda: reduction(1),
    "sum over the last axis": lambda: reduction(2),
    "flat": flat,
}
GOLDEN = {
    "chain through a reshape": """
        kernel add(%x: f32[2, 3, 40], %c: f32[40]) -> %add: f32[6, 40] {
          for i0.2 < 6 serial:
            for i1.2 < 40 vector:
              %add[i0.2, i1.2] = add(exp(%x[i0.2 // 3, i0.2 % 3, i1.2]), %c[i1.2])
        }
    """,
    "softmax": """
        kernel softmax(%x: f32[20, 37]) -> %softmax: f32[20, 37] {
          for i0.0 < 20 serial:
            %softmax.0.max: f32[] in register
            %softmax.2.sum: f32[] in register
            %softmax.3.inverse: f32[] in register
            %softmax.0.max.acc: f32[] in register
            %softmax.0.max.acc[] = -inf:f32
            for r1.0 < 37 vector:
              %softmax.0.max.acc[] max= %x[i0.0, r1.0]
            %softmax.0.max[] = %softmax.0.max.acc[]
            %softmax.2.sum.acc: f32[] in register
            %softmax.2.sum.acc[] = 0:f32
            for i1.1 < 37 vector:
              %softmax[i0.0, i1.1] = exp(sub(%x[i0.0, i1.1], %softmax.0.max[]))
              %softmax.2.sum.acc[] sum= %softmax[i0.0, i1.1]
            %softmax.2.sum[] = %softmax.2.sum.acc[]
            %softmax.3.inverse[] = reciprocal(%softmax.2.sum[])
            for i1.4 < 37 vector:
              %softmax[i0.0, i1.4] = mul(%softmax[i0.0, i1.4], %softmax.3.inverse[])
        }
    """,
    "layer norm of symbolic rows": """
        kernel y(%x: f32[n, 48], %s: f32[48], %t: f32[48]) -> %y: f32[n, 48] {
          for i0.0 < n parallel:
            %y.0.sum: f32[] in register
            %y.1.mean: f32[] in register
            %y.2.squares: f32[] in register
            %y.3.inverse: f32[] in register
            %y.0.sum.acc: f32[] in register
            %y.0.sum.acc[] = 0:f32
            for r1.0 < 48 vector:
              %y.0.sum.acc[] sum= %x[i0.0, r1.0]
            %y.0.sum[] = %y.0.sum.acc[]
            %y.1.mean[] = div(%y.0.sum[], f32(index(48)))
            %y.2.squares.acc: f32[] in register
            %y.2.squares.acc[] = 0:f32
            for r1.2 < 48 vector:
              %y.2.squares.acc[] sum= mul(sub(%x[i0.0, r1.2], %y.1.mean[]), sub(%x[i0.0, r1.2], %y.1.mean[]))
            %y.2.squares[] = %y.2.squares.acc[]
            %y.3.inverse[] = reciprocal(sqrt(add(div(%y.2.squares[], f32(index(48))), 1e-05:f32)))
            for i1.4 < 48 vector:
              %y[i0.0, i1.4] = add(mul(mul(sub(%x[i0.0, i1.4], %y.1.mean[]), %y.3.inverse[]), %s[i1.4]), %t[i1.4])
        }
    """,
    "convolution, bias, relu": """
        kernel relu(%x: f32[2, 3, 10, 10], %w: f32[4, 3, 3, 3], %b: f32[4]) -> %relu: f32[2, 4, 8, 8] {
          for n.0 < 2 serial:
            for o.0 < 4 serial:
              for s0.0 < 8 serial:
                for s1.0 < 8 vector:
                  %conv.0.sum: f32[] in register
                  %conv.0.sum.acc: f32[] in register
                  %conv.0.sum.acc[] = 0:f32
                  for c.0 < 3 serial:
                    for k0.0 < 3 serial:
                      for k1.0 < 3 serial:
                        %conv.0.sum.acc[] sum= mul(%x[n.0, c.0, k0.0 + s0.0, k1.0 + s1.0], %w[o.0, c.0, k0.0, k1.0])
                  %conv.0.sum[] = %conv.0.sum.acc[]
                  %relu[n.0, o.0, s0.0, s1.0] = max(add(%conv.0.sum[], %b[o.0]), 0.0:f32)
        }
    """,
    "concat": """
        kernel concat(%a: f32[2, 3]) -> %concat: f32[2, 8] {
          for i0.0 < 2 serial:
            for i1.0.0 < 3 vector:
              %concat[i0.0, i1.0.0] = %a[i0.0, i1.0.0]
        }
        kernel concat(%b: f32[2, 5]) -> %concat: f32[2, 8] {
          for i0.0 < 2 serial:
            for i1.0.3 < 5 vector:
              %concat[i0.0, i1.0.3 + 3] = %b[i0.0, i1.0.3]
        }
    """,
    "sum over the first axis": """
        kernel reducesum(%x: f32[4, 5, 32]) -> %reducesum: f32[5, 32] {
          for i0.0*i1.0 < 160 vector:
            %reducesum.acc: f32[] in register
            %reducesum.acc[] = 0:f32
            for r0.0 < 4 serial:
              %reducesum.acc[] sum= %x[r0.0, i0.0*i1.0 // 32, i0.0*i1.0 % 32]
            %reducesum[i0.0*i1.0 // 32, i0.0*i1.0 % 32] = %reducesum.acc[]
        }
    """,
    "sum over the middle axis": """
        kernel reducesum(%x: f32[4, 5, 32]) -> %reducesum: f32[4, 32] {
          for i0.0 < 4 serial:
            for i1.0 < 32 vector:
              %reducesum.acc: f32[] in register
              %reducesum.acc[] = 0:f32
              for r1.0 < 5 serial:
                %reducesum.acc[] sum= %x[i0.0, r1.0, i1.0]
              %reducesum[i0.0, i1.0] = %reducesum.acc[]
        }
    """,
    "sum over the last axis": """
        kernel reducesum(%x: f32[4, 5, 32]) -> %reducesum: f32[4, 5] {
          for i0.0*i1.0 < 20 serial:
            %reducesum.acc: f32[] in register
            %reducesum.acc[] = 0:f32
            for r2.0 < 32 vector:
              %reducesum.acc[] sum= %x[i0.0*i1.0 // 5, i0.0*i1.0 % 5, r2.0]
            %reducesum[i0.0*i1.0 // 5, i0.0*i1.0 % 5] = %reducesum.acc[]
        }
    """,
    "flat": """
        kernel neg(%x: f32[n]) -> %neg: f32[n] {
          for i0.0.b < (n + 8191) // 8192 parallel:
            for i0.0.j < min(-8192*i0.0.b + n, 8192) vector:
              %neg[8192*i0.0.b + i0.0.j] = neg(%x[8192*i0.0.b + i0.0.j])
        }
    """,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_golden(name: str) -> None:
    kernels = kernels_of(GRAPHS[name]())
    for kernel in kernels:
        verify(kernel)
    assert "\n".join(map(str, kernels)) == text(GOLDEN[name])


def loops_of(statement: Statement) -> list[For]:
    match statement:
        case For(_, _, _, body):
            return [statement, *loops_of(body)]
        case Block(statements):
            return [loop for inner in statements for loop in loops_of(inner)]
        case Allocate(_, body) | Guard(_, body):
            return loops_of(body)
        case _:
            return []


# --- what lowering does not do -------------------------------------------------------------------------------


def test_an_output_that_others_read_is_still_written() -> None:
    sketch = Sketch()
    y = sketch.op("Exp", sketch.data(8))
    written = {buffer.name for kernel in kernels_of(sketch.graph(y, sketch.op("Neg", y))) for buffer in kernel.writes}
    assert written == {"exp", "neg"}


def test_a_row_that_nobody_reads_is_not_kept_in_an_output() -> None:
    sketch = Sketch()
    y = sketch.data(Sym("n", 1), 2)
    doubled = sketch.op("Add", y, y)
    sketch.op("Tanh", doubled)
    softmax = sketch.op("Softmax", doubled, axis=1)
    graph = sketch.graph(softmax, sketch.op("Neg", softmax))
    check_kernels(graph, random_feeds(graph, {"n": 3}))


def test_declines_rows_that_do_not_fit_the_stack() -> None:
    """A softmax whose rows are longer than a kernel's stack keeps its exponentials in memory."""
    sketch = Sketch()
    columns = STACK_BYTES // F32.itemsize
    fits = sketch.graph(sketch.op("Softmax", sketch.data(64, columns), axis=1))
    sketch = Sketch()
    too_long = sketch.graph(sketch.op("Softmax", sketch.data(64, columns + 1), axis=1))
    assert len(kernels_of(fits)) == 1 and len(kernels_of(too_long)) > 1


def test_declines_rows_of_unknown_length_on_the_stack() -> None:
    sketch = Sketch()
    assert len(kernels_of(sketch.graph(sketch.op("Softmax", sketch.data(64, ROWS), axis=1)))) > 1


def test_declines_to_share_few_outer_iterations() -> None:
    """Two rows would keep two threads busy at most, and none of them well."""
    sketch = Sketch()
    assert len(kernels_of(sketch.graph(sketch.op("Softmax", sketch.data(2, 64), axis=1)))) > 1


def test_declines_to_share_when_stages_read_each_other_elsewhere() -> None:
    """A reduction over rows needs all of them: it cannot run inside the loop over rows."""
    sketch = Sketch()
    y = sketch.op("Softmax", sketch.data(64, 32), axis=1)
    kernels = kernels_of(sketch.graph(sketch.op("ReduceSum", y, axes=(0,), keepdims=False)))
    assert len(kernels) == 2


@pytest.mark.parametrize(("size", "kind"), [(64, "vector"), (1 << 20, "parallel")])
def test_small_nests_wake_no_threads(size: int, kind: str) -> None:
    sketch = Sketch()
    kernel = kernel_of(sketch.graph(sketch.op("Neg", sketch.data(size))))
    assert loops_of(kernel.body)[0].kind == kind


def test_empty_tensors_have_no_loops() -> None:
    sketch = Sketch()
    kernel = kernel_of(sketch.graph(sketch.op("Neg", sketch.data(4, 0))))
    assert loops_of(kernel.body) == [] and [buffer.name for buffer in kernel.writes] == ["neg"]


def test_vectors_run_along_memory() -> None:
    """The axis that neighbours in memory lie along is the vector loop, whichever is reduced."""
    for axis, name in ((0, "i"), (1, "i1"), (2, "r2")):
        vector = next(loop for loop in loops_of(kernel_of(reduction(axis)).body) if loop.kind == "vector")
        assert vector.sym.name.startswith(name)


def test_identity() -> None:
    assert [identity("sum", F16).value, identity("prod", BF16).value] == [0, 1]
    assert [identity("max", F64).value, identity("min", F32).value] == [float("-inf"), float("inf")]
    assert [identity("max", I8).value, identity("min", U8).value, identity("max", U8).value] == [-128, 255, 0]
    assert identity("min", I64).value == (1 << 63) - 1
    assert [identity("max", BOOL).value, identity("min", BOOL).value] == [False, True]


@pytest.mark.parametrize("rows", [8, 13, 150])
@pytest.mark.parametrize("columns", [8, 21, 130])
def test_the_last_blocks_of_a_transposition_end_where_it_ends(rows: int, columns: int) -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Transpose", sketch.data(rows, columns), perm=(1, 0)))
    check_kernels(graph, random_feeds(graph), lanes=8)


def test_short_rows_are_transposed_together_with_those_around_them() -> None:
    """Rows of 7, which become the inside of longer ones: in blocks of 8 all the same, most of which end in the next."""
    sketch = Sketch()
    graph = sketch.graph(conv(sketch, sketch.data(1, 16, 7, 7), 16, 3, stride=2, pad=1))
    first, *_ = check_kernels(graph, random_feeds(graph), lanes=8)
    assert [loop.extent for loop in loops_of(first.body) if loop.kind == "unroll"] == [8, 8]


def test_what_does_the_same_is_lowered_alike_between_its_own_buffers() -> None:
    sketch = Sketch()
    sizes = {"a": 20, "b": 30, "c": 20}
    graph = sketch.graph(*[sketch.op("Softmax", sketch.data(n, 37, name=name), axis=1) for name, n in sizes.items()])
    kernels = check_kernels(graph, random_feeds(graph), lanes=8)
    assert [buffer.name for kernel in kernels for buffer in kernel.reads] == ["a", "b", "c"]
    first, longer, again = (str(canonical(kernel)) for kernel in kernels)
    assert first == again != longer
