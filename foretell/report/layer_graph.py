"""Where the boxes of a drawn graph go: rows by depth, few crossings, and long edges that run straight down beside them.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures" (1981): an edge
that passes rows goes through a narrow place of its own in each of them; rows are put in order by the means of their
neighbours, and then moved apart as little as they must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

ORDERING_SWEEPS = 8
MOVING_SWEEPS = 60
PASSING_WIDTH = 14.0
"""What a row leaves for an edge that passes it."""
BETWEEN_BOXES = 26.0
BETWEEN_ROWS = 46.0
SNAPPING = 16.0
"""What is so little beside the place above it is moved below it."""
STRAIGHTNESS = 6.0
"""How much more an edge that passes rows wants to be straight than boxes want to be near each other."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One thing that a box gives to others, by number."""

    source: int
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A part of a wire, from one row to the next: places by number, boxes first."""

    wire: int
    upper: int
    lower: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of boxes, and after them of edges that pass rows; `x` is the middle of each."""

    x: tuple[float, ...]
    width: tuple[float, ...]
    top: tuple[float, ...]
    height: tuple[float, ...]
    links: tuple[Link, ...]
    size: tuple[float, float]


@dataclass(slots=True)
class _Rows:
    """Every place's row, and the links between neighbouring rows."""

    row: list[int]
    links: list[Link] = field(default_factory=list)

    def members(self) -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in range(max(self.row, default=-1) + 1)]
        for place, row in enumerate(self.row):
            rows[row].append(place)
        return rows

    def neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        """Those above and those below each place."""
        above: list[list[int]] = [[] for _ in self.row]
        below: list[list[int]] = [[] for _ in self.row]
        for link in self.links:
            above[link.lower].append(link.upper)
            below[link.upper].append(link.lower)
        return above, below


def layer_graph(sizes: Sequence[tuple[float, float]], wires: Sequence[Wire]) -> Layout:
    """Places for boxes of given widths and heights; wires lead from boxes to such with higher numbers."""
    rows = _with_passing(_depths(len(sizes), wires), wires)
    ordered = _ordered(rows)
    widths = [sizes[place][0] if place < len(sizes) else PASSING_WIDTH for place in range(len(rows.row))]
    x = _placed(rows, ordered, widths, len(sizes))
    top, height, bottom = _vertical(ordered, sizes)
    width = max((at + wide / 2 for at, wide in zip(x, widths, strict=True)), default=0.0)
    return Layout(tuple(x), tuple(widths), tuple(top), tuple(height), tuple(rows.links), (width, bottom))


def _depths(count: int, wires: Sequence[Wire]) -> list[int]:
    """The longest way to each box; those that nothing leads to stand right above the first that needs them."""
    depths = [0] * count
    nearest: dict[int, int] = {}
    has_source = {target for wire in wires for target in wire.targets}
    for wire in sorted(wires, key=lambda wire: wire.source):
        for target in wire.targets:
            assert target > wire.source
            depths[target] = max(depths[target], depths[wire.source] + 1)
    for wire in wires:
        for target in wire.targets:
            nearest[wire.source] = min(nearest.get(wire.source, depths[target]), depths[target])
    return [nearest[box] - 1 if box not in has_source and box in nearest else depths[box] for box in range(count)]


def _with_passing(depths: list[int], wires: Sequence[Wire]) -> _Rows:
    """Places in all rows between the ends of a wire; its targets share them."""
    rows = _Rows(list(depths))
    for number, wire in enumerate(wires):
        at = wire.source
        for row in range(depths[wire.source] + 1, max(depths[target] for target in wire.targets) + 1):
            rows.links += [Link(number, at, target) for target in wire.targets if depths[target] == row]
            if any(depths[target] > row for target in wire.targets):
                rows.row.append(row)
                rows.links.append(Link(number, at, len(rows.row) - 1))
                at = len(rows.row) - 1
    return rows


# --- across ----------------------------------------------------------------------------------------------------


