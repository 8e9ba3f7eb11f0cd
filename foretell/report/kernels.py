"""The kernels of a model: where in the ONNX file each came from, its arithmetic and its memory traffic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.table import Table

from foretell.compiler import Lowered
from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.loops.analysis import bytes_moved, flops
from foretell.loops.lower_graph import NodeStep
from foretell.loops.nodes import Kernel
from foretell.report.flops import smallest
from foretell.report.tables import table
from foretell.report.units import short_number
from foretell.support.errors import ShapeTooComplex

IN_PYTHON = "(in Python)"


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel, or one node that runs in Python. None where a number is not known."""

    name: str
    location: str
    operator: str
    flops: Dim | None
    bytes_moved: Dim | None

    def to_json(self) -> dict[str, object]:
        return {
            "kernel": self.name,
            "where": self.location,
            "native": self.operator == "",
            "flops": self.flops if isinstance(self.flops, int) else None,
            "flops_expression": None if self.flops is None else str(self.flops),
            "bytes": self.bytes_moved if isinstance(self.bytes_moved, int) else None,
            "bytes_expression": None if self.bytes_moved is None else str(self.bytes_moved),
        }


def describe_kernels(lowered: Lowered) -> tuple[KernelReport, ...]:
    """In the order they run; subgraphs of control flow are one line each."""
    found: list[KernelReport] = []
    for step in lowered.steps:
        if isinstance(step, NodeStep):
            operator = str(step.node.attrs.get("op_type", step.node.op))
            found.append(KernelReport(IN_PYTHON, step.node.location, operator, None, None))
        else:
            found += [_describe(kernel) for kernel in step.kernels]
    return tuple(found)


def _describe(kernel: Kernel) -> KernelReport:
    return KernelReport(kernel.name, kernel.location, "", _try(flops, kernel), _try(bytes_moved, kernel))


def _try(count: Callable[[Kernel], Dim], kernel: Kernel) -> Dim | None:
    try:
        return count(kernel)
    except ShapeTooComplex:
        return None


def kernels_table(kernels: tuple[KernelReport, ...]) -> Table:
    """Symbols stand for the smallest numbers they may."""
    rows: list[tuple[object, ...]] = [
        (kernel.name, kernel.location, _number(kernel.flops), _number(kernel.bytes_moved, "B"), _intensity(kernel))
        for kernel in kernels
    ]
    return table("kernel", "ONNX node", "flops", "bytes", "flops/byte", rows=rows)


def _sampled(dim: Dim | None) -> int | None:
    value = None if dim is None else expr.substitute(dim, smallest([dim]))
    return value if isinstance(value, int) else None


def _number(dim: Dim | None, unit: str = "") -> str:
    value = _sampled(dim)
    return "?" if value is None else short_number(value, unit)


def _intensity(kernel: KernelReport) -> str:
    arithmetic, traffic = _sampled(kernel.flops), _sampled(kernel.bytes_moved)
    return f"{arithmetic / traffic:.2g}" if arithmetic and traffic else ""
