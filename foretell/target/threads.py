"""How many threads to use: what this process may run on, and what its control groups pay for."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from foretell.support.errors import UsageError
from foretell.target.detect_host import usable_cpus

VARIABLE = "FORETELL_THREADS"


def default_threads() -> int:
    """FORETELL_THREADS if it is set; else the CPUs of our affinity, or the cgroup quota rounded up if that is less."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return max(1, math.ceil(min(len(usable_cpus()), cgroup_cpus())))
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text)
    raise UsageError(
        "the number of threads cannot be read",
        where=f"environment variable {VARIABLE}",
        expected="a whole number, at least 1",
        got=text,
        hint="unset it to use every CPU this process may run on",
    )


def cgroup_cpus(root: Path = Path("/")) -> float:
    """CPU time that the cgroups (v1 or v2) of this process may use each second; infinite without a quota."""
    try:
        return min((_quota_cpus(folder) for folder in _cpu_groups(root)), default=math.inf)
    except OSError:
        return math.inf


def _cpu_groups(root: Path) -> Iterator[Path]:
    """The folders of every group we are in, from our own up to the mount: each may set a quota."""
    mounts = [line.split() for line in (root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, group = line.split(":", 2)
        for mount in mounts:
            if _is_mount_of(mount, controllers):
                top = PurePosixPath(mount[4].lstrip("/"))
                own = top / _relative(group, mount[3])
                yield from (root / folder for folder in (own, *own.parents) if folder.is_relative_to(top))


def _is_mount_of(mount: list[str], controllers: str) -> bool:
    """mountinfo ends in `- TYPE SOURCE OPTIONS`; the hierarchy without controllers is version 2."""
    kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
    if not controllers:
        return kind == "cgroup2"
    return kind == "cgroup" and "cpu" in options and "cpu" in controllers.split(",")


def _relative(group: str, mount_root: str) -> PurePosixPath:
    """A group's path inside its mount; a group outside of the mount is seen as the mount itself."""
    path = PurePosixPath(group)
    return path.relative_to(mount_root) if path.is_relative_to(mount_root) else PurePosixPath()


def _quota_cpus(folder: Path) -> float:
    """`cpu.max` holds "50000 100000" or "max 100000"; version 1 has a file for each, and -1 for no quota."""
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    elif (folder / "cpu.cfs_quota_us").exists():
        quota, period = (
            (folder / f"cpu.cfs_{name}_us").read_text(encoding="ascii").strip() for name in ("quota", "period")
        )
    else:
        return math.inf
    return int(quota) / int(period) if quota.isdecimal() and int(period) > 0 else math.inf
