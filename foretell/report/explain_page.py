"""One page that explains a compiled model: a roofline, its kernels as a picture and with their terms, and how sums are
computed.

It is complete in itself: no scripts, no fonts, nothing from elsewhere. What comes from a model is only ever text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log10

from foretell.report.choices import Choice
from foretell.report.draw_groups import GROUPS_STYLE
from foretell.report.html_parts import html_table, html_text
from foretell.report.predict_model import KernelPrediction, Prediction
from foretell.report.units import percent, plural, short_number
from foretell.target.hardware_spec import HardwareSpec

COLOURS = {
    "instructions": "#2f7ed8",
    "cache 2": "#4d9a4a",
    "cache 3": "#e08214",
    "memory": "#c0392b",
    "barrier": "#9467bd",
}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 380, 64, 44, 16, 150
BAR_WIDTH = 160
STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#24292f;background:#fff}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2.2rem}
p.lead{font-size:1.05rem;margin-top:.2rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;border-bottom:2px solid #8c959f;padding:.25rem .6rem}
td{border-bottom:1px solid #d8dee4;padding:.25rem .6rem;vertical-align:top}
td.number,th.number{text-align:right;white-space:nowrap}
code{font-family:ui-monospace,monospace;font-size:.9em}
svg text{font:12px system-ui,sans-serif;fill:currentColor}
svg .grid{stroke:#d8dee4}svg .roof{stroke:currentColor;stroke-width:1.6;fill:none}
.legend span{display:inline-block;margin-right:1.1rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem;vertical-align:-.08rem}
@media(prefers-color-scheme:dark){
body{color:#e6edf3;background:#0d1117}td,svg .grid{border-color:#30363d;stroke:#30363d}}
"""


def explain_page(
    title: str, prediction: Prediction, choices: Sequence[Choice], spec: HardwareSpec, picture: str = ""
) -> str:
    """The HTML of the page; `picture` is what `draw_groups` made."""
    low, high = prediction.interval_s
    body = [
        f"<h1>{html_text(title)}</h1>",
        f'<p class="lead">predicted: <b>{prediction.seconds * 1e3:.3g} ms</b> a call, between {low * 1e3:.3g} and '
        f"{high * 1e3:.3g} four times in five, on {plural(prediction.threads, 'thread')} of "
        f"<code>{html_text(prediction.target)}</code></p>",
        "<h2>Roofline</h2>",
        "<p>Each dot is a kernel, as large as its share of the time: operations per byte that it touches, and how many "
        "it does in a second. Lines are what the cores, the caches and the memory allow for.</p>",
        _roofline(prediction, spec),
        *(["<h2>From input to output</h2>", picture] if picture else []),
        "<h2>Kernels</h2>",
        _legend(),
        _kernels(prediction),
    ]
    if choices:
        body += ["<h2>Sums of products</h2>", _choices(choices)]
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html_text(title)}</title>'
    view = '<meta name="viewport" content="width=device-width">'
    return f"{head}{view}<style>{STYLE}{GROUPS_STYLE}</style></head><body>{''.join(body)}</body></html>\n"


def _colour(term: str) -> str:
    return COLOURS.get(term, "#7f7f7f")


# --- the roofline ----------------------------------------------------------------------------------------------


def _roofline(prediction: Prediction, spec: HardwareSpec) -> str:
    peak = spec.peak_flops_per_s(cores=min(prediction.threads, spec.cores)) / 1e9
    shown = [kernel for kernel in prediction.kernels if kernel.time.flops > 0]
    intensities = [kernel.time.flops / kernel.time.bytes_touched for kernel in shown]
    rates = [kernel.time.flops / kernel.time.seconds / 1e9 for kernel in shown]
    axes = _Axes(
        (min([0.1, *intensities]) / 1.5, max([100.0, *intensities]) * 1.5), (min([peak / 50, *rates]) / 1.5, peak * 2)
    )
    parts = [*axes.grid()]
    for name, bandwidth in _bandwidths(spec, prediction.threads):
        parts += axes.roof(name, bandwidth / 1e9, peak)
    for kernel, intensity, rate in zip(shown, intensities, rates, strict=True):
        radius = 3 + 14 * (kernel.seconds / prediction.seconds) ** 0.5
        label = f"{kernel.name}: {rate:.3g} GFLOP/s, {percent(kernel.seconds / prediction.seconds)} of the time"
        parts.append(
            f'<circle cx="{axes.x(intensity):.1f}" cy="{axes.y(rate):.1f}" r="{radius:.1f}" fill-opacity=".55" '
            f'fill="{_colour(kernel.time.binds)}"><title>{html_text(label)}</title></circle>'
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(parts)}</svg>'


