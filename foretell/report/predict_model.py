"""How long a model will take on a machine that need not be here, kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from foretell.compiler import Lowered
from foretell.cost.kernel_time import KernelTime, Surroundings, kernel_time
from foretell.graph.nodes import Graph
from foretell.ir.expr import Sym
from foretell.loops.canonical import canonical
from foretell.loops.lower_graph import NodeStep
from foretell.loops.nodes import Kernel, free_symbols
from foretell.report.flops import smallest
from foretell.report.tables import table
from foretell.report.units import percent, plural
from foretell.target.resolve import Target

TOTAL_UNCERTAIN = 1.25
"""The same for a whole model as `kernel_time.UNCERTAIN` for a kernel: some errors cancel."""


@dataclass(frozen=True, slots=True)
class KernelPrediction:
    name: str
    location: str
    time: KernelTime
    count: int = 1
    """Kernels of the model that do the same."""
    places: tuple[int, ...] = ()
    """Which of the model's kernels they are, counted in the order they run."""

    @property
    def seconds(self) -> float:
        return self.count * self.time.seconds

    def to_json(self) -> dict[str, object]:
        return {
            "kernel": self.name,
            "where": self.location,
            "count": self.count,
            "seconds": self.time.seconds,
            "draft_s": self.time.draft_s,
            "low_s": self.time.low_s,
            "high_s": self.time.high_s,
            "terms_s": dict(self.time.terms),
            "binds": self.time.binds,
            "flops": self.time.flops,
            "bytes": self.time.bytes_touched,
            "roofline_s": self.time.roofline_s,
        }


@dataclass(frozen=True, slots=True)
class Prediction:
    """The kernels in the order they first run, equal ones together."""

    target: str
    threads: int
    kernels: tuple[KernelPrediction, ...]
    not_native: tuple[str, ...]
    """Operators that run in Python, of which nothing is known."""

    @property
    def seconds(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def interval_s(self) -> tuple[float, float]:
        """It holds what was predicted without the code, too."""
        draft_s = sum(kernel.count * kernel.time.draft_s for kernel in self.kernels)
        return min(self.seconds / TOTAL_UNCERTAIN, draft_s), max(self.seconds * TOTAL_UNCERTAIN, draft_s)

    def to_json(self) -> dict[str, object]:
        low, high = self.interval_s
        return {
            "target": self.target,
            "threads": self.threads,
            "seconds": self.seconds,
            "low_s": low,
            "high_s": high,
            "not_native": list(self.not_native),
            "kernels": [kernel.to_json() for kernel in self.kernels],
        }

    def to_table(self) -> Table:
        """The kernels that take longest first."""
        rows: list[tuple[object, ...]] = [
            (
                kernel.name,
                kernel.location,
                str(kernel.count),
                f"{kernel.seconds * 1e3:.3f}",
                percent(kernel.seconds / self.seconds),
                kernel.time.binds,
                percent(kernel.time.roofline_s / kernel.time.seconds),
            )
            for kernel in sorted(self.kernels, key=lambda kernel: -kernel.seconds)
        ]
        return table("kernel", "ONNX node", "times", "ms", "share", "binds", "of the roofline", rows=rows)

    def summary(self) -> str:
        low, high = self.interval_s
        left_out = f"; without {', '.join(self.not_native)}, which run in Python" if self.not_native else ""
        return (
            f"{self.seconds * 1e3:.3g} ms, between {low * 1e3:.3g} and {high * 1e3:.3g} four times in five, "
            f"on {plural(self.threads, 'thread')} of {self.target}{left_out}"
        )


def predict_model(graph: Graph, lowered: Lowered, target: Target, threads: int) -> Prediction:
    """Symbols stand for the smallest numbers they may."""
    constants = {value.name for value in graph.constants} | set(lowered.packed)
    around = Surroundings(threads, frozenset(constants), float(graph.constant_bytes))
    found: dict[tuple[str, tuple[bool, ...]], KernelPrediction] = {}
    not_native: list[str] = []
    place = 0
    for step in lowered.steps:
        if isinstance(step, NodeStep):
            not_native.append(str(step.node.attrs.get("op_type", step.node.op)))
            continue
        for kernel in step.kernels:
            key = (str(canonical(kernel)), tuple(buffer.name in constants for buffer in kernel.reads))
            known = found.get(key)
            draft_s = lowered.drafts.get(kernel.name)
            time = kernel_time(kernel, target, around, _sizes(kernel), draft_s) if known is None else known.time
            first = kernel if known is None else known
            places = (place,) if known is None else (*known.places, place)
            found[key] = KernelPrediction(first.name, first.location, time, len(places), places)
            place += 1
    return Prediction(str(target), threads, tuple(found.values()), tuple(dict.fromkeys(not_native)))


def _sizes(kernel: Kernel) -> dict[Sym, int]:
    return {sym: size for sym, size in smallest(sorted(free_symbols(kernel), key=str)).items() if isinstance(size, int)}
