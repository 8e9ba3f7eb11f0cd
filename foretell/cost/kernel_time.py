"""What a kernel takes on a machine that need not be here: its instructions, what it waits for, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from foretell.cost.machine_bound import machine_time
from foretell.cost.traffic import KEPT_SHARE, touched_bytes, traffic_bytes
from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.loops.analysis import elements_touched, flops
from foretell.loops.nodes import For, Kernel
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.resolve import Target

OVERLAP_LOSS = 0.2
"""The part of a shorter term that the longest does not hide."""
UNCERTAIN = 1.4
"""A kernel takes between the prediction over this and the prediction times this, four times in five."""
COMPUTE = "instructions"
MEMORY = "memory"
BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds, and the terms they are made of: the longest binds."""

    seconds: float
    terms: Mapping[str, float]
    flops: float
    bytes_touched: float
    roofline_s: float
    """What the machine's peak and its bandwidth allow for, whatever the code."""
    draft_s: float
    """What was predicted without the code; the same as `seconds` where nothing was."""

    @property
    def low_s(self) -> float:
        """The interval holds both predictions: where they differ much, neither is to be trusted."""
        return min(self.seconds / UNCERTAIN, self.draft_s)

    @property
    def high_s(self) -> float:
        return max(self.seconds * UNCERTAIN, self.draft_s)

    @property
    def binds(self) -> str:
        return max(self.terms, key=lambda name: self.terms[name])


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a kernel finds: how many threads, which tensors never change, and whether these stay in the last cache."""

    threads: int = 1
    constants: Collection[str] = frozenset()
    constant_bytes: float = 0.0
    """Of the whole model, which goes through all of them before it comes back to one."""


def kernel_time(
    kernel: Kernel,
    target: Target,
    around: Surroundings,
    symbols: Mapping[Sym, int] | None = None,
    draft_s: float | None = None,
) -> KernelTime:
    """Compile a kernel for the target, read its instructions, and add what it waits for.

    `draft_s` is what it was thought to take on one core before there was code.
    """
    spec, bound = target.spec, dict(symbols or {})
    threads = min(around.threads, spec.cores)
    waves = _waves(kernel, threads, bound)
    terms = {COMPUTE: machine_time(kernel, target, bound).seconds * waves}
    touched = touched_bytes(kernel, bound)
    for level, cache in enumerate(spec.caches[:-1]):
        moved = traffic_bytes(kernel, cache.size_bytes, bound)
        if level and touched <= KEPT_SHARE * cache.size_bytes:
            moved = min(moved, _constant_bytes(kernel, around, bound))
        terms[f"cache {level + 2}"] = moved * waves / spec.cache_bandwidth_bytes_per_s(level + 1)
    terms[MEMORY] = _memory_bytes(kernel, spec, around, touched, bound) / _bandwidth(spec, threads)
    longest = max(terms.values())
    seconds = longest + OVERLAP_LOSS * (sum(terms.values()) - longest)
    if threads > 1 and waves < 1:
        terms[BARRIER] = spec.barrier_cost_s
        seconds += spec.barrier_cost_s
    arithmetic = _number(flops(kernel), bound)
    roofline = max(arithmetic / spec.peak_flops_per_s(cores=threads), terms[MEMORY])
    return KernelTime(seconds, terms, arithmetic, touched, roofline, seconds if draft_s is None else draft_s * waves)


def _waves(kernel: Kernel, threads: int, symbols: Mapping[Sym, int]) -> float:
    """The part of the work that the busiest thread does."""
    match kernel.body:
        case For(_, extent, "parallel", _):
            tasks = max(1.0, _number(extent, symbols))
            return -(-tasks // threads) / tasks
        case _:
            return 1.0


def _constant_bytes(kernel: Kernel, around: Surroundings, symbols: Mapping[Sym, int]) -> float:
    return sum(
        _number(elements_touched(kernel, buffer), symbols) * buffer.dtype.itemsize
        for buffer in kernel.reads
        if buffer.name in around.constants
    )


def _memory_bytes(
    kernel: Kernel, spec: HardwareSpec, around: Surroundings, touched: float, symbols: Mapping[Sym, int]
) -> float:
    """All that does not fit the last cache; and constants, where those of the model together do not."""
    last = spec.caches[-1].size_bytes
    if touched > KEPT_SHARE * last:
        return traffic_bytes(kernel, last, symbols)
    if around.constant_bytes > KEPT_SHARE * last:
        return _constant_bytes(kernel, around, symbols)
    return 0.0


def _bandwidth(spec: HardwareSpec, threads: int) -> float:
    return min(spec.dram_bandwidth_bytes_per_s, threads * spec.dram_core_bandwidth_bytes_per_s)


def _number(dim: expr.Dim, symbols: Mapping[Sym, int]) -> float:
    value = expr.substitute(dim, dict(symbols))
    low, high = expr.bounds(value)
    return float(value if isinstance(value, int) else high or low or 1)
