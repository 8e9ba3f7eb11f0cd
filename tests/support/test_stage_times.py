from __future__ import annotations

import pytest

from foretell.support.stage_times import StageTimes


def test_stage_times_add_up() -> None:
    times = StageTimes()
    for stage in ("import", "lower", "import"):
        with times.measure(stage):
            pass
    with pytest.raises(KeyError), times.measure("load"):
        raise KeyError
    assert list(times.seconds) == ["import", "lower", "load"]
    assert times.total_s == sum(times.seconds.values()) >= 0
