"""Sums of products, explained."""

from __future__ import annotations

import pytest

from foretell.compiler import lower_program
from foretell.report.choices import REASONS, describe_choices, in_words
from foretell.search.plan_terms import TIMES
from foretell.search.plans import Plan, TileShape
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch


def test_every_sum_has_a_plan_and_others_that_were_not_better() -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op("MatMul", sketch.data(96, 512), sketch.data(512, 640, name="w")))
    target = resolve_target("icelake-server")
    (choice,) = describe_choices(lower_program(graph, target), target)
    assert choice.nest == "f32[96, 512], f32[512, 640] -> f32[96, 640]" and choice.count == 1
    assert choice.how.startswith("tiles of ") and choice.space > 100
    assert set(choice.terms_s) == set(TIMES) and 1e-6 < choice.low_s < choice.seconds < choice.high_s < 1e-2
    assert len(choice.rejected) == 3 and all(other.slower >= 1.0 for other in choice.rejected)
    assert {other.why for other in choice.rejected} <= set(REASONS.values())


def test_what_has_no_sum_has_no_choice() -> None:
    sketch = Sketch()
    target = resolve_target("znver3")
    assert describe_choices(lower_program(sketch.graph(sketch.op("Exp", sketch.data(9))), target), target) == ()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(TileShape(6, 64)), "tiles of 6 x 64"),
        (Plan(TileShape(7, 48), "s0", 4), "tiles of 7 x 48, in blocks of 4"),
        (Plan(TileShape(7, 48), sum_block=256), "tiles of 7 x 48, sums in blocks of 256"),
        (Plan(TileShape(6, 16), copies=True), "tiles of 6 x 16, vectors copied side by side"),
    ],
)
def test_in_words(plan: Plan, words: str) -> None:
    assert in_words(plan) == words
