"""What the terminal shows."""

from __future__ import annotations

import io

from rich.console import Console

from benchmarks.print_results import print_results
from benchmarks.results import Results


def printed(results: Results) -> str:
    output = io.StringIO()
    print_results(results, Console(file=output, width=140))
    return output.getvalue()


def test_times_ratios_ties_marks_and_failures(results) -> None:
    lines = [" ".join(line.split()) for line in printed(results).splitlines()]
    assert "conv 1 foretell 2 (1.9) 0.50 0.47-0.53 50 1e-07" in lines
    assert "onnxruntime 1 (0.98) best peer 1.00-1.00 100 0e+00" in lines
    assert any(line.startswith("softmax 1 foretell 1 (0.97) 1.00 tie") for line in lines)
    assert any(line.startswith("mnn 1.5 (1.4) 0.67") and line.endswith("3e-03 !") for line in lines)
    assert "openvino - RuntimeError: no such <thing>" in lines


def test_the_legend_says_what_a_ratio_is(results) -> None:
    assert "above 1 is faster than the best peer" in " ".join(printed(results).split())


def test_nothing_measured_prints_nothing(results) -> None:
    assert not printed(Results(results.machine, "abc", "2026-11-16", ()))
