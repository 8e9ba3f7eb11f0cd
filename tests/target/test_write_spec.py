from __future__ import annotations

import pytest

from foretell.target.read_spec import cpu_names, read_named, read_spec
from foretell.target.write_spec import write_spec


@pytest.mark.parametrize("name", cpu_names())
def test_what_is_written_is_read_back(name: str) -> None:
    spec = read_named(name)
    assert read_spec(write_spec(spec), name) == spec


def test_notes_and_heading() -> None:
    notes = {"cores": "counted", "caches[1].size_bytes": "guessed"}
    lines = write_spec(read_named("haswell"), heading=("First.", "Second."), notes=notes).splitlines()
    assert lines[:3] == ["# First.", "# Second.", 'name = "haswell"']
    assert sum(line.endswith("  # counted") for line in lines) == 1
    second = lines.index("[[caches]]", lines.index("[[caches]]") + 1)
    assert lines[second + 1].startswith("size_bytes = ") and lines[second + 1].endswith("  # guessed")
