"""Where the results come from: the CPU and what it was measured to do at most, the system, the commit."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from typing import Any

from benchmarks.contestant_process import ROOT
from benchmarks.peak import measure_bandwidth_gb_per_s, measure_peak_gflops
from foretell.target.detect_host import cpu_model
from foretell.target.resolve import resolve_target

Machine = dict[str, Any]


def describe_machine(threads: Sequence[int]) -> Machine:
    """Peaks and bandwidths are of all of that many threads together."""
    spec = resolve_target("native").spec
    return {
        "cpu": cpu_model(),
        "target": spec.name,
        "cores": spec.cores,
        "vector_bits": 8 * spec.vector_bytes,
        "caches_bytes": [level.size_bytes for level in spec.caches],
        "system": platform.system(),
        "python": platform.python_version(),
        "peak_gflops": {str(count): measure_peak_gflops(count) for count in threads},
        "read_gb_per_s": {str(count): measure_bandwidth_gb_per_s("read", count) for count in threads},
        "copy_gb_per_s": {str(count): measure_bandwidth_gb_per_s("copy", count) for count in threads},
    }


def describe_commit() -> str:
    """The checked-out commit, and whether files differ from it; "unknown" outside a repository."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() if found.returncode == 0 else "unknown"


def summary(machine: Machine) -> str:
    """One line for people."""
    caches = " / ".join(
        f"{size >> 10} KiB" if size < 1 << 20 else f"{size / 2**20:g} MiB" for size in machine["caches_bytes"]
    )
    measured = "; ".join(
        f"{count} thread{'s' * (count != '1')}: {peak:.0f} GFLOP/s, reads {machine['read_gb_per_s'][count]:.1f} GB/s, "
        f"copies {machine['copy_gb_per_s'][count]:.1f} GB/s"
        for count, peak in machine["peak_gflops"].items()
    )
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['vector_bits']}-bit vectors, caches {caches}; {measured}"
    )
