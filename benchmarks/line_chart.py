"""Lines as SVG text, shares over a logarithmic axis of seconds; readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from benchmarks.bar_chart import COLOURS, STYLE, legend

LEFT, RIGHT, TOP, BOTTOM = 52, 16, 46, 42
PLOT_WIDTH, PLOT_HEIGHT = 620, 300
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
LINE_STYLE = ".grid{stroke:#8c959f;stroke-width:0.5;stroke-opacity:0.5}"


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    middle: tuple[float, ...]
    """A share for each second of the chart."""
    band: tuple[tuple[float, float], ...] = ()
    """From where to where, behind the line; a line without is dashed, and lies on top."""


def line_chart(title: str, axis: str, seconds: Sequence[float], lines: Sequence[Line]) -> str:
    low, high = log10(seconds[0]), log10(seconds[-1])

    def x_of(second: float) -> float:
        return LEFT + PLOT_WIDTH * (log10(second) - low) / (high - low)

    width, height = LEFT + PLOT_WIDTH + RIGHT, TOP + PLOT_HEIGHT + BOTTOM
    parts = [f'<text x="8" y="17" font-weight="bold">{escape(title)}</text>', *legend([line.name for line in lines])]
    parts += [*_grid(low, high, x_of), *_axis_label(axis)]
    places = [x_of(second) for second in seconds]
    coloured = list(zip(lines, COLOURS, strict=False))
    parts += [_band(line, colour, places) for line, colour in coloured if line.band]
    parts += [_polyline(line, colour, places) for line, colour in sorted(coloured, key=lambda each: not each[0].band)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<style>{STYLE}{LINE_STYLE}</style>", *parts, "</svg>\n"])


def _y_of(share: float) -> float:
    return TOP + PLOT_HEIGHT * (1 - share)


def _grid(low: float, high: float, x_of: Callable[[float], float]) -> list[str]:
    """A line for every power of ten, and one for every quarter."""
    parts: list[str] = []
    for second in (10.0**power for power in range(ceil(low - 1e-9), floor(high + 1e-9) + 1)):
        x = x_of(second)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + PLOT_HEIGHT}"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP + PLOT_HEIGHT + 16}" text-anchor="middle">{second:g}</text>')
    for share in SHARES:
        y = _y_of(share)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    return parts


def _axis_label(text: str) -> list[str]:
    x, y = LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 34
    return [f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>']


def _band(line: Line, colour: str, places: Sequence[float]) -> str:
    above = [(x, high) for x, (_, high) in zip(places, line.band, strict=True)]
    below = [(x, low) for x, (low, _) in zip(places, line.band, strict=True)]
    return f'<polygon points="{_points([*above, *reversed(below)])}" fill="{colour}" fill-opacity="0.18"/>'


def _polyline(line: Line, colour: str, places: Sequence[float]) -> str:
    points = _points(list(zip(places, line.middle, strict=True)))
    dashes = "" if line.band else ' stroke-dasharray="7 4"'
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{_y_of(share):.1f}" for x, share in points)