def _bandwidths(spec: HardwareSpec, threads: int) -> Iterator[tuple[str, float]]:
    """Bytes a second of all threads."""
    cores = min(threads, spec.cores)
    for level in range(1, len(spec.caches)):
        yield f"cache {level + 1}", cores * spec.cache_bandwidth_bytes_per_s(level)
    yield "memory", min(spec.dram_bandwidth_bytes_per_s, cores * spec.dram_core_bandwidth_bytes_per_s)


class _Axes:
    """Two logarithmic axes: operations per byte, and 1e9 operations a second."""

    def __init__(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        self.across, self.up = across, up

    def x(self, value: float) -> float:
        low, high = map(log10, self.across)
        return LEFT + (log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = map(log10, self.up)
        return HEIGHT - BOTTOM - (log10(value) - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    def grid(self) -> Iterator[str]:
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for value in _powers(self.across):
            yield f'<line class="grid" x1="{self.x(value):.1f}" x2="{self.x(value):.1f}" y1="{TOP}" y2="{bottom}"/>'
            yield f'<text x="{self.x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
        for value in _powers(self.up):
            yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{self.y(value):.1f}" y2="{self.y(value):.1f}"/>'
            yield f'<text x="{LEFT - 6}" y="{self.y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        yield f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">operations per byte</text>'
        middle = (TOP + bottom) / 2
        yield f'<text transform="rotate(-90 14 {middle})" x="14" y="{middle}" text-anchor="middle">GFLOP/s</text>'

    def roof(self, name: str, bandwidth: float, peak: float) -> Iterator[str]:
        """A slope up to the peak, and on along it."""
        low, high = self.across
        start = max(low, self.up[0] / bandwidth)
        ridge = min(max(start, peak / bandwidth), high)
        points = [
            (start, bandwidth * start),
            (ridge, min(peak, bandwidth * ridge)),
            (high, min(peak, bandwidth * high)),
        ]
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        yield f'<polyline class="roof" points="{path}"/>'
        middle = (start * ridge) ** 0.5
        x, y, anchor = (8, 14, "start") if name == "memory" else (-6, -6, "end")
        yield (
            f'<text x="{self.x(middle) + x:.1f}" y="{self.y(bandwidth * middle) + y:.1f}" text-anchor="{anchor}">'
            f"{escape(name)}, {short_number(int(bandwidth * 1e9), 'B/s')}</text>"
        )


def _powers(span: tuple[float, float]) -> list[float]:
    return [10.0**power for power in range(-6, 9) if span[0] <= 10.0**power <= span[1]]


# --- tables ----------------------------------------------------------------------------------------------------


def _legend() -> str:
    parts = (f'<span><i style="background:{colour}"></i>{name}</span>' for name, colour in COLOURS.items())
    return f'<p class="legend">{"".join(parts)}</p>'


def _kernels(prediction: Prediction) -> str:
    ordered = sorted(prediction.kernels, key=lambda kernel: -kernel.seconds)
    longest = max((sum(kernel.time.terms.values()) * kernel.count for kernel in ordered), default=1.0)
    rows = [
        (
            f"<code>{html_text(kernel.name)}</code>",
            html_text(kernel.location),
            str(kernel.count),
            f"{kernel.seconds * 1e3:.3f}",
            percent(kernel.seconds / prediction.seconds),
            _terms_bar(kernel, longest),
            html_text(kernel.time.binds),
            percent(kernel.time.roofline_s / kernel.time.seconds),
        )
        for kernel in ordered
    ]
    return html_table(("kernel", "ONNX node", "#times", "#ms", "#share", "terms", "binds", "#of the roofline"), rows)


def _terms_bar(kernel: KernelPrediction, longest: float) -> str:
    parts: list[str] = []
    x = 0.0
    for name, seconds in kernel.time.terms.items():
        width = seconds * kernel.count / longest * BAR_WIDTH
        label = f"{name}: {seconds * kernel.count * 1e3:.3g} ms"
        parts.append(
            f'<rect x="{x:.2f}" width="{width:.2f}" height="14" fill="{_colour(name)}"><title>{label}</title></rect>'
        )
        x += width
    return f'<svg width="{BAR_WIDTH}" height="14">{"".join(parts)}</svg>'


def _choices(choices: Sequence[Choice]) -> str:
    rows = [
        (
            f"<code>{html_text(choice.nest)}</code>",
            str(choice.count),
            html_text(choice.how),
            str(choice.space),
            f"{choice.seconds * 1e3:.3f}",
            "<br>".join(html_text(f"{other.how}: {other.slower:.2f}x, {other.why}") for other in choice.rejected),
        )
        for choice in choices
    ]
    return html_table(("sum of products", "#times", "how", "#of plans", "#ms", "best of other tiles"), rows)
