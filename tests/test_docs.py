"""The Python in the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["loops.md", "schedules.md", "fusing.md", "targets.md", "machine-code.md"])
def test_code_runs(page: str) -> None:
    """Blocks share one namespace. A text block is the output of all Python since the last one."""
    printed, names = "", {}
    for language, block in BLOCK.findall((PAGES / page).read_text(encoding="utf-8")):
        if language == "text":
            assert printed.rstrip() == block.rstrip()
            printed = ""
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block, page, "exec"), names)
        printed += output.getvalue()
    assert not printed, "the page does not show what its last lines print"
