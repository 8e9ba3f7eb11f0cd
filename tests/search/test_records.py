"""Records of measured schedules: kept, found again, and never in the way of a compilation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretell.schedule.steps import Schedule, Tile, Vectorise
from foretell.search.records import Record, Records, records_path, try_records, workload_name
from foretell.support.cache_folder import VARIABLE
from foretell.support.errors import UsageError
from foretell.target.resolve import resolve_target
from tests.schedule.nests import matrix_product

TARGET = resolve_target("icelake-server")
NARROW: Schedule = (Tile("j", 4), Vectorise("j.i"))
WIDE: Schedule = (Tile("j", 8), Vectorise("j.i"))


def test_the_fastest_comes_first_and_failures_last(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite", TARGET, 2) as records:
        failed = Record("w", (), (), None)
        found = [Record("w", WIDE, (1.0, 1.2), 0.9), Record("w", NARROW, (1.1,), 1.0)]
        records.add([failed, *reversed(found), Record("other", NARROW, (1.0,), 0.5)])
        assert records.of("w") == [*found, failed]
        assert records.try_best("w") == WIDE and records.try_best("unknown") is None


def test_a_gain_that_noise_explains_is_not_used(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite", TARGET, 2) as records:
        records.add([Record("w", WIDE, (1.0,), 0.99)])
        assert records.try_best("w") is None


def test_another_cpu_or_number_of_threads_has_its_own(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Records(path, TARGET, 2) as records:
        records.add([Record("w", WIDE, (1.0,), 0.5)])
    for target, threads in ((TARGET, 1), (resolve_target("neoverse-n1"), 2)):
        with Records(path, target, threads) as records:
            assert records.of("w") == []


def test_export_is_a_line_of_json_for_each(tmp_path: Path) -> None:
    with Records(tmp_path / "r.sqlite", TARGET, 2) as records:
        records.add([Record("w", WIDE, (1.0, 2.0), 0.5), Record("v", NARROW, (), None)])
        lines = [json.loads(line) for line in records.export()]
    assert [(line["workload"], line["times_s"], line["ratio"]) for line in lines] == [
        ("v", [], None),
        ("w", [1.0, 2.0], 0.5),
    ]
    assert lines[1]["schedule"][0] == {"step": "Tile", "loop": "j", "factor": 8}


def test_a_file_that_is_none_is_refused_but_does_not_stop_a_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    path = records_path()
    assert path is not None and try_records(TARGET, 1) is None
    path.write_bytes(b"not a database" * 100)
    assert try_records(TARGET, 1) is None
    with pytest.raises(UsageError, match="cannot be read"):
        Records(path, TARGET, 1)
    monkeypatch.setenv(VARIABLE, "off")
    assert records_path() is None


def test_workloads_are_told_apart_by_shape_and_constants() -> None:
    nests = [matrix_product(2, 3, 4), matrix_product(2, 3, 5)]
    assert len({workload_name(nest, flags) for nest in nests for flags in ((True, False), (False, True))}) == 4
