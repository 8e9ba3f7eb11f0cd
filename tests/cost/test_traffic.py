"""Bytes that come into caches, against what one can work out by hand."""

from __future__ import annotations

import pytest

from foretell.cost.traffic import KEPT_SHARE, touched_bytes, traffic_bytes
from foretell.ir.dtypes import F32
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Apply, Buffer, Const, Load
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Kernel, Statement, Store

ROWS, COLUMNS, SUM, LANES = 32, 8, 64, 16
ROW_BYTES, SLAB_BYTES, TILE_BYTES = 4 * SUM, 4 * SUM * LANES, 4 * LANES
EVERYTHING = ROWS * ROW_BYTES + COLUMNS * SLAB_BYTES + ROWS * COLUMNS * TILE_BYTES


def product() -> Kernel:
    """y[i, j, lane] = sum over k of x[i, k] * w[j, k, lane], the rows of x inside the slabs of w."""
    i, j, k, lane = (Sym(name) for name in ("i", "j", "k", "lane"))
    x, w = Buffer("x", F32, (ROWS, SUM)), Buffer("w", F32, (COLUMNS, SUM, LANES))
    y, acc = Buffer("y", F32, (ROWS, COLUMNS, LANES)), Buffer("acc", F32, (LANES,), "register")
    terms = Apply("mul", (Load(x, (i, k), F32), Load(w, (j, k, lane), F32)))
    tile: Statement = Block(
        (
            For(lane, LANES, "vector", Store(acc, (lane,), Const(0.0, F32))),
            For(k, SUM, "serial", For(lane, LANES, "vector", Accumulate(acc, (lane,), "sum", terms))),
            For(lane, LANES, "vector", Store(y, (i, j, lane), Load(acc, (lane,), F32))),
        )
    )
    return Kernel("product", (x, w), (y,), For(j, COLUMNS, "parallel", For(i, ROWS, "serial", Allocate(acc, tile))))


def room_for(size_bytes: float) -> int:
    """A cache that keeps so much."""
    return int(size_bytes / KEPT_SHARE) + 1


@pytest.mark.parametrize(
    ("kept_bytes", "moved_bytes"),
    [
        pytest.param(EVERYTHING, EVERYTHING, id="everything is read once"),
        pytest.param(
            SLAB_BYTES + ROWS * (ROW_BYTES + TILE_BYTES), EVERYTHING, id="rows stay from one slab to the next"
        ),
        pytest.param(
            SLAB_BYTES + ROW_BYTES + TILE_BYTES,
            COLUMNS * (SLAB_BYTES + ROWS * (ROW_BYTES + TILE_BYTES)),
            id="a slab stays for all rows, which come again for each",
        ),
        pytest.param(
            ROW_BYTES,
            COLUMNS * ROWS * (SLAB_BYTES + ROW_BYTES + TILE_BYTES),
            id="nothing stays from one tile to the next",
        ),
    ],
)
def test_what_stays(kept_bytes: int, moved_bytes: int) -> None:
    assert traffic_bytes(product(), room_for(kept_bytes)) == moved_bytes


def test_registers_are_no_memory() -> None:
    assert touched_bytes(product()) == EVERYTHING


def test_more_room_never_brings_in_more() -> None:
    moved = [traffic_bytes(product(), size) for size in (64, 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 16, 1 << 20)]
    assert moved == sorted(moved, reverse=True)


def test_sizes_that_are_symbols() -> None:
    n, i = Sym("n", 1), Sym("i")
    x, y = Buffer("x", F32, (n,)), Buffer("y", F32, (n,))
    kernel = Kernel("copy", (x,), (y,), For(i, n, "vector", Store(y, (i,), Load(x, (i,), F32))))
    assert traffic_bytes(kernel, 1024, {n: 5000}) == touched_bytes(kernel, {n: 5000}) == 40_000
