"""Horizontal bars as SVG text: one group of bars for each label, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#2f7ed8", "#e08214", "#4d9a4a", "#9467bd")
LABEL_WIDTH, PLOT_WIDTH, NUMBER_WIDTH = 210, 460, 60
BAR_HEIGHT, BAR_GAP, GROUP_GAP, TOP, BOTTOM = 11, 2, 8, 46, 26
STYLE = (
    "text{font:12px sans-serif;fill:#24292f}.faint{stroke:#8c959f;stroke-width:1}.mark{stroke:#24292f;stroke-width:1.2}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.mark{stroke:#e6edf3}}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    value: float
    interval: tuple[float, float] | None = None
    """Drawn as a whisker."""


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one label, one for each series; None where a series has none."""

    label: str
    bars: tuple[Bar | None, ...]


def bar_chart(title: str, series: Sequence[str], groups: Sequence[Group], line: float | None = None) -> str:
    """`line` is a value to compare with, drawn through all groups."""
    longest = max([bar.value for group in groups for bar in group.bars if bar is not None] + [line or 0.0, 1e-9])
    scale = PLOT_WIDTH / (1.05 * longest)
    group_height = len(series) * (BAR_HEIGHT + BAR_GAP) + GROUP_GAP
    width, height = LABEL_WIDTH + PLOT_WIDTH + NUMBER_WIDTH, TOP + group_height * len(groups) + BOTTOM
    parts = [f'<text x="8" y="17" font-weight="bold">{escape(title)}</text>', *legend(series)]
    for number, group in enumerate(groups):
        parts += _group(group, TOP + number * group_height, scale)
    if line is not None:
        x = LABEL_WIDTH + line * scale
        parts.append(f'<line class="faint" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{line:g}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>\n"])


def legend(series: Sequence[str]) -> list[str]:
    """Names beside their colours, in one line under the title."""
    parts: list[str] = []
    x = 8
    for name, colour in zip(series, COLOURS, strict=False):
        parts.append(f'<rect x="{x}" y="25" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="34">{escape(name)}</text>')
        x += 40 + 7 * len(name)
    return parts


def _group(group: Group, top: float, scale: float) -> list[str]:
    middle = top + len(group.bars) * (BAR_HEIGHT + BAR_GAP) / 2 + 3
    parts = [f'<text x="{LABEL_WIDTH - 8}" y="{middle:.1f}" text-anchor="end">{escape(group.label)}</text>']
    for number, (bar, colour) in enumerate(zip(group.bars, COLOURS, strict=False)):
        if bar is not None:
            parts += _bar(bar, colour, top + number * (BAR_HEIGHT + BAR_GAP), scale)
    return parts


def _bar(bar: Bar, colour: str, y: float, scale: float) -> list[str]:
    right, middle = LABEL_WIDTH + bar.value * scale, y + BAR_HEIGHT / 2
    parts = [
        f'<rect x="{LABEL_WIDTH}" y="{y:.1f}" width="{bar.value * scale:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>'
    ]
    if bar.interval is not None:
        low, high = (LABEL_WIDTH + min(end * scale, PLOT_WIDTH + 8) for end in bar.interval)
        right = max(right, high)
        parts.append(f'<line class="mark" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>')
    text = f"{bar.value:.0f}" if bar.value >= 10 else f"{bar.value:.2f}"
    parts.append(f'<text x="{right + 4:.1f}" y="{middle + 4:.1f}">{text}</text>')
    return parts
