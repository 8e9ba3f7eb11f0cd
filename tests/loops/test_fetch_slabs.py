"""Sums whose operand comes in slabs: the next one is fetched, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_program
from foretell.ir.dtypes import F32
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Const, Load
from foretell.loops.fetch_slabs import fetch_slabs
from foretell.loops.interpret import interpret
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Kernel, Statement, Store
from foretell.loops.verify import verify
from foretell.target.resolve import resolve_target

CACHES = (512, 4096, 1 << 20)
S, M, K, V, T, R, B = (Sym(name) for name in ("s", "m", "k", "v", "t", "r", "b"))


def kernel(slab: Dim, tile: Dim, *loops: tuple[Sym, int], steps: int = 8, lanes: int = 16) -> Kernel:
    """y[tile, slab * lanes + v] = sum over k of x[tile, k] * w[slab, k, v], for loops that give tile and slab."""
    tiles, slabs = 8, 6
    x, w, y = (
        Buffer(name, F32, shape)
        for name, shape in (("x", (tiles, steps)), ("w", (slabs, steps, lanes)), ("y", (tiles, slabs, lanes)))
    )
    acc = Buffer("acc", F32, (lanes,), "register")
    product = Apply("mul", (Load(x, (tile, K), F32), Load(w, (slab, K, V), F32)))
    body: Statement = Block(
        (
            For(V, lanes, "vector", Store(acc, (V,), Const(0.0, F32))),
            For(K, steps, "serial", For(V, lanes, "vector", Accumulate(acc, (V,), "sum", product))),
            For(V, lanes, "vector", Store(y, (tile, slab, V), Load(acc, (V,), F32))),
        )
    )
    return Kernel("sums", (x, w), (y,), nested(Allocate(acc, body), loops))


def nested(body: Statement, loops: Sequence[tuple[Sym, int]]) -> Statement:
    for number, (sym, extent) in reversed(list(enumerate(loops))):
        body = For(sym, extent, "serial" if number else "parallel", body)
    return body


def rows(tile: Dim, count: int, *loops: tuple[Sym, int], length: int = 16) -> Kernel:
    """y[4 * tile + r, s, v] = sum over k of x[4 * tile + r, k] * w[s, k, v], for loops that give a tile, and s."""
    slabs = dict(loops).get(S, 1)
    return tall(count, length, slabs, [(tile * 4, 4)], S if slabs > 1 else 0, loops)


def tall(
    count: int, length: int, slabs: int, tiles: Sequence[tuple[Dim, int]], slab: Dim, loops: Sequence[tuple[Sym, int]]
) -> Kernel:
    """The same for tiles of which each begins at some row and has so many."""
    lanes = 16
    x, w, y = (
        Buffer(name, F32, shape)
        for name, shape in (("x", (count, length)), ("w", (slabs, length, lanes)), ("y", (count, slabs, lanes)))
    )

    def summed(first: Dim, height: int) -> Statement:
        acc, row = Buffer("acc", F32, (height, lanes), "register"), first + R
        product = Apply("mul", (Load(x, (row, K), F32), Load(w, (slab, K, V), F32)))

        def each(statement: Statement) -> Statement:
            return For(R, height, "unroll", For(V, lanes, "vector", statement))

        zero, total = Store(acc, (R, V), Const(0.0, F32)), Accumulate(acc, (R, V), "sum", product)
        result = Store(y, (row, slab, V), Load(acc, (R, V), F32))
        return Allocate(acc, Block((each(zero), For(K, length, "serial", each(total)), each(result))))

    body = Block(tuple(summed(first, height) for first, height in tiles))
    return Kernel("sums", (x, w), (y,), nested(body if len(tiles) > 1 else body.statements[0], loops))


def fetches(before: Kernel, caches: tuple[int, ...] = CACHES) -> list[str]:
    after = fetch_slabs(before, caches)
    verify(after)
    return [line.strip() for line in str(after).splitlines() if "fetch" in line]


def test_the_next_slab_is_spread_over_the_tiles() -> None:
    """A slab is 8 lines; 8 tiles of 8 steps would ask for 64, so that the last one is asked for again."""
    assert fetches(kernel(S, M, (S, 6), (M, 8))) == ["fetch %w[s + 1, 0, 16*min(7, k + 8*m)] to read into cache 2"]


def test_joined_loops() -> None:
    joined = kernel(T // 8, T % 8, (T, 48))
    assert fetches(joined) == ["fetch %w[(t // 8) + 1, 0, 16*min(7, k + 8*(t % 8))] to read into cache 2"]
    joined = kernel(T % 6, M, (T, 6), (M, 8))
    assert fetches(joined) == ["fetch %w[(t + 1) % 6, 0, 16*min(7, k + 8*m)] to read into cache 2"]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(kernel(S, M, (M, 8), (S, 6)), id="a slab that serves one tile"),
        pytest.param(kernel(0, M, (M, 8)), id="one slab"),
        pytest.param(kernel(S, M, (S, 1), (M, 8)), id="a loop over one slab"),
        pytest.param(kernel(S, M, (S, 6), (M, 8), steps=64), id="slabs too large for the second"),
    ],
)
def test_declines(before: Kernel) -> None:
    assert fetch_slabs(before, CACHES) is before


def test_slabs_of_which_many_stay_in_the_first_cache() -> None:
    before = kernel(S, M, (S, 6), (M, 8), steps=2)
    assert fetch_slabs(before, (2048, 1 << 16, 1 << 20)) is before
    assert fetch_slabs(before, (1024, 1 << 16, 1 << 20)) is not before


def fetched_rows(before: Kernel, second_bytes: int) -> list[str]:
    return [line for line in fetches(before, (256, second_bytes, 1 << 20)) if "%x" in line]


def test_rows_of_the_next_tile_come_while_they_are_not_near() -> None:
    """A tile has four rows of one line each, and all of them are more than the second cache holds."""
    before = rows(T, 80, (S, 2), (T, 20))
    assert fetched_rows(before, 4096) == ["fetch %x[4*t + 4, 16*min(3, k)] to read into cache 2"]
    assert "if eq" not in str(fetch_slabs(before, (256, 4096, 1 << 20)))


def test_rows_that_stay_near_are_fetched_in_the_first_turn() -> None:
    before = rows(4 * B + T, 160, (B, 10), (S, 2), (T, 4))
    assert fetched_rows(before, 4096) == ["fetch %x[16*b + 4*t + 4, 16*min(3, k)] to read into cache 2"]
    assert "if eq(index(s), index(0)):" in str(fetch_slabs(before, (256, 4096, 1 << 20)))


@pytest.mark.parametrize(
    ("before", "second_bytes"),
    [
        pytest.param(rows(T, 80, (S, 2), (T, 20)), 8192, id="all of them stay near"),
        pytest.param(rows(T, 80, (S, 2), (T, 20), length=1024), 1 << 18, id="long rows"),
        pytest.param(rows(4 * B + T, 160, (B, 10), (S, 6), (T, 4)), 4096, id="mostly near"),
    ],
)
def test_rows_that_are_not_fetched(before: Kernel, second_bytes: int) -> None:
    assert fetched_rows(before, second_bytes) == []


FEW_ROWS = tall(7, 8, 6, [(0, 4), (4, 3)], S, [(S, 6)])


def test_slabs_of_large_weights_are_fetched_for_one_tile() -> None:
    caches = (512, 2048, 1 << 20)
    assert fetches(kernel(S, M, (M, 8), (S, 6)), caches) == ["fetch %w[s + 1, 0, 16*k] to read into cache 2"]


def test_tiles_of_different_sizes_share_the_next_slab() -> None:
    assert fetches(FEW_ROWS, (512, 2048, 1 << 20)) == [
        "fetch %w[s + 1, 0, 16*min(3, k)] to read into cache 2",
        "fetch %w[s + 1, 0, 16*min(7, k + 4)] to read into cache 2",
    ]


def test_the_last_tile_fetches_nothing_if_there_are_many() -> None:
    parts = tall(19, 8, 6, [(T * 4, 4)], S, [(T, 4)]), tall(19, 8, 6, [(16, 3)], S, [])
    body = For(S, 6, "parallel", Block((For(T, 4, "serial", _body(parts[0]).body), parts[1].body)))
    before = replace(parts[0], body=body)
    assert fetches(before, (512, 2048, 1 << 20)) == ["fetch %w[s + 1, 0, 16*min(7, k + 8*t)] to read into cache 2"]


def _body(kernel: Kernel) -> For:
    assert isinstance(kernel.body, For)
    return kernel.body


@pytest.mark.parametrize(
    "before",
    [
        kernel(S, M, (S, 6), (M, 8)),
        rows(T, 80, (S, 2), (T, 20)),
        rows(4 * B + T, 160, (B, 10), (S, 2), (T, 4)),
        FEW_ROWS,
    ],
)
def test_means_the_same(before: Kernel) -> None:
    rng = np.random.default_rng(0)
    feeds = {buffer.name: rng.random(buffer.type.static_shape, np.float32) for buffer in before.reads}
    after = fetch_slabs(before, CACHES)
    np.testing.assert_array_equal(interpret([after], feeds, {})["y"], interpret([before], feeds, {})["y"])


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "neoverse-n1", "riscv64"])
def test_emits_for_every_architecture(name: str) -> None:
    target = resolve_target(name)
    after = fetch_slabs(kernel(S, M, (S, 6), (M, 8)), CACHES)
    slots = {buffer.name: number for number, buffer in enumerate((*after.reads, *after.writes))}
    assert emit_program([[after]], Layout(slots, {}), target)
