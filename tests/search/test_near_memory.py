"""What pushes itself out of the first cache: counted by hand on one of 64 sets and 8 ways."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.search.near_memory import SET_CYCLES, crowded_cycles
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.resolve import resolve_target

ZEN4 = resolve_target("znver4").spec
LINE_CYCLES = 64 / ZEN4.caches[1].bandwidth_bytes_per_cycle


def crowded(run_bytes: int, *runs: tuple[int, int], spec: HardwareSpec = ZEN4) -> float:
    (found,) = crowded_cycles(spec, np.array([run_bytes]), [(apart, np.array([count])) for apart, count in runs])
    return float(found)


def test_runs_at_equal_places_push_each_other_out() -> None:
    """64 runs of three lines, half a way apart: 192 lines for six sets of eight."""
    assert crowded(192, (2048, 64)) == pytest.approx(192 * max(LINE_CYCLES, SET_CYCLES / 6))
    assert crowded(64, (4096, 64)) == pytest.approx(64 * SET_CYCLES)
    assert crowded(192, (2048 + 64, 64)) == crowded(192, (192, 64)) == crowded(64 * 192) == 0


def test_a_set_holds_as_many_lines_as_there_are_ways() -> None:
    assert crowded(64, (4096, 8)) == 0
    assert crowded(64, (4096, 12)) == pytest.approx(6 * SET_CYCLES)  # half of what is over is still found
    assert crowded(64, (4096, 16)) == pytest.approx(16 * SET_CYCLES)
    assert crowded(64, (4096, 12), spec=resolve_target("icelake-server").spec) == 0  # as many ways of as many sets


def test_rows_of_planes_share_the_places_of_their_plane() -> None:
    """Images of 64 x 64 are four ways apart, and three rows of each lie at three places."""
    assert crowded(256, (64 * 64 * 4, 32), (64 * 4, 3)) == pytest.approx(32 * 3 * 4 * LINE_CYCLES)
    assert crowded(256, (66 * 66 * 4, 32), (66 * 4, 3)) == 0


@given(st.integers(1, 512), st.lists(st.tuples(st.integers(64, 1 << 16), st.integers(1, 64)), max_size=3))
def test_what_is_no_more_than_the_ways_has_room(run_bytes: int, runs: list[tuple[int, int]]) -> None:
    count = int(np.prod([each for _, each in runs], initial=1))
    assert crowded(run_bytes, *runs) >= 0
    if count <= ZEN4.caches[0].ways:
        assert crowded(run_bytes, *runs) == 0
