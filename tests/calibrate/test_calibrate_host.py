from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretell.calibrate import calibrate_host as module
from foretell.calibrate.calibrate_host import Calibration, calibrate_host
from foretell.support.errors import UsageError
from foretell.target.read_spec import read_spec
from foretell.target.resolve import resolve_target

CORES = resolve_target("native").spec.cores


@pytest.fixture(scope="module")
def found() -> Calibration:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MEMORY_BYTES", 1 << 20)
        patch.setattr(module, "CACHES_OF_MEMORY", 0)
        patch.setattr(module, "RUN_CYCLES", 1 << 14)
        return calibrate_host(threads=1, seconds=0.01)


def test_the_file_says_what_was_measured(found: Calibration, tmp_path: Path) -> None:
    text = found.to_toml()
    assert read_spec(text, "measured.toml") == found.spec
    assert f"on: {found.cpu}.\n" in text
    assert text.count("# measured: ") == sum(figure.field is not None for figure in found.figures)
    path = tmp_path / "measured.toml"
    path.write_text(text)
    assert resolve_target(str(path)).spec == found.spec
    assert resolve_target(resolve_target(str(path)).resolved).features == found.spec.features


def test_what_no_probe_tells_stays_as_detected(found: Calibration) -> None:
    fields = [figure.field for figure in found.figures if figure.field]
    assert "barrier_cost_s" not in fields and found.spec.barrier_cost_s == found.known.barrier_cost_s
    kept = {name: getattr(found.known, name) for name in fields if "[" not in name}
    assert replace(found.spec, caches=found.known.caches, **kept) == found.known
    assert all(figure.measured > 0 for figure in found.figures)
    assert found.known.cores == 1 and found.rounds >= module.LEAST_ROUNDS


@pytest.mark.parametrize("threads", [0, CORES + 1])
def test_more_threads_than_cores_are_refused(threads: int) -> None:
    with pytest.raises(UsageError, match="not that many cores") as caught:
        calibrate_host(threads)
    assert (caught.value.where, caught.value.got) == ("--threads", str(threads))


def test_disturbed_runs_do_not_count() -> None:
    best = module._Best({}, {})
    best.add("load", 1.0, 0.5, 1.0)
    best.add("load", 1.0, 0.1, 2.0)  # somebody cut in
    best.add("load", 2.0, 0.1, 2.0)  # twice
    best.add("store", 1.0, 0.25, 3.0)
    assert best.cycles_of("load") == 0.5 * module.RUN_CYCLES
    assert best.cycles_of("store") == 0.25 * module.RUN_CYCLES
    assert best.time_s == {"cycles": 1.0, "load": 0.1, "store": 0.25}
