"""Where boxes of a drawn graph go: nothing overlaps, lines go down, and positions are as near as can be."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.report.layer_graph import Layout, Wire, layer_graph, spread
from tests.random_graphs import Draw

BOX = (100.0, 40.0)


@st.composite
def drawn_wires(draw: Draw) -> tuple[int, list[Wire]]:
    """A number of boxes, and wires from each to some that come later."""
    count = int(str(draw(st.integers(1, 14))))
    wires: list[Wire] = []
    for source in range(count - 1):
        targets = draw(st.sets(st.integers(source + 1, count - 1), max_size=3))
        assert isinstance(targets, set)
        if targets:
            wires.append(Wire(source, tuple(sorted(targets))))
    return count, wires


def rows_of(layout: Layout) -> dict[float, list[int]]:
    """Places by the middle of their height, from left to right."""
    rows: dict[float, list[int]] = {}
    for place in sorted(range(len(layout.x)), key=lambda place: layout.x[place]):
        rows.setdefault(layout.top[place] + layout.height[place] / 2, []).append(place)
    return rows


@settings(max_examples=200, deadline=None)
@given(drawn_wires())
def test_boxes_lie_apart_and_lines_go_down(drawn: tuple[int, list[Wire]]) -> None:
    count, wires = drawn
    layout = layer_graph([BOX] * count, wires)
    for row in rows_of(layout).values():
        for left, right in pairwise(row):
            assert layout.x[right] - layout.x[left] >= (layout.width[left] + layout.width[right]) / 2
    for link in layout.links:
        assert layout.top[link.upper] + layout.height[link.upper] < layout.top[link.lower]
    for place in range(len(layout.x)):
        assert -1e-6 <= layout.x[place] - layout.width[place] / 2 <= layout.size[0]
        assert layout.top[place] + layout.height[place] <= layout.size[1] + 1e-6


@settings(max_examples=100, deadline=None)
@given(drawn_wires())
def test_a_line_leads_to_every_target(drawn: tuple[int, list[Wire]]) -> None:
    count, wires = drawn
    layout = layer_graph([BOX] * count, wires)
    for number, wire in enumerate(wires):
        reached = {wire.source}
        for link in layout.links:
            if link.wire == number:
                assert link.upper in reached
                reached.add(link.lower)
        assert {place for place in reached if place < count} == {wire.source, *wire.targets}


def test_a_chain_is_straight() -> None:
    layout = layer_graph([BOX] * 20, [Wire(number, (number + 1,)) for number in range(19)])
    assert len(set(layout.x)) == 1 and len(set(layout.top)) == 20


def test_what_passes_a_row_stands_beside_it() -> None:
    layout = layer_graph([BOX] * 3, [Wire(0, (1, 2)), Wire(1, (2,))])
    (passing,) = range(3, len(layout.x))
    assert layout.top[passing] == layout.top[1] and abs(layout.x[passing] - layout.x[1]) > BOX[0] / 2


def test_what_nothing_leads_to_stands_above_its_reader() -> None:
    layout = layer_graph([BOX] * 4, [Wire(0, (1,)), Wire(1, (3,)), Wire(2, (3,))])
    assert layout.top[2] == layout.top[1] > layout.top[0]


def test_no_boxes() -> None:
    assert layer_graph([], []).size == (0.0, 0.0)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [([0.0, 50.0], [0.0, 50.0]), ([5.0, 5.0], [0.0, 10.0]), ([20.0, 0.0, 4.0], [-2.0, 8.0, 18.0]), ([], [])],
)
def test_spread(wanted: list[float], expected: list[float]) -> None:
    assert spread(wanted, [10.0] * (len(wanted) - 1)) == pytest.approx(expected)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=6), st.integers(0, 12), st.data())
def test_no_other_positions_are_nearer(wanted: list[int], apart: int, data: st.DataObject) -> None:
    """Moving any of them, with those that it pushes, does not bring them nearer."""
    found = spread([float(want) for want in wanted], [float(apart)] * (len(wanted) - 1))
    assert all(right - left >= apart - 1e-9 for left, right in pairwise(found))
    first = data.draw(st.integers(0, len(found) - 1))
    for step in (-0.01, 0.01):
        moved = list(found)
        moved[first] += step
        for number in range(first + 1, len(moved)):
            moved[number] = max(moved[number], moved[number - 1] + apart)
        for number in range(first - 1, -1, -1):
            moved[number] = min(moved[number], moved[number + 1] - apart)
        assert distance(moved, wanted) >= distance(found, wanted) - 1e-9


def distance(found: list[float], wanted: list[int]) -> float:
    return sum((at - want) ** 2 for at, want in zip(found, wanted, strict=True))
