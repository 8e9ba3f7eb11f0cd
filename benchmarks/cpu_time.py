"""Who else uses the CPUs of a race: turns that were disturbed are taken again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
"""Of a line of /proc/stat: user, nice, system, irq, softirq, steal; the rest is idling."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Seconds so far: on the clock, of all work on some CPUs, and of one process."""

    clock_s: float
    busy_s: float
    own_s: float


def read_cpu_time(cpus: Iterable[int], process: int, proc: Path = PROC) -> CpuTime | None:
    """None where the system does not say."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    try:
        lines = [line.split() for line in (proc / "stat").read_text(encoding="ascii").splitlines()]
        own = (proc / f"{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    names = {f"cpu{cpu}" for cpu in cpus}
    busy = sum(int(line[1 + place]) for line in lines if line and line[0] in names for place in BUSY_FIELDS)
    return CpuTime(time.monotonic(), busy * tick_s, (int(own[11]) + int(own[12])) * tick_s)


def foreign_cpus(before: CpuTime | None, after: CpuTime | None) -> float:
    """How many of the CPUs others kept busy in between; 0 where that is not known."""
    if before is None or after is None or after.clock_s <= before.clock_s:
        return 0.0
    foreign_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, foreign_s / (after.clock_s - before.clock_s))
