from __future__ import annotations

from benchmarks.candidate_rate import candidates_per_second
from benchmarks.operators import operator_cases
from foretell.compiler import import_model, lower_program, simplify
from foretell.target.resolve import resolve_target


def test_a_hundred_thousand_plans_a_second() -> None:
    """What is promised; a core of 2021 makes about half a million."""
    target = resolve_target("icelake-server")
    cases = [case for case in operator_cases() if case.name in ("conv1x1_256_512_56_stride2", "linear_128x768x768")]
    graphs = [simplify(import_model(case.build().model())) for case in cases]
    nests = [nest for graph in graphs for nest, _ in lower_program(graph, target).nests]
    assert candidates_per_second(nests, target.spec) > 100_000
