"""The suite `ablations`: what each part of the compiler is worth, by compiling models without it.

All variants of a model are compiled and saved first; contestants load them, so that they differ in nothing but code.
"""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cases import Case, StoredCase
from benchmarks.contestants import OURS, SAVED_SUFFIX, base_name
from benchmarks.intermediate_traffic import Traffic, traffic_saved
from benchmarks.models.model_cases import model_cases
from benchmarks.statistics import Measured, Row, ratio_of_medians
from foretell.compiler import choose_algorithms, import_model, link_program, simplify
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR
from foretell.support.parts import Part
from foretell.target.resolve import resolve_target

ABLATIONS = "ablations"
MODELS = "resnet18 resnet50 mobilenet_v2 efficientnet_b0 shufflenet_v2 squeezenet bert_base_128 convnext_tiny".split()


@dataclass(frozen=True, slots=True)
class Variant:
    """The compiler, or what is left of it."""

    contestant: str
    without: frozenset[Part] = frozenset()
    winograd_error: float = DEFAULT_WINOGRAD_ERROR

    @property
    def title(self) -> str:
        """What it goes without."""
        return self.contestant.removeprefix(f"{OURS} (").removesuffix(")")


WHOLE = Variant(OURS)
UNFUSED = Variant(f"{OURS} (no fusion)", frozenset({Part.FUSION}))
VARIANTS = (
    UNFUSED,
    Variant(f"{OURS} (no divide and conquer)", frozenset({Part.INNER_SCHEDULES})),
    Variant(f"{OURS} (no Winograd)", winograd_error=0.0),
    Variant(f"{OURS} (no layouts)", frozenset({Part.LAYOUTS})),
)


def ablation_cases() -> list[Case]:
    return [case for case in model_cases() if case.name in MODELS]


def ablate(case: StoredCase, folder: Path) -> tuple[StoredCase, Traffic]:
    """The case with a file for each variant, but for those whose code is that of the whole compiler; and what fusing
    saves. Schedules that were tuned on this machine take no part."""
    target = resolve_target("native")
    graph = simplify(import_model(case.model))
    files = {each.contestant: folder / f"{number}{SAVED_SUFFIX}" for number, each in enumerate((WHOLE, *VARIANTS))}
    programs = {}
    for each in (WHOLE, *VARIANTS):
        chosen = choose_algorithms(graph, target.spec, each.winograd_error)
        model = link_program(chosen, target, without=each.without)
        model.save(files[each.contestant])
        programs[each] = model.program
    compiled = {name: path for name, path in files.items() if name == OURS or not _is_same(path, files[OURS])}
    return replace(case, compiled=compiled), traffic_saved(programs[WHOLE], programs[UNFUSED])


def _is_same(first: Path, second: Path) -> bool:
    """The same program is saved as the same bytes."""
    return filecmp.cmp(first, second, shallow=False)


def with_ablations(rows: Sequence[Row], measured: Sequence[Measured], traffic: Traffic) -> list[Row]:
    """The rows of a race: foretell's tells the traffic, those of variants how many times as long they take."""
    ours = next(one for one in measured if one.contestant == OURS)
    return [
        replace(row, details=row.details | (traffic.details if one is ours else _slowdown(one, ours)))
        for row, one in zip(rows, measured, strict=True)
    ]


def _slowdown(one: Measured, ours: Measured) -> dict[str, float]:
    if base_name(one.contestant) != OURS or not one.turns_ms or not ours.turns_ms:
        return {}
    ratio, (low, high) = ratio_of_medians(one.heats_ms, ours.heats_ms)
    return {"slowdown": ratio, "slowdown_low": low, "slowdown_high": high}
