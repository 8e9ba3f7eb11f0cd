"""Copies of operands that no axis of the output runs along."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F32
from foretell.link_program import link_program
from foretell.loops.lower_graph import buffer_of
from foretell.loops.stages import flatten
from foretell.loops.transpose_operands import Aligns, Unaligned, never, transpose_operands
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds
from tests.tolerances import assert_close


def scores(rows: int = 40, columns: int = 48, depth: int = 24) -> Graph:
    """s[b, i, j] = sum[d] q[b, i, d] * k[b, j, d]"""
    sketch = Sketch()
    q, k = sketch.data(2, rows, depth, name="q"), sketch.data(2, columns, depth, name="k")
    return sketch.graph(sketch.op("Einsum", q, k, equation="bid,bjd->bij"))


def copied(
    graph: Graph,
    constants: frozenset[str] = frozenset(),
    inputs: frozenset[str] = frozenset(),
    aligns: Aligns = never,
) -> list[str]:
    stages = transpose_operands(flatten(graph.nodes, buffer_of), constants, inputs, aligns)
    return [str(stage) for stage in stages]


def test_an_operand_is_copied() -> None:
    copy, product = copied(scores())
    assert copy == "%k.by1.0[t0.0<2, t2.0<24, t1.0<48]: f32 = %k[t0.0, t1.0, t2.0]"
    assert "%k.by1.0[" in product and "%k[" not in product


def test_declines_if_an_axis_suits_already() -> None:
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.data(40, 24, name="a"), sketch.data(24, 48, name="b"))
    assert len(copied(sketch.graph(product))) == 1


def test_declines_for_constants_which_are_packed() -> None:
    assert len(copied(scores(), frozenset({"k"}))) == 1


def test_declines_if_elements_are_used_rarely() -> None:
    assert len(copied(scores(rows=3))) == 1


def product(rows: int, length: int) -> Graph:
    sketch = Sketch()
    scaled = sketch.op("Softmax", sketch.data(2, rows, length, name="a"), axis=2)
    return sketch.graph(sketch.op("MatMul", scaled, sketch.data(2, length, 64, name="b")))


def test_what_the_caller_passes_is_copied_first_if_that_is_worth_it() -> None:
    asked: list[Unaligned] = []

    def aligns(operand: Unaligned) -> bool:
        asked.append(operand)
        return True

    stages = copied(product(128, 512), inputs=frozenset("ab"), aligns=aligns)
    assert asked == [Unaligned(batch=2, rows=128, length=512, width=64, bits=32)]
    assert stages[0].startswith("%b.by2.") and " = %b[" in stages[0]
    assert "%b[" not in stages[-1]


@pytest.mark.parametrize(("inputs", "is_worth_it"), [("a", True), ("ab", False)])
def test_declines_otherwise(inputs: str, is_worth_it: bool) -> None:
    graph = product(128, 512)
    assert copied(graph, inputs=frozenset(inputs), aligns=lambda _: is_worth_it) == copied(graph)


@pytest.mark.parametrize("length", [0, 1])
def test_sums_of_few_steps(length: int) -> None:
    graph = product(128, length)
    assert copied(graph, inputs=frozenset("b"), aligns=lambda operand: operand.length > 1) == copied(graph)


def test_results_of_copied_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.link_program.is_worth_aligning", lambda operand, spec: True)
    graph = product(128, 512)
    feeds = random_feeds(graph)
    (got,), (expected,) = (
        link_program(graph, resolve_target("native")).run(feeds).values(),
        evaluate(graph, feeds).values(),
    )
    assert_close(np.asarray(got), expected, F32, terms=512)


def test_results() -> None:
    for rows, columns, depth in ((40, 48, 24), (33, 17, 5), (128, 128, 64)):
        graph = scores(rows, columns, depth)
        feeds = random_feeds(graph)
        model = link_program(graph, resolve_target("native"), 2)
        (got,), (expected,) = model.run(feeds).values(), evaluate(graph, feeds).values()
        assert_close(np.asarray(got), expected, F32, terms=depth, scale=4.0)
