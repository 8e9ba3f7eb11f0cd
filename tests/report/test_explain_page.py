"""The page that explains a model: complete in itself, and text stays text."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import onnx
import pytest

from examples.demo import build_model
from foretell.cli.main import main
from foretell.cost.kernel_time import KernelTime
from foretell.report.choices import Choice, Rejected
from foretell.report.explain_page import explain_page
from foretell.report.predict_model import KernelPrediction, Prediction
from foretell.target.resolve import resolve_target
from tests.report.test_draw_groups import hostile_picture

VOID = {"meta", "br"}
HOSTILE = "</td><script>alert(1)</script>"


class Balanced(HTMLParser):
    """Raises where tags do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page() -> str:
    time = KernelTime(2e-3, {"instructions": 2e-3, "cache 2": 1e-4, "cache 9": 1e-5}, 1e8, 1e6, 1e-3, 2e-3)
    idle = KernelTime(1e-5, {"memory": 1e-5}, 0.0, 1e4, 0.0, 1e-5)
    kernels = (KernelPrediction(HOSTILE, HOSTILE, time, 2), KernelPrediction("copy", "Transpose(t)", idle))
    rejected = (Rejected("tiles of 5 x 64", 1.1, "why"),)
    choice = Choice(HOSTILE, 1, 9, "tiles of 6 x 64", 1e-3, 5e-4, 2e-3, "computing", {}, rejected)
    spec, prediction = resolve_target("icelake-server").spec, Prediction("some target", 2, kernels, ())
    return explain_page(HOSTILE, prediction, [choice], spec, hostile_picture(HOSTILE))


def test_tags_match_and_nothing_comes_from_elsewhere() -> None:
    parser = Balanced()
    parser.feed(page())
    assert parser.open == [] and {"svg", "circle", "polyline", "table", "details"} <= parser.seen
    assert "script" not in parser.seen and not re.search(r"(src|href)=|url\(|@import|http", page())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(build_model(), tmp_path / "demo.onnx")
    file = tmp_path / "page.html"
    assert main(["explain", str(tmp_path / "demo.onnx"), "--html", str(file), "--target", "neoverse-n1", "-q"]) == 0
    assert f"wrote {file}" in capsys.readouterr().out
    text = file.read_text(encoding="utf-8")
    assert "neoverse-n1" in text and "From input to output" in text
    assert main(["explain", str(tmp_path / "demo.onnx"), "--html", str(tmp_path / "no" / "page.html"), "-q"]) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_in_a_browser(tmp_path: Path) -> None:
    """Every row of the tables is there, and text is text."""
    file = tmp_path / "page.html"
    file.write_text(page(), encoding="utf-8")
    arguments = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", file.as_uri()]
    shown = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown.count("<tr>") == 2 + 2 + 1 + 2 + 2 and "<circle" in shown and "&lt;script&gt;" in shown
