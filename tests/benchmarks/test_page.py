"""The page and its plots, from a result file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.bar_chart import Bar, Group, bar_chart
from benchmarks.page import write_page
from benchmarks.results import read_results, write_results


def test_results_are_read_as_they_were_written(results, tmp_path: Path) -> None:
    write_results(tmp_path / "deep/results.json", results)
    assert read_results(tmp_path / "deep/results.json") == results


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"rows": []}')
    with pytest.raises(ValueError, match=r"other\.json is not a result file"):
        read_results(tmp_path / "other.json")


def test_the_page_is_written_from_stored_results(results, tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    write_results(folder / "all.json", results)
    (folder / "gone-ratio.svg").write_text("old")
    write_page([], tmp_path / "benchmarks.md", folder)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "Commit `abc123`, 2026-11-16. Some CPU, 2 cores" in text
    assert "| conv | 1 | 2 | 1 | 0.50 [0.47, 0.53] | 50 / 100 |" in text
    assert "| resnet | 1 | 2 | 1 | 1.5 ! | failed | 0.50 [0.47, 0.53] | 100 / 200 |" in text
    assert "- resnet, 1 thread, openvino: RuntimeError" in text
    assert "faster than the best peer in 0 of 2, tied in 1" in text
    plots = {path.name for path in folder.glob("*.svg")}
    assert plots == {"ops-ratio.svg", "ops-peak-1.svg", "models-ratio.svg", "models-peak-1.svg"}
    assert all(f"benchmarks/{name}" in text for name in plots)


def test_a_chart_is_valid_and_has_a_bar_for_each_value() -> None:
    groups = [Group("a < b", (Bar(1.0, (0.9, 1.2)), None)), Group("c", (Bar(0.5), Bar(20.0)))]
    root = ElementTree.fromstring(bar_chart("title & more", ["one", "two"], groups, line=1.0))
    rectangles = root.findall("{http://www.w3.org/2000/svg}rect")
    assert len(rectangles) == 2 + 3  # the legend, and the bars
    widths = [float(rectangle.get("width", 0)) for rectangle in rectangles[2:]]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
