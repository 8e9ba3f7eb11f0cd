from __future__ import annotations

import dataclasses

import pytest

from foretell.support.errors import UsageError
from foretell.support.trace import Trace


def shorten(text: str) -> str:
    return text.strip() if text != text.strip() else text


def test_records_name_time_and_change() -> None:
    trace: Trace[str] = Trace()
    text = trace.start("read", lambda: " ir ")
    text = trace.run("shorten", shorten, text)
    text = trace.run("shorten", shorten, text)
    assert text == "ir"
    assert [(record.name, record.changed) for record in trace.records] == [
        ("read", True),
        ("shorten", True),
        ("shorten", False),
    ]
    assert all(record.time_ms >= 0 for record in trace.records)
    assert isinstance(trace.records, tuple)


def test_changed_means_another_object() -> None:
    trace: Trace[list[int]] = Trace()
    trace.run("copy", lambda ir: list(ir), [1])
    assert trace.records[0].changed


def test_ir_is_kept_only_on_request() -> None:
    kept: Trace[str] = Trace(keep_ir=True)
    dropped: Trace[str] = Trace()
    for trace in (kept, dropped):
        trace.run("shorten", shorten, " ir ")
    assert kept.records[0].after == "ir"
    assert dropped.records[0].after is None


def test_after_is_the_last_run_of_that_name() -> None:
    trace: Trace[str] = Trace(keep_ir=True)
    for text in ("a", "b"):
        trace.run("double", lambda ir: ir + ir, text)
    trace.run("other", lambda ir: ir, "c")
    assert trace.after("double") == "bb"


def test_unknown_pass_names_those_that_ran() -> None:
    trace: Trace[str] = Trace(keep_ir=True)
    for name in ("import", "shorten", "shorten"):
        trace.run(name, shorten, "")
    with pytest.raises(UsageError) as caught:
        trace.after("shoten")
    assert str(caught.value) == (
        "FT001: no pass is called 'shoten'\n"
        "  expected one of import, shorten; got shoten\n"
        "  hint: `foretell explain MODEL` lists the passes that ran"
    )


def test_a_pass_that_fails_leaves_no_record() -> None:
    trace: Trace[int] = Trace()
    with pytest.raises(ZeroDivisionError):
        trace.run("divide", lambda ir: ir // 0, 1)
    assert trace.records == ()


def test_records_cannot_be_changed() -> None:
    trace: Trace[str] = Trace()
    trace.run("shorten", shorten, "")
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.records[0].name = "other"  # pyright: ignore[reportAttributeAccessIssue]