def _ordered(rows: _Rows) -> list[list[int]]:
    """Rows from left to right, each place near the mean of its neighbours in the row before, or after."""
    members = rows.members()
    above, below = rows.neighbours()
    for sweep in range(ORDERING_SWEEPS):
        down = sweep % 2 == 0
        position = {place: float(number) for row in members for number, place in enumerate(row)}
        for row in members if down else members[::-1]:
            sides = above if down else below
            wanted = {place: _mean([position[other] for other in sides[place]], position[place]) for place in row}
            row.sort(key=lambda place, wanted=wanted: wanted[place])
            position |= {place: float(number) for number, place in enumerate(row)}
    return members


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _placed(rows: _Rows, members: list[list[int]], widths: Sequence[float], boxes: int) -> list[float]:
    """The middle of each place: near those that it is linked to, and as far from its neighbours as it must be."""
    x = [0.0] * len(widths)
    linked: list[list[tuple[int, float]]] = [[] for _ in widths]
    for link in rows.links:
        weight = STRAIGHTNESS if link.upper >= boxes and link.lower >= boxes else 1.0
        linked[link.upper].append((link.lower, weight))
        linked[link.lower].append((link.upper, weight))
    for sweep in range(MOVING_SWEEPS):
        for row in members if sweep % 2 == 0 else members[::-1]:
            weights = [sum(weight for _, weight in linked[place]) or 0.1 for place in row]
            wanted = [
                sum(x[other] * weight for other, weight in linked[place]) / total if linked[place] else x[place]
                for place, total in zip(row, weights, strict=True)
            ]
            _move(row, wanted, weights, widths, x)
    above, _ = rows.neighbours()
    for row in members:
        nearest = [min(above[place], key=lambda other, at=x[place]: abs(x[other] - at), default=place) for place in row]
        snaps = [0 < abs(x[other] - x[place]) < SNAPPING for place, other in zip(row, nearest, strict=True)]
        wanted = [x[other] if snap else x[place] for place, other, snap in zip(row, nearest, snaps, strict=True)]
        _move(row, wanted, [STRAIGHTNESS if snap else 1.0 for snap in snaps], widths, x)
    left = min((at - wide / 2 for at, wide in zip(x, widths, strict=True)), default=0.0)
    return [at - left for at in x]


def _move(
    row: Sequence[int], wanted: Sequence[float], weights: Sequence[float], widths: Sequence[float], x: list[float]
) -> None:
    apart = [(widths[a] + widths[b]) / 2 + BETWEEN_BOXES for a, b in pairwise(row)]
    for place, at in zip(row, spread(wanted, apart, weights), strict=True):
        x[place] = at


def spread(wanted: Sequence[float], apart: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Positions in order, each so far from the next, as near as can be to those wanted: the least sum of squares.

    Without the distances they should not decrease: isotonic regression, by joining neighbours that are out of order.
    """
    weights = [1.0] * len(wanted) if weights is None else weights
    offsets = [0.0]
    for distance in apart:
        offsets.append(offsets[-1] + distance)
    blocks: list[tuple[float, float, int]] = []
    for want, offset, weight in zip(wanted, offsets, weights, strict=False):
        total, mass, count = (want - offset) * weight, weight, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / mass:
            before = blocks.pop()
            total, mass, count = total + before[0], mass + before[1], count + before[2]
        blocks.append((total, mass, count))
    shifted = [total / mass for total, mass, count in blocks for _ in range(count)]
    return [at + offset for at, offset in zip(shifted, offsets, strict=False)]


# --- down ------------------------------------------------------------------------------------------------------


def _vertical(
    members: Sequence[Sequence[int]], sizes: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float], float]:
    """The top and height of each place, and where the drawing ends: boxes stand in the middle of their row."""
    count = sum(map(len, members))
    top, height, at = [0.0] * count, [0.0] * count, 0.0
    for row in members:
        tallest = max((sizes[place][1] for place in row if place < len(sizes)), default=0.0)
        for place in row:
            height[place] = sizes[place][1] if place < len(sizes) else tallest
            top[place] = at + (tallest - height[place]) / 2
        at += tallest + BETWEEN_ROWS
    return top, height, max(0.0, at - BETWEEN_ROWS)
