"""What the command accepts, and what it says when it does not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks.command_line import make_parser
from benchmarks.results import Results, write_results
from benchmarks.run_suites import Plan


def test_options_are_read() -> None:
    line = "ops models --only conv,matmul --threads 1,2 --peers onnxruntime --quick --fail-if 3% --python mnn=/bin/it"
    options = make_parser().parse_args(line.split())
    assert options.suites == ["ops", "models"]
    assert (options.only, options.threads, options.peers) == (("conv", "matmul"), (1, 2), ("onnxruntime",))
    assert (options.quick, options.fail_if, options.python) == (True, 0.03, [("mnn", "/bin/it")])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ops --peers tensorflow", "there is no peer tensorflow; there are onnxruntime, openvino, mnn"),
        ("ops --peers foretell", "there is no peer foretell"),
        ("ops --threads 0", "expected numbers of threads such as 1,2, got 0"),
        ("ops --fail-if 5", "expected a percentage such as 5%, got 5"),
        ("operators", "invalid choice: 'operators'"),
    ],
)
def test_mistakes_are_named(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        make_parser().parse_args(line.split())
    assert raised.value.code == 2
    assert message in capsys.readouterr().err


def test_more_threads_than_cpus_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["ops", "--threads", "1,4096"])
    assert "CPUs for 4096 threads" in capsys.readouterr().err


def test_an_empty_suite_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, results) -> None:
    monkeypatch.setattr(command, "describe_machine", lambda threads: results.machine)
    assert command.main(["dynamic", "--threads", "1", "--peers", "onnxruntime"]) == 0
    assert "dynamic: filled by a later version" in capsys.readouterr().out


def test_ctrl_c_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, results) -> None:
    def interrupted(*_: object):
        yield results.rows[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "describe_machine", lambda threads: results.machine)
    monkeypatch.setattr(command, "run_suites", interrupted)
    found = command.measure(Plan(("ops",), peers=()), Console(file=io.StringIO()))
    assert found.rows == results.rows[:1]


def test_a_regression_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, results, row, tmp_path: Path, capsys) -> None:
    monkeypatch.setattr(command, "usable_cpus", lambda: {0, 1})
    write_results(tmp_path / "old.json", Results(results.machine, "abc", "2026-11-16", (row(1.0),)))
    slower = Results(results.machine, "def", "2026-11-17", (row(0.8),))
    monkeypatch.setattr(command, "measure", lambda plan, console: slower)
    arguments = ["ops", "--baseline", str(tmp_path / "old.json")]
    assert command.main([*arguments, "--fail-if", "5%", "--json", str(tmp_path / "new.json")]) == 1
    assert "1 regressions of more than 5% since abc" in capsys.readouterr().out
    assert (tmp_path / "new.json").exists()
    assert command.main([*arguments, "--fail-if", "30%"]) == 0


def test_absent_peers_are_named_not_raced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.contestants.util.find_spec", lambda name: None if name == "MNN" else object())
    plan = Plan(("ops",))
    assert plan.absent() == {"mnn": ["MNN"]}
    assert plan.contestants("ops") == ["foretell", "onnxruntime", "openvino"]
    assert Plan(("ops",), pythons={"mnn": "/elsewhere/python"}).absent() == {}
