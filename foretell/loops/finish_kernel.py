"""The last passes over a kernel before code is emitted: data is asked for in time, and functions run in loops. Results
stay as they are."""

from __future__ import annotations

from foretell.loops.fetch_slabs import fetch_slabs
from foretell.loops.loop_functions import loop_functions
from foretell.loops.nodes import Kernel
from foretell.loops.place_lines import place_lines
from foretell.target.hardware_spec import HardwareSpec


def finish_kernel(kernel: Kernel, spec: HardwareSpec) -> Kernel:
    sizes = [cache.size_bytes for cache in spec.caches]
    return loop_functions(fetch_slabs(place_lines(kernel, sizes), sizes))
