"""Vectors that lie across two lines, counted against those that are there."""

from __future__ import annotations

import pytest

from foretell.cost.line_splits import line_splits
from foretell.loops.nodes import For, loops_in
from foretell.schedule.steps import Hold, Tile, Unroll, Vectorise, apply_schedule
from tests.schedule.nests import matrix_product


@pytest.mark.parametrize("columns", (16, 24, 17, 32))
def test_the_share_is_what_counting_finds(columns: int) -> None:
    """Rows of b begin anywhere; a vector of 16 floats is split unless it begins with a line."""
    inner = 64
    kernel = apply_schedule(matrix_product(4, columns, inner), (Tile("j", 16), Hold(("j.i",)), Vectorise("j.i")))
    sum_loop = next(loop for loop in loops_in(kernel.body) if loop.sym.name == "k")
    starts = [4 * (k * columns + 16 * j) for k in range(inner) for j in range(columns // 16)]
    counted = sum(start % 64 > 0 for start in starts) / len(starts)
    assert line_splits(sum_loop, 64)[0] == pytest.approx(counted)


def test_loops_inside_have_their_own() -> None:
    steps = (Tile("i", 2), Hold(("i.i", "j")), Unroll("i.i"), Vectorise("j"))
    outer, *_, inner = (
        loop for loop in loops_in(apply_schedule(matrix_product(4, 20, 8), steps).body) if loop.kind == "serial"
    )
    assert isinstance(outer, For)
    assert line_splits(outer, 64)[0] == 0.0 < line_splits(inner, 64)[0]
    assert line_splits(outer, 64)[1] > 0.0
