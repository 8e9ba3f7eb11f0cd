"""`HardwareSpec`: one CPU, as every stage sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:  # who only loads a compiled model has no need of it
    import numpy as np
    import numpy.typing as npt

ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64", "riscv64": "riscv64"}
"""The first word of an LLVM triple, or `platform.machine()` in lower case -> the architecture it means."""
USUAL_WAYS = 8
"""Of a cache of which nobody tells."""


@dataclass(frozen=True, slots=True)
class CacheLevel:
    """One level of data cache, as one core sees it."""

    size_bytes: int
    line_bytes: int
    shared_by_cores: int
    bandwidth_bytes_per_cycle: float
    """Sustained loads of one core from this level."""
    ways: int = USUAL_WAYS
    """Lines that one set holds; predictions ask for those of the first level only."""

    @property
    def way_bytes(self) -> int:
        """How far apart lines lie that fall into the same set."""
        return max(self.line_bytes, self.size_bytes // self.ways)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Cycles that a unit of each term of a plan takes (`search/plan_terms.py`), as fitted to measured schedules.

    `python -m benchmarks.fit` finds them. A CPU that nobody has fitted has those of the one that was.
    """

    tiles: float = 1.0
    """Of a cycle that multiply-adds, loads or chains need at least, whichever take longest."""
    hidden: float = 0.2
    """Of a cycle that the shorter of multiply-adds and loads needs beside the longer."""
    steps: float = 0.5
    """Of a step of the sum, whatever the tile: large ones lose less."""
    conflicts: float = 0.3
    """Of a row that was pushed out of the first cache, each step."""
    crowded: float = 1.0
    """Of a cycle that tiles wait for what too few sets of the first cache were to hold."""
    partial_sums: float = 20.0
    """Of putting a vector of partial sums aside and taking it up again."""
    finishing: float = 0.75
    """Of an addition to a vector of sums, or what costs as much, before they are stored."""
    scattered: float = 8.0
    """Of a step of the sum whose vectors lie on pages of their own."""
    copies: float = 2.0
    """Of copying a vector."""
    pieces: float = 30.0
    """Of beginning a piece of a row of a large result, if the rows of a tile lie on different pages."""
    slabs: float = 1.0
    """Of a cycle that the operand in vectors needs from the caches at least."""
    rows: float = 1.0
    """The same of the operand in rows."""
    others: float = 1.0
    """The same of what serves one tile only."""
    waiting: float = 1.0
    """The same of what nobody fetched in time."""
    between: float = 1.0
    """Of a cycle that what lies between kernels, or between their nests, needs from the caches at least. Perhaps
    because it is read and written in pieces, which nobody fetches ahead."""
    uncertainty: float = 2.0
    """A plan takes between the prediction over this and the prediction times this, four times in five."""


@dataclass(frozen=True, slots=True)
class HardwareSpec:
    """The numbers of one CPU. "Vector" means the full width that code is generated for, `vector_bytes`."""

    name: str
    triple: str
    """Architecture, vendor and system, as LLVM spells them."""
    cpu: str
    """LLVM's name, which selects its scheduling model."""
    features: tuple[str, ...]
    """Everything beyond the architecture's baseline that code may use: LLVM's names, sorted (target/features.py)."""
    vector_bytes: int
    """Width of a vector register; 0 where there are only scalars."""
    unit_bytes: int
    """Width of what computes, loads and stores vectors: narrower ones, down to this, take as much less time."""
    vector_registers: int
    fma_ports: int
    """Vector multiply-adds started each cycle; where there is no such instruction, pairs of multiply and add."""
    add_ports: int
    """Vector additions started each cycle beside multiply-adds; 0 where they take the same ports."""
    fma_latency_cycles: int
    """From accumulator to accumulator: a chain of multiply-adds advances once in this time."""
    load_ports: int
    """Vector loads started each cycle."""
    loads_per_cycle: float
    """Those that really do, between other work."""
    store_ports: int
    """Vector stores started each cycle."""
    frequency_hz: float
    """Sustained, all cores busy with vector code."""
    caches: tuple[CacheLevel, ...]
    """From the nearest; instruction caches are left out."""
    cores: int
    dram_bandwidth_bytes_per_s: float
    """All cores together."""
    dram_core_bandwidth_bytes_per_s: float
    """One core alone."""
    barrier_cost_s: float
    """Waking all cores for a parallel loop and joining them, while their threads still spin."""
    coefficients: Coefficients = Coefficients()

    @property
    def architecture(self) -> str:
        return ARCHITECTURES[self.triple.partition("-")[0]]

    @property
    def fma_accumulators(self) -> int:
        """Independent accumulators that keep every FMA port busy."""
        return self.fma_ports * self.fma_latency_cycles

    @property
    def cycle_s(self) -> float:
        return 1.0 / self.frequency_hz

    def vector_lanes(self, bits: int) -> int:
        """Elements of `bits` in one vector; at least 1."""
        return max(1, 8 * self.vector_bytes // bits)

    def peak_flops_per_s(self, bits: int = 32, *, cores: int = 1) -> float:
        """Multiply-adds at full rate, each counted as two operations."""
        return 2.0 * self.fma_ports * self.vector_lanes(bits) * self.frequency_hz * cores

    def cache_bandwidth_bytes_per_s(self, level: int) -> float:
        """Of one core from `caches[level]`."""
        return self.caches[level].bandwidth_bytes_per_cycle * self.frequency_hz

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@overload
def suits_half_vectors(width: int, lanes: int, unit_lanes: int) -> bool: ...
@overload
def suits_half_vectors(width: npt.NDArray[np.int64], lanes: int, unit_lanes: int) -> npt.NDArray[np.bool_]: ...
def suits_half_vectors(width: int | npt.NDArray[np.int64], lanes: int, unit_lanes: int) -> bool | npt.NDArray[np.bool_]:
    """Whether a row of a tile is cut into vectors of half the width: where the last of the full ones would be at most
    half full, and half of one takes less time than all of it."""
    return (unit_lanes < lanes) & (width % lanes > 0) & (width % lanes <= lanes // 2)


def with_features(spec: HardwareSpec, features: Iterable[str]) -> HardwareSpec:
    """The same CPU with another instruction set; losing AVX-512 or AVX narrows its vectors."""
    kept = tuple(sorted(features))
    if kept == spec.features:
        return spec
    if spec.architecture != "x86_64":
        return replace(spec, features=kept)
    widest = 64 if "avx512f" in kept else 32 if "avx" in kept else 16
    return replace(
        spec,
        features=kept,
        vector_bytes=min(spec.vector_bytes, widest),
        unit_bytes=min(spec.unit_bytes, widest),
        vector_registers=spec.vector_registers if "avx512f" in kept else min(spec.vector_registers, 16),
    )


def with_cores(spec: HardwareSpec, cores: int) -> HardwareSpec:
    """The same CPU with another number of cores: fewer cannot draw all of the memory's bandwidth.

    A barrier is a tree of wake-ups, so that its cost goes with the logarithm of the cores.
    """
    return replace(
        spec,
        cores=cores,
        dram_bandwidth_bytes_per_s=min(spec.dram_bandwidth_bytes_per_s, cores * spec.dram_core_bandwidth_bytes_per_s),
        barrier_cost_s=spec.barrier_cost_s * math.log2(1 + cores) / math.log2(1 + spec.cores),
    )
