"""From a model file to measured schedules of its nests."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from foretell.compiler import choose_algorithms, import_model, lower_program, simplify
from foretell.frontend.import_onnx import Shapes, Source
from foretell.search.records import Records, records_path
from foretell.support.errors import UsageError
from foretell.support.progress import Steps
from foretell.target.resolve import resolve_target
from foretell.target.threads import default_threads
from foretell.tune.tune_nests import Tuned, tune_nests


@dataclass(frozen=True, slots=True)
class TunedLine:
    """One nest of the model."""

    nest: str
    count: int
    predicted_ms: float
    ratio: float
    """Of the best schedule's time to that of the predicted one."""
    tried: int
    failed: int
    space: int


@dataclass(frozen=True, slots=True)
class TuneReport:
    lines: tuple[TunedLine, ...]
    path: str

    @property
    def predicted_ms(self) -> float:
        return sum(line.count * line.predicted_ms for line in self.lines)

    @property
    def best_ms(self) -> float:
        return sum(line.count * line.predicted_ms * line.ratio for line in self.lines)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "predicted_ms": self.predicted_ms, "best_ms": self.best_ms}


def tune_model(
    source: Source,
    budget_s: float,
    *,
    threads: int | None = None,
    shapes: Shapes | None = None,
    path: Path | None = None,
    export: Path | None = None,
    progress: Steps | None = None,
) -> TuneReport:
    """Measure schedules of a model's nests on this machine, the longest nests first."""
    target, count = resolve_target("native"), default_threads() if threads is None else threads
    place = records_path() if path is None else path
    if place is None:
        raise UsageError(
            "there is no place for records",
            expected="a file, or a cache",
            got="FORETELL_CACHE_DIR turns the cache off",
            hint="name a file with --records",
        )
    if progress is not None:
        progress.step("import")
    graph = choose_algorithms(simplify(import_model(source, shapes=shapes)), target.spec)
    with Records(place, target, count) as records:
        found = tune_nests(lower_program(graph, target).nests, target, count, budget_s, records, progress)
        if export is not None:
            export.write_text("".join(f"{line}\n" for line in records.export()), encoding="utf-8")
    return TuneReport(tuple(map(_line, found)), str(place))


def _line(tuned: Tuned) -> TunedLine:
    return TunedLine(
        tuned.nest.title,
        tuned.count,
        1e3 * tuned.predicted_s,
        tuned.best_ratio,
        tuned.tried,
        tuned.failed,
        tuned.space,
    )
