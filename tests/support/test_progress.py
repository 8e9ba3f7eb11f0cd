from __future__ import annotations

import io

import pytest

from foretell.support.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(text: str) -> str:
    """The line a terminal shows after printing text that moves only with carriage returns."""
    shown: list[str] = []
    for part in text.split("\r"):
        shown[: len(part)] = part
    return "".join(shown)


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        progress.step("import", "model.onnx")
        progress.step("simplify")
    assert stream.getvalue() == "import: model.onnx\nsimplify\n"


def test_one_live_line_on_a_terminal_which_is_cleared() -> None:
    stream = Terminal()
    with Progress(stream=stream) as progress:
        progress.step("import", "a-long-name.onnx")
        progress.step("run")
        assert screen(stream.getvalue()).rstrip() == "run"
    assert "\n" not in stream.getvalue()
    assert screen(stream.getvalue()).strip() == ""
    assert stream.getvalue().endswith("\r")


def test_live_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    Progress(stream=stream).step("x" * 100)
    assert len(screen(stream.getvalue())) == 19


def test_live_can_be_turned_off_on_a_terminal() -> None:
    stream = Terminal()
    with Progress(stream=stream, live=False) as progress:
        progress.step("run")
    assert stream.getvalue() == "run\n"


def test_nothing_when_quiet() -> None:
    stream = Terminal()
    with Progress(quiet=True, stream=stream) as progress:
        progress.step("import")
    assert stream.getvalue() == ""


def test_stderr_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    Progress().step("import")
    assert capsys.readouterr() == ("", "import\n")


def test_text_from_a_model_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    Progress(stream=stream).step("node", "a\x1b[2Jb\r\nc\ud800")
    assert stream.getvalue() == "node: a\ufffd[2Jb\ufffd c\ufffd\n"
