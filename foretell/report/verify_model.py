"""Whether a compiled model computes what it should: against the evaluator, and against onnxruntime if it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from foretell.compiler import choose_algorithms, link_program, simplify
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph, Value
from foretell.graph.rewrite import with_outputs
from foretell.report import onnxruntime_peer
from foretell.report.compare import Comparison, compare
from foretell.report.measure_winograd import OTHER_WAYS, WinogradLayer, measure_winograd
from foretell.report.tables import table
from foretell.runtime.session import CompiledModel
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR
from foretell.support.progress import Steps
from foretell.target.resolve import Target


@dataclass(frozen=True, slots=True)
class Culprit:
    """The first value in the order of execution that is over tolerance, and the kernel that made it."""

    value: str
    operator: str
    location: str
    comparison: Comparison

    def to_json(self) -> dict[str, object]:
        return {
            "value": self.value,
            "operator": self.operator,
            "where": self.location,
            "comparison": self.comparison.to_json(),
        }


@dataclass(frozen=True, slots=True)
class VerifyReport:
    comparisons: tuple[Comparison, ...]
    layers: tuple[WinogradLayer, ...]
    culprit: Culprit | None
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(part.ok for part in (*self.comparisons, *self.layers))

    def to_json(self) -> dict[str, object]:
        return {
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "winograd": [layer.to_json() for layer in self.layers],
            "culprit": None if self.culprit is None else self.culprit.to_json(),
            "notes": list(self.notes),
        }

    def to_tables(self) -> tuple[Table, ...]:
        """Of the outputs, and of the layers computed by Winograd's method if there are some."""
        outputs: list[tuple[object, ...]] = [_row(comparison) for comparison in self.comparisons]
        tables = (table("output", "against", "max abs", "max rel", "needs", "tolerance", "", rows=outputs),)
        layers: list[tuple[object, ...]] = [layer.to_row() for layer in self.layers]
        columns = ("layer by Winograd", "tile", "predicted", "measured", "budget", "")
        return (*tables, table(*columns, rows=layers)) if layers else tables

    def lines(self) -> tuple[str, ...]:
        """Notes, what is known of the fault, and the verdict."""
        differ = sum(not comparison.ok for comparison in self.comparisons)
        over = sum(not layer.ok for layer in self.layers)
        faults = [f"{differ} of {len(self.comparisons)} differ"] if differ else []
        faults += [f"{over} of {len(self.layers)} layers over their error budget"] if over else []
        verdict = f"not ok: {', '.join(faults)}" if faults else "ok: all within tolerance"
        return (*self.notes, *((_explained(self.culprit),) if differ else ()), verdict)


def _row(comparison: Comparison) -> tuple[str, ...]:
    numbers = (comparison.max_abs, comparison.max_rel, comparison.needed, comparison.tolerance)
    verdict = "ok" if comparison.ok else comparison.problem or "over tolerance"
    return comparison.name, comparison.reference, *(f"{number:.2g}" for number in numbers), verdict


def _explained(culprit: Culprit | None) -> str:
    if culprit is None:
        return "every kernel agrees with the simplified graph: a rewrite changed the result, or the references differ"
    where = culprit.location or "no ONNX node"
    return (
        f"first over tolerance: {culprit.value}, made by {culprit.operator} at {where}, "
        f"needs {culprit.comparison.needed:.2g}"
    )


def verify_model(
    path: Path,
    graph: Graph,
    feeds: Mapping[str, Array],
    *,
    target: Target,
    threads: int,
    progress: Steps,
    tolerance: float | None = None,
    winograd_error: float = DEFAULT_WINOGRAD_ERROR,
) -> VerifyReport:
    """Compile the graph that was imported from `path`, run it, and compare."""
    progress.step("compile", f"{len(graph.nodes)} nodes")
    direct = simplify(graph)
    chosen = choose_algorithms(direct, target.spec, winograd_error)
    model = link_program(chosen, target, threads)
    found = model.run(feeds)
    progress.step("evaluate", "on the reference path, which is slow")
    comparisons = compare_outputs(found, evaluate(graph, feeds), "evaluator", tolerance)
    progress.step("run", "onnxruntime")
    others, notes = _second_opinion(path, feeds, found, tolerance)
    comparisons += others
    ok = all(comparison.ok for comparison in comparisons)
    culprit = None if ok else find_culprit(chosen, model, feeds, tolerance)
    progress.step("measure", "layers computed by Winograd's method")
    layers = measure_winograd(direct, chosen, feeds, target, threads, winograd_error)
    return VerifyReport(tuple(comparisons), layers, culprit, (*notes, *_unmeasured(chosen)))


def _unmeasured(graph: Graph) -> tuple[str, ...]:
    everywhere, here = (sum(node.op in OTHER_WAYS for node in nodes) for nodes in (graph.walk(), graph.nodes))
    hidden = everywhere - here
    return (f"not measured: layers by Winograd in branches and loops ({hidden})",) if hidden else ()


def compare_outputs(
    found: Mapping[str, Array], expected: Mapping[str, Array], reference: str, tolerance: float | None
) -> list[Comparison]:
    return [compare(name, array, expected[name], reference, tolerance) for name, array in found.items()]


def _second_opinion(
    path: Path, feeds: Mapping[str, Array], found: Mapping[str, Array], tolerance: float | None
) -> tuple[list[Comparison], tuple[str, ...]]:
    """Comparisons with onnxruntime, or a note why there are none."""
    if not onnxruntime_peer.is_installed():
        return [], ("onnxruntime is not installed",)
    peer, refusal = onnxruntime_peer.try_run(str(path), feeds, list(found))
    if peer is None:
        return [], (f"onnxruntime does not run it: {refusal}",)
    return compare_outputs(found, peer, "onnxruntime", tolerance), ()


def find_culprit(
    graph: Graph, model: CompiledModel, feeds: Mapping[str, Any], tolerance: float | None
) -> Culprit | None:
    """The first kernel whose result is over tolerance, in the simplified graph that was compiled.

    Only what the compiled model holds in memory anyway is looked at, so that its kernels stay the same. None if
    each of these agrees with the evaluator of the simplified graph: then a rewrite changed the result.
    """
    probed = with_outputs(graph, materialised(graph, model))
    found = link_program(probed, model.target, model.threads).run(feeds)
    expected = evaluate(probed, {name: np.asarray(array) for name, array in feeds.items()})
    for value in probed.outputs:
        comparison = compare(value.name, found[value.name], expected[value.name], "evaluator", tolerance)
        if not comparison.ok:
            node = probed.producers[value]
            return Culprit(value.name, node.op, node.location, comparison)
    return None


def materialised(graph: Graph, model: CompiledModel) -> tuple[Value, ...]:
    """Values of the graph that kernels write to memory, in the order of execution."""
    held = {slot.name for slot in model.program.slots}
    return tuple(value for node in graph.nodes for value in node.outputs if value.name in held)
