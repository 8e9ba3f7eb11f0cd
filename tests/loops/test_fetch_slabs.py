"""Sums whose operand comes in slabs: the next one is fetched, and nothing else changes."""

from __future__ import annotations

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
S, M, K, V, T = (Sym(name) for name in ("s", "m", "k", "v", "t"))


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
    body = Allocate(acc, body)
    for number, (sym, extent) in reversed(list(enumerate(loops))):
        body = For(sym, extent, "serial" if number else "parallel", body)
    return Kernel("sums", (x, w), (y,), body)


def fetches(before: Kernel) -> list[str]:
    after = fetch_slabs(before, CACHES)
    verify(after)
    return [line.strip() for line in str(after).splitlines() if "fetch" in line]


def test_the_next_slab_is_spread_over_the_tiles() -> None:
    """A slab is 8 lines; 8 tiles of 8 steps would ask for 64, so that the last one is asked for again."""
    assert fetches(kernel(S, M, (S, 6), (M, 8))) == ["fetch %w[s + 1, 0, 16*min(7, k + 8*m)] to read"]


def test_joined_loops() -> None:
    joined = kernel(T // 8, T % 8, (T, 48))
    assert fetches(joined) == ["fetch %w[(t // 8) + 1, 0, 16*min(7, k + 8*(t % 8))] to read"]
    assert fetches(kernel(T % 6, M, (T, 6), (M, 8))) == ["fetch %w[(t + 1) % 6, 0, 16*min(7, k + 8*m)] to read"]


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


def test_means_the_same() -> None:
    before = kernel(S, M, (S, 6), (M, 8))
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
