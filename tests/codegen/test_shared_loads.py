"""The order in which short sums over windows are written out."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.codegen.shared_loads import try_shared_loads
from foretell.ir.dtypes import F32
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Load
from foretell.loops.nodes import Accumulate, For

ROW, DOWN, ACROSS = Sym("r"), Sym("u"), Sym("v")


def nest(rows: int, down: int, across: int, step: int, order: tuple[Sym, ...] = (DOWN, ACROSS, ROW)) -> For:
    """acc[r] += x[step * r + u, v] * w[u, v], all written out."""
    x = Buffer("x", F32, (step * rows + down, 64))
    w = Buffer("w", F32, (down, across))
    sums = Buffer("acc", F32, (rows,), "register")
    place: Dim = ROW * step + DOWN
    value = Apply("mul", (Load(x, (place, ACROSS), F32), Load(w, (DOWN, ACROSS), F32)))
    body: For | Accumulate = Accumulate(sums, (ROW,), "sum", value)
    extents = {ROW: rows, DOWN: down, ACROSS: across}
    for sym in reversed(order):
        body = For(sym, extents[sym], "unroll", body)
    assert isinstance(body, For)
    return body


@given(st.integers(1, 6), st.integers(2, 5), st.integers(1, 5), st.integers(1, 3))
def test_all_that_use_an_element_follow_each_other(rows: int, down: int, across: int, step: int) -> None:
    found = try_shared_loads(nest(rows, down, across, step))
    assert (found is not None) == (step < down)
    if found is None:
        return
    assert found.syms == (DOWN, ACROSS, ROW)
    assert sorted(found.points) == sorted(product(range(down), range(across), range(rows)))
    loaded = [(step * row + u, v) for u, v, row in found.points]
    assert loaded == sorted(loaded)
    for each in range(rows):
        assert [(u, v) for u, v, row in found.points if row == each] == list(product(range(down), range(across)))


def test_sums_keep_their_order() -> None:
    """With v outside, element (1, 0) would come before (0, 1)."""
    assert try_shared_loads(nest(4, 3, 3, 1, (ACROSS, DOWN, ROW))) is None


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_loops_that_are_not_written_out_are_left_alone(kind: str) -> None:
    written = nest(4, 3, 3, 1)
    assert try_shared_loads(For(written.sym, written.extent, kind, written.body)) is None


def test_products_of_matrices_have_no_windows() -> None:
    x, sums = Buffer("x", F32, (8, 4)), Buffer("acc", F32, (8,), "register")
    update = Accumulate(sums, (ROW,), "sum", Load(x, (ROW, DOWN), F32))
    assert try_shared_loads(For(DOWN, 4, "unroll", For(ROW, 8, "unroll", update))) is None
