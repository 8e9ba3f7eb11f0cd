"""A picture of a compiled model: every kernel a box with the nests inside it, the tensors between kernels as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log10

from foretell.compiler import Lowered
from foretell.graph.nodes import Graph
from foretell.partition.choose_groups import Decision
from foretell.report.group_boxes import Box, GroupGraph, Tensor, box_text, group_boxes, saving
from foretell.report.html_parts import html_table, html_text
from foretell.report.layer_graph import Layout, Link, layer_graph, spread
from foretell.report.predict_model import Prediction
from foretell.report.units import percent, plural, short_number

MOST_BOXES = 600
"""Kernels that are drawn: more than any network of the benchmarks has, and few enough for every browser."""
BOX_WIDTH, PILL_HEIGHT, LINE, MARGIN = 272.0, 26.0, 17.0, 24.0
INDENT = 12.0
NAME_LETTERS = 26
"""Letters of a name that fit beside a time; in a line of its own, ten more."""
PORT_REACH = 0.42
"""How far from its middle a box is met by lines, as a part of its width."""
BETWEEN_PORTS = 16.0
BAR_HEIGHT = 3.0
ARROW = 7.0

GROUPS_STYLE = """
.graph{--line:#8c959f;--box:#f6f8fa;--edge:#d0d7de;--group:#ddf4ff;--group-edge:#54aeff;--group-text:#0550ae;
--python:#fff8c5;--python-edge:#d4a72c;--pill:#eaeef2;--quiet:#59636e;--page:#fff;
max-height:56rem;overflow:auto;border:1px solid var(--edge);border-radius:10px;background:var(--page)}
.graph svg{display:block;margin:0 auto}
.graph text{font:12px system-ui,sans-serif}
.graph .name{font:12px ui-monospace,monospace}
.graph .quiet{fill:var(--quiet)}.graph .size{fill:var(--quiet);font-size:11px}
.graph .size{pointer-events:none;paint-order:stroke;stroke:var(--page);stroke-width:4px;stroke-linejoin:round}
.graph .box{fill:var(--box);stroke:var(--edge)}
.graph .group .box{fill:var(--group);stroke:var(--group-edge);stroke-width:1.5}
.graph .group .head{fill:var(--group-text);font-weight:600}
.graph .python .box{fill:var(--python);stroke:var(--python-edge)}
.graph .input .box,.graph .output .box{fill:var(--pill);stroke:none}
.graph .wire{fill:none;stroke:var(--line);stroke-opacity:.75}.graph .tip{fill:var(--line)}
.graph g.wires:hover .wire{stroke:var(--group-edge);stroke-opacity:1}
.graph g.wires:hover .tip{fill:var(--group-edge)}
details{margin:1rem 0}summary{cursor:pointer}
@media(prefers-color-scheme:dark){
.graph{--line:#6e7681;--box:#161b22;--edge:#30363d;--group:#0c2d4d;--group-edge:#388bfd;--group-text:#79c0ff;
--python:#2e2a14;--python-edge:#9e7700;--pill:#21262d;--quiet:#9198a1;--page:#0d1117}}
"""


def draw_groups(graph: Graph, lowered: Lowered, prediction: Prediction, colours: dict[str, str]) -> str:
    """The picture in a box that scrolls, and below it what was fused and what was not, with the reasons."""
    found = group_boxes(graph, lowered, prediction, MOST_BOXES)
    left_out = f"<p>{plural(found.left_out, 'more kernel')} are not drawn.</p>" if found.left_out else ""
    return "".join(
        (
            f"<p>{_summary(found)}</p>",
            f'<div class="graph" tabindex="0">{_picture(found, colours)}</div>',
            left_out,
            _fused(lowered.decisions),
            _apart(lowered.decisions),
        )
    )


def _summary(found: GroupGraph) -> str:
    groups = [box for box in found.boxes if box.kind == "group"]
    inside = sum(len(box.nests) for box in groups)
    more = sum(box.more for box in found.boxes)
    kernels = sum(box.kind in ("nest", "group") for box in found.boxes) + more
    parts = f", {more} of which fill borders, or parts beside others, and share their boxes" if more else ""
    fused = (
        f"<b>{plural(len(groups), 'kernel')}</b> in blue: {inside} nests that would else be kernels of their own. "
        if groups
        else "Each is one nest. "
    )
    return (
        f"{plural(kernels, 'kernel')} from top to bottom{parts}. {fused}Lines are tensors in memory, the thicker the "
        "larger; bars show how long a kernel takes, in the colour of what binds it. Point at anything to read more."
    )


# --- the picture -----------------------------------------------------------------------------------------------


def _picture(found: GroupGraph, colours: dict[str, str]) -> str:
    layout = layer_graph([_size(box) for box in found.boxes], found.wires)
    width, height = layout.size[0] + 2 * MARGIN, layout.size[1] + 2 * MARGIN
    longest = max((box.seconds or 0.0 for box in found.boxes), default=0.0)
    wires = _wires(layout, found)
    boxes = (_draw(box, _Place.of(layout, n), longest, colours) for n, box in enumerate(found.boxes))
    return (
        f'<svg viewBox="{-MARGIN:g} {-MARGIN:g} {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="img" aria-label="kernels and the tensors between them">{"".join((*wires, *boxes))}</svg>'
    )


def _size(box: Box) -> tuple[float, float]:
    if box.kind in ("input", "output"):
        return min(BOX_WIDTH, 40.0 + 7.3 * min(len(box.name), NAME_LETTERS)), PILL_HEIGHT
    return BOX_WIDTH, LINE * (1 + len(_lines(box))) + 16.0


def _lines(box: Box) -> list[tuple[str, str]]:
    """What stands below the head of a box, each line with its class."""
    if box.decision is None:
        return [("quiet", _shortened(box.location, NAME_LETTERS))] if box.location or box.more else []
    nests = [("name", _shortened(nest, NAME_LETTERS + 9)) for nest in box.nests]
    saved = saving(box.decision)
    tail = "" if saved is None else f", {percent(saved)} less"
    return [*nests, ("quiet", _shortened(box.decision.reason + tail, NAME_LETTERS + 16))]


def _shortened(text: str, most: int) -> str:
    """Both ends of a name tell more than its middle."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"


@dataclass(frozen=True, slots=True)
class _Place:
    left: float
    top: float
    width: float
    height: float

    @classmethod
    def of(cls, layout: Layout, number: int) -> _Place:
        width = layout.width[number]
        return cls(layout.x[number] - width / 2, layout.top[number], width, layout.height[number])


def _draw(box: Box, place: _Place, longest: float, colours: dict[str, str]) -> str:
    inside = "".join(_inside(box, place, longest, colours))
    return f'<g class="{box.kind}"><title>{html_text(box_text(box))}</title>{inside}</g>'


def _inside(box: Box, place: _Place, longest: float, colours: dict[str, str]) -> Iterator[str]:
    left, top = place.left, place.top
    if box.kind in ("input", "output"):
        yield _rectangle(left, top, place.width, place.height, place.height / 2)
        yield _words(left + place.width / 2, top + 17, "name", _shortened(box.name, NAME_LETTERS), "middle")
        return
    yield _rectangle(left, top, place.width, place.height, 7)
    head = f"{len(box.nests)} nests, one kernel" if box.nests else _shortened(box.name, NAME_LETTERS)
    yield _words(left + INDENT, top + 20, "head" if box.nests else "name", head)
    if box.seconds is not None:
        yield _words(left + place.width - INDENT, top + 20, "quiet", _microseconds(box.seconds), "end")
    if box.more:
        yield _words(left + place.width - INDENT, top + 20 + LINE, "quiet", f"+ {plural(box.more, 'kernel')}", "end")
    for number, (kind, line) in enumerate(_lines(box), 1):
        yield _words(left + INDENT, top + 20 + number * LINE, kind, line)
    if box.seconds is not None and longest > 0:
        length = (place.width - 2 * INDENT) * box.seconds / longest
        yield (
            f'<rect x="{left + INDENT:.1f}" y="{top + place.height - BAR_HEIGHT - 3:.1f}" width="{length:.1f}" '
            f'height="{BAR_HEIGHT:g}" rx="1.5" fill="{colours.get(box.binds, "#7f7f7f")}"/>'
        )


def _rectangle(left: float, top: float, width: float, height: float, radius: float) -> str:
    return f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}"/>'


def _words(x: float, y: float, kind: str, text: str, anchor: str = "start") -> str:
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{at}>{html_text(text)}</text>'


def _microseconds(seconds: float) -> str:
    if seconds < 1e-6:
        return "< 1 us"
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


# --- lines -----------------------------------------------------------------------------------------------------


def _wires(layout: Layout, found: GroupGraph) -> Iterator[str]:
    """For each tensor the parts of its line, with arrows where they end; then their sizes, where lines begin."""
    starts, ends = _ports(layout, len(found.boxes), upper=True), _ports(layout, len(found.boxes), upper=False)
    parts: list[list[str]] = [[] for _ in found.wires]
    labels: dict[int, tuple[float, float]] = {}
    for number, link in enumerate(layout.links):
        x0, x1 = starts[number], ends[number]
        y0, y1 = layout.top[link.upper] + layout.height[link.upper], layout.top[link.lower]
        tensor, line = found.tensors[link.wire], parts[link.wire]
        if link.lower < len(found.boxes):
            line.append(_curve(x0, y0, x1, y1 - ARROW, tensor))
            line.append(f'<path class="tip" d="M{x1 - 4:.1f} {y1 - ARROW:.1f}h8l-4 {ARROW:g}z"/>')
        else:
            line += [_curve(x0, y0, x1, y1, tensor), _passing(layout, link, tensor)]
        if link.upper == found.wires[link.wire].source:
            labels[link.wire] = max(labels.get(link.wire, (x0, y0)), (x0, y0))
    for number, tensor in enumerate(found.tensors):
        title = html_text(f"{tensor.name}\n{tensor.shape}, {_bytes(tensor)}")
        yield f'<g class="wires"><title>{title}</title>{"".join(parts[number])}</g>'
    for number, (x, y) in labels.items():
        yield _words(x + 7, y + 15, "size", _bytes(found.tensors[number]))


def _curve(x0: float, y0: float, x1: float, y1: float, tensor: Tensor) -> str:
    middle = (y0 + y1) / 2
    path = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return f'<path class="wire" stroke-width="{_thickness(tensor):.1f}" d="{path}"/>'


def _passing(layout: Layout, link: Link, tensor: Tensor) -> str:
    x, top = layout.x[link.lower], layout.top[link.lower]
    path = f"M{x:.1f} {top:.1f}v{layout.height[link.lower]:.1f}"
    return f'<path class="wire" stroke-width="{_thickness(tensor):.1f}" d="{path}"/>'


def _thickness(tensor: Tensor) -> float:
    """A step for each power of ten from a kilobyte on."""
    return min(4.5, max(1.0, log10(max(1, tensor.size_bytes or 1)) - 2.0))


def _bytes(tensor: Tensor) -> str:
    return "?" if tensor.size_bytes is None else short_number(tensor.size_bytes, "B")


def _ports(layout: Layout, boxes: int, *, upper: bool) -> list[float]:
    """Where lines leave their upper ends, or meet the lower ones: straight down where the two ends allow for it."""
    found = [0.0] * len(layout.links)
    at: dict[int, list[tuple[float, int]]] = {}
    for number, link in enumerate(layout.links):
        here, there = (link.upper, link.lower) if upper else (link.lower, link.upper)
        low, high = _reach(layout, here, boxes)
        other_low, other_high = _reach(layout, there, boxes)
        wanted = (max(low, other_low) + min(high, other_high)) / 2
        at.setdefault(here, []).append((min(max(wanted, low), high), number))
    for place, lines in at.items():
        lines.sort(key=lambda line: (line[0], layout.x[_other_end(layout.links[line[1]], upper)]))
        low, high = _reach(layout, place, boxes)
        apart = min(BETWEEN_PORTS, (high - low) / max(1, len(lines) - 1))
        for (_, number), x in zip(lines, _within([x for x, _ in lines], apart, low, high), strict=True):
            found[number] = x
    return found


def _other_end(link: Link, upper: bool) -> int:
    return link.lower if upper else link.upper


def _reach(layout: Layout, place: int, boxes: int) -> tuple[float, float]:
    """The part of a place's width where lines may meet it."""
    reach = PORT_REACH * layout.width[place] if place < boxes else 0.0
    return layout.x[place] - reach, layout.x[place] + reach


def _within(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Positions so far from each other, near those wanted, from low to high."""
    found = spread(wanted, [apart] * (len(wanted) - 1))
    last = len(found) - 1
    return [min(max(x, low + n * apart), high - (last - n) * apart) for n, x in enumerate(found)]


# --- tables ----------------------------------------------------------------------------------------------------


def _fused(decisions: Sequence[Decision]) -> str:
    rows = [
        (
            " + ".join(f"<code>{html_text(name)}</code>" for name in decision.names),
            html_text(decision.reason),
            *map(_table_time, (decision.alone_s, decision.fused_s)),
        )
        for decision in decisions
        if decision.is_fused
    ]
    columns = ("nests", "how", "#apart, us", "#fused, us")
    return _folded(f"{plural(len(rows), 'kernel')} of several nests", columns, rows)


def _apart(decisions: Sequence[Decision]) -> str:
    rows = [
        (
            *(f"<code>{html_text(name)}</code>" for name in (decision.names[0], decision.names[-1])),
            html_text(decision.reason),
            *map(_table_time, (decision.alone_s, decision.fused_s)),
        )
        for decision in decisions
        if not decision.is_fused
    ]
    rows = list(dict.fromkeys(rows))
    columns = ("a nest", "the last that reads it", "why they stay apart", "#apart, us", "#fused, us")
    return _folded(f"{plural(len(rows), 'pair')} of nests that stay apart", columns, rows)


def _folded(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table behind its title; nothing if it is empty."""
    summary = f"<summary>{title}, and why; times are of one core</summary>"
    return f"<details>{summary}{html_table(columns, rows)}</details>" if rows else ""


def _table_time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"
