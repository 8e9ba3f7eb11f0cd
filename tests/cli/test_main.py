from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest

from foretell.cli import environment
from foretell.cli.main import main
from foretell.cli.output import Output
from foretell.report.tables import table
from foretell.support.errors import InvalidModel
from foretell.target.threads import default_threads

COMMANDS = ("check", "explain", "compile", "run", "verify", "bench", "tune", "calibrate", "env", "targets")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"foretell {metadata.version('foretell')}\n"


def test_no_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_common_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--json", "--quiet", "-q", "--verbose", "-v"))


def test_usage_error_is_three_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--colour"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("FT001: No such option: --colour")
    assert "got foretell env --colour\n" in captured.err
    assert len(captured.err.splitlines()) == 3


def test_usage_error_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json"]) == 2
    captured = capsys.readouterr()
    facts = json.loads(captured.out)
    assert captured.err == ""
    assert (facts["ok"], facts["error"]["code"]) == (False, "FT001")


def test_unreadable_shape_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "model.onnx", "--shape", "x=1x?", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["got"] == "x=1x?"


def test_errors_are_safe_to_print(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show_error(InvalidModel("bad", where="node '\x1b[2J'"))
    assert capsys.readouterr().err == "FT102: bad (at node '\ufffd[2J')\n"


def test_verbose_errors_have_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True, verbose=True).show_error(InvalidModel("bad"))
    captured = capsys.readouterr()
    assert "InvalidModel: FT102: bad" in captured.err
    assert json.loads(captured.out)["error"]["what"] == "bad"


def test_table_cells_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show(table("name", rows=[("[red]x[/red]",)]), facts={})
    assert capsys.readouterr().out.splitlines()[1] == "[red]x[/red]"


def test_env(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] is True
    assert facts["threads"] == default_threads() >= 1
    assert set(facts["packages"]) == set(environment.PACKAGES)
    assert main(["env", "-v"]) == 0
    text = capsys.readouterr().out
    assert facts["cpu"] in text and "features" in text


def test_targets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["targets", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {"znver3", "neoverse-n1"} <= {target["name"] for target in facts["targets"]}
    assert facts["aliases"]["zen3"] == "znver3"
    assert main(["targets"]) == 0
    text = capsys.readouterr().out
    assert "sapphirerapids" in text
    assert text.endswith(f"native is {facts['native']['resolved']}\n")


def test_python_dash_m() -> None:
    done = subprocess.run([sys.executable, "-m", "foretell", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("FT001: No such command 'nothing'\n")


def test_light_commands_do_not_import_the_compiler() -> None:
    script = (
        "import sys; from foretell.cli.main import main; main(['--version']); main(['env'])\n"
        "heavy = {'onnx', 'numpy', 'llvmlite', 'torch'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
