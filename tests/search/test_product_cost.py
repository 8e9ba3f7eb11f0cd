"""Which products are computed in pairs, or by quarters: where multiplying takes longest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretell.graph.rewrites.pair_products import Product
from foretell.graph.rewrites.use_strassen import Halves
from foretell.search.product_cost import PAIRED, choose_levels, fastest_tile, halved_error, paired_error, suits_pairs
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR
from foretell.target.read_spec import read_named

ZEN4 = read_named("znver4")


def suits(product: Product, target: str = "znver4", weights_bytes: int = 0, error: float = 1e-4) -> bool:
    return suits_pairs(product, read_named(target), weights_bytes, error)


def test_where_additions_have_ports_of_their_own() -> None:
    assert suits(Product(1, 128, 768, 768))
    assert suits(Product(1, 196, 96, 576))


@pytest.mark.parametrize("target", ["icelake-server", "skylake", "neoverse-n1", "apple-m1", "x86-64-v3"])
def test_not_where_they_have_not(target: str) -> None:
    assert not suits(Product(1, 128, 768, 768), target)


def test_where_broadcasting_takes_no_more_than_a_load() -> None:
    zen5 = read_named("znver5")
    assert fastest_tile(zen5, 128, 768, loads=PAIRED).width == 2 * zen5.vector_lanes(32)
    assert fastest_tile(ZEN4, 128, 768, loads=PAIRED).width == ZEN4.vector_lanes(32)
    assert suits(Product(1, 128, 768, 768), "znver5")


@pytest.mark.parametrize("target", ["znver2", "znver3"])
def test_not_where_loads_would_take_longer(target: str) -> None:
    assert not suits(Product(1, 128, 768, 768), target)


def test_not_where_preparing_rows_takes_too_long() -> None:
    assert not suits(Product(1, 12544, 32, 16))
    assert not suits(Product(1, 12544, 2, 512))


def test_not_where_weights_take_longest() -> None:
    assert not suits(Product(1, 1, 4096, 4096), weights_bytes=1 << 30)
    assert not suits(Product(49, 9, 256, 256), weights_bytes=1 << 30)
    assert suits(Product(49, 49, 256, 256), weights_bytes=1 << 30)


def test_not_beyond_the_error_allowed() -> None:
    assert paired_error(768) < DEFAULT_WINOGRAD_ERROR
    assert not suits(Product(1, 128, 768, 768), error=1e-7)


def test_ports_decide_and_no_names() -> None:
    assert not suits_pairs(Product(1, 128, 768, 768), replace(ZEN4, add_ports=0), 0, 1e-4)


def levels(halves: Halves, target: str = "znver3", weights_bytes: int = 0, error: float = 1e-4) -> int:
    return choose_levels(halves, read_named(target), weights_bytes, error)


@pytest.mark.parametrize("target", ["znver3", "skylake", "neoverse-n1", "apple-m1", "x86-64-v3"])
def test_large_matrices_are_halved(target: str) -> None:
    assert levels(Halves(1, 2048, 2048, 2048), target) >= 1


def test_small_ones_are_not() -> None:
    assert levels(Halves(1, 2048, 64, 64)) == 0
    assert levels(Halves(1, 4, 768, 768)) == 0
    assert levels(Halves(7, 7, 512, 2048)) == 0
    assert levels(Halves(1, 2048, 2047, 2048)) == 0


def test_not_where_reading_weights_takes_longest() -> None:
    assert levels(Halves(1, 16, 4096, 4096), weights_bytes=1 << 30) == 0


def test_halving_stays_within_the_error_allowed() -> None:
    assert halved_error(768, 2) < DEFAULT_WINOGRAD_ERROR
    assert levels(Halves(1, 2048, 2048, 2048), error=1.01 * halved_error(2048, 1)) == 1
    assert levels(Halves(1, 2048, 2048, 2048), error=0.99 * halved_error(2048, 1)) == 0


def test_not_where_pairs_are_better() -> None:
    assert levels(Halves(1, 2048, 2048, 2048), "znver4") == 0
