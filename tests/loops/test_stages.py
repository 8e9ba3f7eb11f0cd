"""Stages: which ones are computed where they are read, and which domains are cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foretell.graph.nodes import Graph, Value
from foretell.ir.dtypes import F16, I64
from foretell.ir.expr import Sym
from foretell.loops.lower_graph import buffer_of
from foretell.loops.stages import MAX_PARTS, TensorStage, flatten, inline, split_at_conditions
from tests.graph.build_graphs import Sketch


def stages_of(graph: Graph) -> list[TensorStage]:
    return flatten(graph.nodes, buffer_of)


def inlined(build: Callable[[Sketch], Value]) -> list[str]:
    """The names of the buffers that are still filled."""
    sketch = Sketch()
    graph = sketch.graph(build(sketch))
    kept = frozenset(map(buffer_of, graph.outputs))
    return [stage.buffer.name for stage in inline(stages_of(graph), kept)]


def test_axes_are_fresh() -> None:
    sketch = Sketch()
    stages = stages_of(sketch.graph(sketch.op("Neg", sketch.op("Exp", sketch.data(4)))))
    assert [str(stage) for stage in stages] == [
        "%exp[i0.0<4]: f32 = exp(%x[i0.0])",
        "%neg[i0.1<4]: f32 = neg(%exp[i0.1])",
    ]


# --- inline --------------------------------------------------------------------------------------------------


def test_a_stage_read_once_is_inlined() -> None:
    assert inlined(lambda s: s.op("Neg", s.op("Exp", s.data(4)))) == ["neg"]


def test_a_cheap_stage_is_inlined_into_every_reader() -> None:
    def build(s: Sketch) -> Value:
        cheap = s.op("Neg", s.data(4))
        return s.op("Mul", s.op("Exp", cheap), s.op("Sin", cheap))

    assert inlined(build) == ["mul"]


def test_declines_a_dear_stage_that_is_read_twice() -> None:
    def build(s: Sketch) -> Value:
        dear = s.op("Exp", s.data(4))
        return s.op("Mul", dear, dear)

    assert inlined(build) == ["exp", "mul"]


def test_declines_a_stage_that_a_reduction_reuses() -> None:
    """Each element of the left operand is read for every column: computing it there would multiply the work."""
    assert inlined(lambda s: s.op("MatMul", s.op("Relu", s.data(4, 8)), s.weights(8, 16))) == ["relu", "matmul"]


def test_declines_a_stage_that_is_broadcast() -> None:
    def build(s: Sketch) -> Value:
        return s.op("Add", s.op("Exp", s.data(4, name="row")), s.data(3, 4))

    assert inlined(build) == ["exp", "add"]


def test_declines_a_reduction() -> None:
    assert inlined(lambda s: s.op("Neg", s.op("ReduceSum", s.data(4, 5), axes=(1,), keepdims=False))) == [
        "reducesum",
        "neg",
    ]


def test_a_reduction_reads_an_elementwise_stage_in_place() -> None:
    assert inlined(lambda s: s.op("ReduceSum", s.op("Exp", s.data(4, 5)), axes=(1,), keepdims=False)) == ["reducesum"]


def test_declines_an_output() -> None:
    sketch = Sketch()
    y = sketch.op("Exp", sketch.data(4))
    graph = sketch.graph(y, sketch.op("Neg", y))
    kept = frozenset(map(buffer_of, graph.outputs))
    assert [stage.buffer.name for stage in inline(stages_of(graph), kept)] == ["exp", "neg"]


def test_a_move_that_keeps_runs_is_inlined_even_where_it_is_reused() -> None:
    def build(s: Sketch) -> Value:
        return s.op("MatMul", s.op("Slice", s.data(6, 8), starts=(1, 0), steps=(1, 1), shape=(4, 8)), s.weights(8, 3))

    assert inlined(build) == ["matmul"]


def test_declines_a_transposition_that_is_reused() -> None:
    """Read by columns again and again, it had better be moved once."""
    assert inlined(lambda s: s.op("MatMul", s.weights(5, 8), s.op("Transpose", s.data(3, 8), perm=(1, 0)))) == [
        "transpose",
        "matmul",
    ]


def test_declines_a_stage_read_at_places_that_data_decides() -> None:
    def build(s: Sketch) -> Value:
        return s.op("Gather", s.op("Exp", s.data(5)), s.data(5, dtype=I64, name="i"), axis=0)

    assert inlined(build) == ["exp", "gather"]


def test_narrow_values_are_rounded_where_they_would_have_been_stored() -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Neg", sketch.op("Exp", sketch.data(4, dtype=F16))))
    (stage,) = inline(stages_of(graph), frozenset(map(buffer_of, graph.outputs)))
    assert str(stage.body) == "neg(f16(exp(%x[i0.1])))"


# --- split_at_conditions -------------------------------------------------------------------------------------


def parts(build: Callable[[Sketch], Value]) -> list[str]:
    sketch = Sketch()
    found = split_at_conditions(stages_of(sketch.graph(build(sketch))))
    return [f"{', '.join(map(str, part.place))} | {part}" for part in found]


def test_a_concatenation_becomes_copies() -> None:
    assert parts(lambda s: s.op("Concat", s.data(3, name="a"), s.data(5, name="b"), axis=0)) == [
        "i0.0.0 | %concat[i0.0.0<3]: f32 = %a[i0.0.0]",
        "i0.0.3 + 3 | %concat[i0.0.3<5]: f32 = %b[i0.0.3]",
    ]


def test_padding_becomes_borders_and_a_copy() -> None:
    assert parts(lambda s: s.op("Pad", s.data(4), before=(1,), after=(2,), mode="constant")) == [
        "i0.0.0.0 | %pad[i0.0.0.0<1]: f32 = 0:f32",
        "i0.0.0.1 + 1 | %pad[i0.0.0.1<4]: f32 = %x[i0.0.0.1]",
        "i0.0.5 + 5 | %pad[i0.0.5<2]: f32 = 0:f32",
    ]


def test_declines_thin_borders() -> None:
    (whole,) = parts(lambda s: s.op("Pad", s.data(100), before=(1,), after=(1,), mode="constant"))
    assert "select(" in whole


def test_declines_more_parts_than_are_worth_it() -> None:
    many = MAX_PARTS + 1
    (whole,) = parts(lambda s: s.op("Concat", *(s.data(4, name=f"x{number}") for number in range(many)), axis=0))
    assert whole.count("select(") == many - 1


@pytest.mark.parametrize("size", [Sym("n", 1), 4])
def test_declines_conditions_on_data_and_on_unknown_extents(size: int | Sym) -> None:
    def build(s: Sketch) -> Value:
        x = s.data(Sym("n", 1))
        if isinstance(size, Sym):
            return s.op("Pad", x, before=(1,), after=(1,), mode="constant")
        return s.op("LeakyRelu", s.data(size, name="y"), alpha=0.1)

    (whole,) = parts(build)
    assert "select(" in whole
