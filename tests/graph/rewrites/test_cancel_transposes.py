from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.graph.rewrites.cancel_transposes import cancel_transposes
from foretell.ir.expr import Dim, Sym
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, operators, text

N = Sym("n", 1)


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.data(N, 3, 5, 7)
    y = sketch.op("Transpose", sketch.op("Transpose", x, perm=(0, 2, 3, 1)), perm=(0, 2, 1, 3))
    after = check_rewrite(cancel_transposes, sketch.graph(y), ops=["Transpose"])
    assert str(after) == text(
        """
        graph test(%x: f32[n, 3, 5, 7]) {
          %transpose_2: f32[n, 7, 5, 3] = Transpose(%x) {perm=(0, 3, 2, 1)}
          return y0=%transpose_2
        }
        """
    )


@given(st.permutations(range(4)), st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_any_two_become_one_at_most(first: list[int], second: list[int], shape: list[int]) -> None:
    sketch = Sketch()
    inner = sketch.op("Transpose", sketch.data(*shape), perm=tuple(first))
    graph = sketch.graph(sketch.op("Transpose", inner, perm=tuple(second)))
    after = cancel_transposes(graph)
    assert_same_results(graph, after)
    assert operators(after).count("Transpose") <= 1


def test_inverses_vanish() -> None:
    sketch = Sketch()
    x = sketch.data(2, 3, 5)
    y = sketch.op("Transpose", sketch.op("Transpose", x, perm=(1, 2, 0)), perm=(2, 0, 1))
    assert check_rewrite(cancel_transposes, sketch.graph(y), ops=[]).outputs == (x,)


def test_a_transpose_with_other_readers_stays_for_them() -> None:
    sketch = Sketch()
    inner = sketch.op("Transpose", sketch.data(2, 3), perm=(1, 0))
    graph = sketch.graph(inner, sketch.op("Transpose", inner, perm=(1, 0)))
    check_rewrite(cancel_transposes, graph, ops=["Transpose"])


@pytest.mark.parametrize(("shape", "perm"), [((1, 3, 5), (1, 2, 0)), ((N, 1, 1, 4), (0, 3, 1, 2)), ((1, 1), (1, 0))])
def test_moving_single_elements_is_a_reshape(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Transpose", sketch.data(*shape), perm=perm))
    check_rewrite(cancel_transposes, graph, ops=[] if shape == (1, 1) else ["Reshape"])


def test_reshapes_join() -> None:
    sketch = Sketch()
    x = sketch.data(N, 4, 6)
    flat = sketch.op("Reshape", x, shape=(N * 24,))
    there = sketch.op("Reshape", flat, shape=(N, 8, 3))
    back = sketch.op("Reshape", there, shape=(N, 4, 6))
    after = cancel_transposes(sketch.graph(there, back))
    assert operators(after) == ["Reshape"] and after.outputs[1] == x
    assert_same_results(sketch.graph(there, back), after)


@pytest.mark.parametrize("batch", [(2, 3), (N, 3), (1, 3), (2, 1)], ids=str)
def test_transposes_between_reshapes_of_whole_groups(batch: tuple[Dim, ...]) -> None:
    """Batched products of rank 3, as an exporter writes attention over batch and heads."""
    sketch = Sketch()
    x = sketch.data(*batch, 5, 7)
    flat = sketch.op("Reshape", x, shape=(batch[0] * batch[1], 5, 7))
    y = sketch.op("Reshape", sketch.op("Transpose", flat, perm=(0, 2, 1)), shape=(*batch, 7, 5))
    # An axis of extent 1 may go either way, and takes a reshape back to its place.
    check_rewrite(
        cancel_transposes, sketch.graph(y), ops=["Transpose", "Reshape"] if batch == (2, 1) else ["Transpose"]
    )


def test_declines_reshapes_that_part_what_was_joined_otherwise() -> None:
    sketch = Sketch()
    flat = sketch.op("Reshape", sketch.data(2, 6, 5), shape=(12, 5))
    y = sketch.op("Reshape", sketch.op("Transpose", flat, perm=(1, 0)), shape=(5, 6, 2))
    check_declines(cancel_transposes, sketch.graph(y))


def test_declines_what_moves_a_symbolic_dimension() -> None:
    sketch = Sketch()
    check_declines(cancel_transposes, sketch.graph(sketch.op("Transpose", sketch.data(N, 3), perm=(1, 0))))
