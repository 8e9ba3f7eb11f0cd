"""docs/operators.md and the list of expected failures are of one run, and good enough."""

from __future__ import annotations

import re

from docs.generate_operators import OPERATORS_PAGE, expected_version, read_expected_failures

MIN_PASSED = 1750
MIN_NATIVE = 1500


def count(row: str) -> int:
    found = re.search(rf"^\| {row} \| (\d+) \|$", OPERATORS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"operators.md has no row {row!r}"
    return int(found[1])


def test_totals() -> None:
    text = OPERATORS_PAGE.read_text(encoding="utf-8")
    cases = re.search(r"from the ([\d,]+) node tests of onnx (\S+),", text)
    assert cases is not None and cases[2] == expected_version()
    assert count("passed") + count("failed") == int(cases[1].replace(",", ""))
    assert count("passed") >= MIN_PASSED
    assert MIN_NATIVE <= count("passed by native code alone") <= count("passed")


def test_every_failure_is_listed_with_its_reason() -> None:
    failures = read_expected_failures()
    assert all(failures.values())
    text = OPERATORS_PAGE.read_text(encoding="utf-8").split("## Cases that fail")[1]
    assert set(re.findall(r"^- (\w+)", text, re.MULTILINE)) == set(failures)
    assert len(failures) == count("failed")


def test_cases_of_operators_add_up() -> None:
    rows = re.findall(r"\| (\d+)/(\d+) \| (\d+) \|$", OPERATORS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sum(int(passed) for passed, _, _ in rows) == count("passed")
    assert sum(int(cases) for _, cases, _ in rows) == count("passed") + count("failed")
    assert sum(int(native) for _, _, native in rows) == count("passed by native code alone")
