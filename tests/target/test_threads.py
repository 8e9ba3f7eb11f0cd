from __future__ import annotations

import math
from pathlib import Path

import pytest

from foretell.support.errors import UsageError
from foretell.target import threads
from foretell.target.threads import cgroup_cpus, default_threads

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
OTHER_MOUNT = "31 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("own", "parent", "cpus"),
    [
        ("max 100000", "max 100000", math.inf),
        ("150000 100000", "max 100000", 1.5),
        ("max 100000", "200000 100000", 2.0),
        ("400000 100000", "50000 100000", 0.5),
    ],
)
def test_version_2_takes_the_least_of_all_ancestors(tmp_path: Path, own: str, parent: str, cpus: float) -> None:
    files = {
        "proc/self/cgroup": "0::/app/worker",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/app/cpu.max": parent,
        "sys/fs/cgroup/app/worker/cpu.max": own,
    }
    assert cgroup_cpus(write(tmp_path, files)) == cpus


@pytest.mark.parametrize(("mount_root", "folder"), [("/", "docker/abc/"), ("/docker/abc", ""), ("/other", "")])
def test_version_1(tmp_path: Path, mount_root: str, folder: str) -> None:
    """Inside a container the mount shows the container's own group, whatever the path of the process says."""
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/",
        "proc/self/mountinfo": f"{OTHER_MOUNT}\n{V1_MOUNT.format(root=mount_root)}",
        f"sys/fs/cgroup/cpu,cpuacct/{folder}cpu.cfs_quota_us": "250000",
        f"sys/fs/cgroup/cpu,cpuacct/{folder}cpu.cfs_period_us": "100000",
    }
    assert cgroup_cpus(write(tmp_path, files)) == 2.5


def test_version_1_without_a_quota(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "3:cpu,cpuacct:/",
        "proc/self/mountinfo": V1_MOUNT.format(root="/"),
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    assert cgroup_cpus(write(tmp_path, files)) == math.inf


def test_no_cgroups(tmp_path: Path) -> None:
    assert cgroup_cpus(tmp_path) == math.inf


@pytest.mark.parametrize(("cpus", "quota", "expected"), [(8, math.inf, 8), (8, 1.5, 2), (2, 5.0, 2), (4, 0.1, 1)])
def test_default_threads(cpus: int, quota: float, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    monkeypatch.setattr(threads, "usable_cpus", lambda: frozenset(range(cpus)))
    monkeypatch.setattr(threads, "cgroup_cpus", lambda: quota)
    assert default_threads() == expected


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, " 37 ")
    assert default_threads() == 37


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "\N{SUPERSCRIPT TWO}"])
def test_a_wrong_environment_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, text)
    with pytest.raises(UsageError, match="the number of threads cannot be read") as caught:
        default_threads()
    assert caught.value.got == text
