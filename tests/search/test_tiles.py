"""Tiles of registers: which there are, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.search.contraction import TileLoads, Window
from foretell.search.near_memory import cycles_from, cycles_of_one, missed_rows, missed_share
from foretell.search.tiles import covered, tile_cycles, tile_shapes
from foretell.target.resolve import resolve_target

SAPPHIRE_RAPIDS = resolve_target("sapphirerapids").spec
ICELAKE = resolve_target("icelake-server").spec
LOADS = (TileLoads(1, 1, 0), TileLoads(1, 2.5, 0, 4096), TileLoads(0, 1, 1, 0, Window(9, 3, 1, 0)))


@given(st.integers(1, 40), st.integers(1, 300), st.sampled_from([1, 4, 8, 16]))
def test_tiles_fit_registers_and_output(rows: int, width: int, lanes: int) -> None:
    tall, wide = tile_shapes(ICELAKE, rows, width, lanes)
    shapes = list(zip(tall.tolist(), wide.tolist(), strict=True))
    assert len(set(shapes)) == len(shapes) and (1, min(lanes, width)) in shapes
    for count, each in shapes:
        assert count <= rows and each <= width and (width % each == 0 or each % lanes == 0)
        assert (count + 1) * -(-each // lanes) < ICELAKE.vector_registers


@given(st.integers(1, 60), st.integers(1, 300), st.sampled_from(LOADS), st.data())
def test_tiles_and_tails_cover_the_output(rows: int, width: int, loads: TileLoads, data: st.DataObject) -> None:
    tall, wide = tile_shapes(ICELAKE, rows, width, 16)
    number = data.draw(st.integers(0, len(tall) - 1))
    expected = sum(
        tile_cycles(ICELAKE, np.array([min(tall[number], rows - row)]), np.array([lanes]), 16, loads)[:, 0]
        for row in range(0, rows, int(tall[number]))
        for lanes in (min(wide[number], width - lane) for lane in range(0, width, int(wide[number])))
    )
    found = covered(tall, wide, rows, width, lambda rows, width: tile_cycles(ICELAKE, rows, width, 16, loads))
    assert found[:, number] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "width", "longer", "shorter"),
    [
        (14, 32, 16, 14),  # 14 elements and two vectors take longer to load than 28 multiply-adds
        (6, 64, 12, 10),
        (2, 112, 9, 7),
        (1, 16, 4, 0.5),  # a chain of multiply-adds
        (8, 8, 4.5, 4),  # half a vector on each port
    ],
)
def test_cycles_of_a_tile(rows: int, width: int, longer: float, shorter: float) -> None:
    """Two multiply-adds a cycle beside one load."""
    found = tile_cycles(ICELAKE, np.array([rows]), np.array([width]), 16, TileLoads(1, 1, 0))
    assert found[:, 0] == pytest.approx([longer, shorter + waiting(longer)])


def waiting(longest: float) -> float:
    """What chains of four cycles add to what goes on beside the longest."""
    return 2 * (4 / longest) ** 3


@pytest.mark.parametrize(
    ("rows", "width", "longer", "shorter"),
    [
        (14, 32, 28, 9),  # a vector a cycle, in two halves, and two elements
        (9, 24, 0.55 * 27, 4.5 + 0.55 * 3),  # three halves
        (7, 40, 0.55 * 35, 3.5 + 0.55 * 5),
        (5, 30, 10, 4.5 + 2 * 7 / 8),  # more than half of the last vector: two full ones
        (12, 8, 0.55 * 12, 6 + 0.55),
    ],
)
def test_halves_of_vectors_take_half_the_time_where_units_are_narrow(
    rows: int, width: int, longer: float, shorter: float
) -> None:
    zen4 = replace(ICELAKE, unit_bytes=32, fma_ports=1, load_ports=1, loads_per_cycle=1.0)
    found = tile_cycles(zen4, np.array([rows]), np.array([width]), 16, TileLoads(1, 1, 0, packed=1))
    assert found[:, 0] == pytest.approx([longer, shorter + waiting(longer)])


def test_tiles_with_just_enough_sums_wait() -> None:
    """Eight sums keep two ports busy for the four cycles of a multiply-add, if nothing is ever late."""
    ports = replace(ICELAKE, loads_per_cycle=2.0)
    cycles = tile_cycles(ports, np.array([4, 12]), np.array([32, 32]), 16, TileLoads(1, 1, 0))
    assert (cycles[0] / [4, 12]).tolist() == [1, 1]
    assert cycles[1, 0] / 4 > 2 * cycles[1, 1] / 12


def test_chains_of_short_sums_overlap() -> None:
    """Sixteen steps of a multiply-add and what goes with it are forty instructions, of 352 that may wait."""
    rows, width, loads = np.array([1]), np.array([16]), TileLoads(1, 1, 0)
    long, short = (tile_cycles(ICELAKE, rows, width, 16, loads, steps)[0, 0] for steps in (1000, 16))
    assert long == 4 and short == 2  # the loads of a step remain


def test_rows_a_page_apart_push_each_other_out() -> None:
    assert missed_rows(ICELAKE, np.array([6, 13]), 4096).tolist() == [0, 13]
    assert missed_rows(ICELAKE, np.array([12]), 2048).tolist() == [0]
    assert missed_rows(ICELAKE, np.array([12]), 4096 + 64).tolist() == [0]


RATES = [
    *(cache.bandwidth_bytes_per_cycle for cache in ICELAKE.caches[1:]),
    ICELAKE.dram_core_bandwidth_bytes_per_s / ICELAKE.frequency_hz,
]


@given(st.floats(1, 1e9), st.floats(0, 1e9), st.floats(0, 1e8))
def test_what_was_read_last_is_nearest(size: float, between: float, more: float) -> None:
    assert cycles_from(ICELAKE, size, between) <= cycles_from(ICELAKE, size, between + more)
    assert cycles_from(ICELAKE, size, between) == cycles_of_one(ICELAKE, size, between)


def test_a_cache_keeps_all_of_what_is_small_and_less_and_less_of_more() -> None:
    first, second, last = (cache.size_bytes for cache in ICELAKE.caches)
    betweens = [0.6 * first, 0.61 * first, 0.6 * second, 0.9 * second, 0.6 * last, 0.9 * last]
    found = cycles_from(ICELAKE, 1000.0, betweens)
    assert found == pytest.approx([0, *(1000 / RATES[level] for level in (0, 0, 1, 1, 2))])
    half = cycles_from(ICELAKE, 1000.0, 0.75 * second)
    assert half == pytest.approx((1000 / RATES[0] + 1000 / RATES[1]) / 2)
    assert missed_share(0.75 * second, second) == pytest.approx(0.5)


def test_what_is_packed_for_odd_widths_lies_across_lines() -> None:
    """58 elements fill four vectors as 64 do, and each of their rows begins elsewhere in a line."""
    widths, rows = np.array([58, 64, 16, 10]), np.full(4, 5)
    packed, plain = (tile_cycles(ICELAKE, rows, widths, 16, TileLoads(1, 1, 0, packed=count)) for count in (1, 0))
    assert packed[0, 0] > plain[0, 0] == plain[0, 1] == packed[0, 1]
    assert packed[:, 2:].tolist() == plain[:, 2:].tolist()


def window_cycles(rows: int, width: int, grain_bytes: int = 4) -> tuple[float, float]:
    loads = TileLoads(0, 0, 1, window=Window(9, 3, 1, 1, grain_bytes))
    longer, shorter = tile_cycles(SAPPHIRE_RAPIDS, np.array([rows]), np.array([width]), 16, loads)[:, 0]
    return longer, shorter


def test_rows_of_windows_share_what_they_load() -> None:
    """Four rows read six; vectors lie across two lines, but for one start in sixteen, and one of four is masked."""
    assert window_cycles(4, 56) == pytest.approx((6 / 3 * (1 + 60 / 64) * 4.5 / 2, 8))
    assert window_cycles(4, 64, 64) == pytest.approx((8, 6 / 3 * 4 / 2))


def test_windows_of_one_vector_wait_for_their_chains() -> None:
    """Only three rows are added to at a time, or six that are found ahead: four cycles for six multiply-adds."""
    assert window_cycles(10, 16)[0] == pytest.approx(10 * 4 / 6)
    assert window_cycles(10, 32)[0] == pytest.approx(10)


def test_taps_that_find_no_register_are_loaded_for_each_product() -> None:
    """Of 14 x 2 sums and two vectors two registers remain, for two of nine taps."""
    longer, _ = window_cycles(14, 32, 64)
    assert longer == pytest.approx((16 / 3 * 2 + 28 * 7 / 9) / 2)
