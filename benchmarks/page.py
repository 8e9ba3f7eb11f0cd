"""docs/benchmarks.md and its plots, from stored results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from benchmarks import ablation_table
from benchmarks.ablation_table import ablation_lines, mean_slowdown
from benchmarks.ablations import ABLATIONS, VARIANTS
from benchmarks.bar_chart import Bar, Group, bar_chart
from benchmarks.contestant_process import ROOT
from benchmarks.contestants import OURS
from benchmarks.machine import summary
from benchmarks.results import Results, read_results
from benchmarks.statistics import CONFIDENCE, ERROR_LIMIT, Row
from benchmarks.suites import COMPILE, SUITES
from benchmarks.table import number_text, races, time_text
from benchmarks.tuned import try_read_tuning
from benchmarks.tuning_section import tuning_section

PAGE = ROOT / "docs/benchmarks.md"
FOLDER = ROOT / "docs/benchmarks"
HEAD = f"""\
# Benchmarks

Written by `python -m benchmarks page` from the result files in [benchmarks/](benchmarks); how they are measured is in
[benchmarks/README.md](../benchmarks/README.md). Milliseconds are medians over turns. The ratio is the best peer's
median divided by foretell's: above 1, foretell is faster than the best peer. Brackets hold its {CONFIDENCE:.0%}
interval; where that holds 1 the race is a tie. Peak is the share of the measured multiply-add peak of so many threads,
foretell's and then the best peer's; Winograd convolutions may exceed 100 %. `!` marks outputs that differ from
onnxruntime's by more than {ERROR_LIMIT:g} of their scale, `~` times during which other processes were busy.
"""


@dataclass(frozen=True, slots=True)
class Race:
    """The rows of one case and number of threads."""

    name: str
    threads: int
    rows: tuple[Row, ...]

    @property
    def ours(self) -> Row | None:
        return next((row for row in self.rows if row.contestant == OURS), None)

    @property
    def best(self) -> Row | None:
        """The best peer."""
        peers = [row for row in self.rows if row.contestant != OURS and row.median_ms is not None]
        return min(peers, key=lambda row: row.median_ms or 0.0, default=None)


def write_page(files: Sequence[Path], page: Path = PAGE, folder: Path = FOLDER) -> None:
    """From the given result files, or from all that are stored; plots that are no longer shown are removed."""
    paths = files or sorted(folder.glob("*.json"))
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    tunings = [found for path in paths if (found := try_read_tuning(path)) is not None]
    results = [read_results(path) for path in paths if try_read_tuning(path) is None]
    found = sorted(((one, suite) for one in results for suite in one.suites()), key=lambda pair: _place(pair[1]))
    sections = [_section(one, suite, folder) for one, suite in found]
    sections += [tuning_section(tuning, folder) for tuning in tunings]
    page.write_text("\n".join([HEAD, *sections]), encoding="utf-8")


def _place(suite: str) -> int:
    """Sections stand in the order in which suites are listed."""
    return list(SUITES).index(suite)


def _section(results: Results, suite: str, folder: Path) -> str:
    found = [Race(name, threads, tuple(rows)) for (name, threads), rows in races(results.of(suite))]
    parts = [
        f"## {suite}: {SUITES[suite].about}",
        f"Commit `{results.commit}`, {results.date}. {summary(results.machine)}.",
    ]
    if suite == ABLATIONS:
        parts += [ablation_table.LEGEND, *_ablation_verdicts(results.of(suite)), _ablation_table(results.of(suite))]
        return "\n\n".join([*parts, *_failures(found)]) + "\n"
    parts += [_verdict(found, threads) for threads in _threads(found)]
    if suite == COMPILE:
        parts.append(_compile_table(found))
    else:
        parts += [_picture(path, folder) for path in _draw(suite, found, folder)]
        parts.append(_table(found))
    return "\n\n".join([*parts, *_failures(found)]) + "\n"


def _threads(found: Sequence[Race]) -> list[int]:
    return sorted({one.threads for one in found})


def _verdict(found: Sequence[Race], threads: int) -> str:
    """How foretell did on the whole."""
    ours = [one.ours for one in found if one.threads == threads]
    rows = [row for row in ours if row is not None and row.ratio_to_best_peer]
    if not rows:
        return f"{_count(threads)}: no results."
    mean = exp(sum(log(row.ratio_to_best_peer or 1.0) for row in rows) / len(rows))
    ties = sum(row.is_tie for row in rows)
    faster = sum(not row.is_tie and (row.ratio_to_best_peer or 0.0) > 1 for row in rows)
    return (
        f"{_count(threads)}: geometric mean of the ratios {mean:.2f}; faster than the best peer in {faster} of "
        f"{len(rows)}, tied in {ties}."
    )


def _ablation_verdicts(rows: Sequence[Row]) -> Iterator[str]:
    """What each part is worth on the whole."""
    for threads in sorted({row.threads for row in rows}):
        means = [(each.title, mean_slowdown(rows, each, threads)) for each in VARIANTS]
        found = "; ".join(f"{title} {mean:.2f}" for title, mean in means if mean is not None)
        yield f"{_count(threads)}, geometric means over the models: {found}."


def _count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


# --- plots ---


def _draw(suite: str, found: Sequence[Race], folder: Path) -> list[Path]:
    """Ratios of all cases; shares of the peak where there are some."""
    counts = _threads(found)
    names = list(dict.fromkeys(one.name for one in found))
    places = {(one.name, one.threads): one for one in found}
    ratios = [Group(name, tuple(_ratio_bar(places.get((name, count))) for count in counts)) for name in names]
    title = f"{suite}: best peer's time / foretell's, above 1 foretell is faster"
    paths = [_save(folder / f"{suite}-ratio.svg", title, [_count(count) for count in counts], ratios, 1.0)]
    for count in counts:
        races_of = [places[name, count] for name in names if (name, count) in places]
        peaks = [Group(one.name, (_peak_bar(one.ours), _peak_bar(one.best))) for one in races_of]
        peaks = [group for group in peaks if any(group.bars)]
        if peaks:
            title = f"{suite}, {_count(count)}: percentage of the multiply-add peak"
            paths.append(_save(folder / f"{suite}-peak-{count}.svg", title, [OURS, "best peer"], peaks, 100.0))
    return paths


def _ratio_bar(one: Race | None) -> Bar | None:
    row = None if one is None else one.ours
    return None if row is None or row.ratio_to_best_peer is None else Bar(row.ratio_to_best_peer, row.interval)


def _peak_bar(row: Row | None) -> Bar | None:
    return None if row is None or row.percent_of_peak is None else Bar(row.percent_of_peak)


def _save(path: Path, title: str, series: Sequence[str], groups: Sequence[Group], line: float) -> Path:
    path.write_text(bar_chart(title, series, groups, line), encoding="utf-8")
    return path


def _picture(path: Path, folder: Path) -> str:
    return f"![{path.stem}]({folder.name}/{path.name})"


# --- tables ---


def _table(found: Sequence[Race]) -> str:
    peers = list(dict.fromkeys(row.contestant for one in found for row in one.rows if row.contestant != OURS))
    lines = [_line("case", "threads", OURS, *peers, "ratio", "peak %"), _line(*["---"] * (5 + len(peers)))]
    for one in found:
        rows = {row.contestant: row for row in one.rows}
        times = [_time(rows.get(name)) for name in (OURS, *peers)]
        lines.append(_line(one.name, str(one.threads), *times, _ratio(one.ours), _peaks(one)))
    return "\n".join(lines)


def _compile_table(found: Sequence[Race]) -> str:
    """One line for each contestant: other numbers than time matter here."""
    heads = ("case", "threads", "contestant", "compile ms", "first inference ms", "peak MB", "saved MB", "ratio")
    lines = [_line(*heads), _line(*["---"] * len(heads))]
    for one in found:
        for row in one.rows:
            details = [number_text(row.details.get(name)) for name in ("first_ms", "peak_mb", "saved_mb")]
            lines.append(_line(one.name, str(one.threads), row.contestant, _time(row), *details, _ratio(row)))
    return "\n".join(lines)


def _ablation_table(rows: Sequence[Row]) -> str:
    heads = [_line(*ablation_table.HEADS), _line(*["---"] * len(ablation_table.HEADS))]
    return "\n".join([*heads, *(_line(*cells) for cells in ablation_lines(rows))])


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _time(row: Row | None) -> str:
    if row is None:
        return ""
    return "failed" if row.median_ms is None else time_text(row) + (" !" if row.is_wrong else "")


def _ratio(row: Row | None) -> str:
    if row is None or row.ratio_to_best_peer is None or row.interval is None:
        return ""
    low, high = row.interval
    return f"{row.ratio_to_best_peer:.2f} [{low:.2f}, {high:.2f}]" + (" tie" if row.is_tie and low < high else "")


def _peaks(one: Race) -> str:
    shares = [
        row.percent_of_peak for row in (one.ours, one.best) if row is not None and row.percent_of_peak is not None
    ]
    return " / ".join(f"{share:.0f}" for share in shares)


def _failures(found: Sequence[Race]) -> list[str]:
    failed = [
        f"- {one.name}, {_count(one.threads)}, {row.contestant}: {row.error}"
        for one in found
        for row in one.rows
        if row.error is not None
    ]
    return ["Failed:\n" + "\n".join(failed)] if failed else []
