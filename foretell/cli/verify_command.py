"""`foretell verify`: compiled code against the evaluator and, where it is installed, onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli.options import Inputs, Json, Model, Quiet, Seed, Shapes, Threads, Verbose
from foretell.cli.output import Output
from foretell.report.tables import table

if TYPE_CHECKING:
    from rich.table import Table

    from foretell.report.verify_model import Comparison, Culprit


def verify_command(
    model: Model,
    input: Inputs = None,
    shape: Shapes = None,
    seed: Seed = 0,
    threads: Threads = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, help="In parts of an output's largest number; by element type unless given."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare compiled code with the evaluator and onnxruntime; exit code 1 if an output is over tolerance."""
    from foretell.cli.inputs import fill_feeds, load_feeds, parse_shapes
    from foretell.compiler import import_model
    from foretell.graph.evaluate import evaluate
    from foretell.report import onnxruntime_peer
    from foretell.report.verify_model import compare_outputs, compile_graph, find_culprit
    from foretell.target.resolve import resolve_target
    from foretell.target.threads import default_threads

    output = Output(json, quiet, verbose)
    notes: list[str] = []
    with output.progress() as progress:
        graph = import_model(model, shapes=parse_shapes(shape or ()), progress=progress)
        feeds = fill_feeds(load_feeds(input or (), graph.inputs), graph.inputs, seed)
        progress.step("compile", f"{len(graph.nodes)} nodes")
        simplified, compiled = compile_graph(graph, resolve_target(), threads or default_threads())
        found = compiled.run(feeds)
        progress.step("evaluate", "on the reference path, which is slow")
        expected = evaluate(graph, feeds)
        comparisons = compare_outputs(found, expected, "evaluator", tolerance)
        if onnxruntime_peer.is_installed():
            progress.step("run", "onnxruntime")
            peer, refusal = onnxruntime_peer.try_run(str(model), feeds, compiled.output_names)
            notes += [f"onnxruntime does not run it: {refusal}"] if peer is None else []
            comparisons += [] if peer is None else compare_outputs(found, peer, "onnxruntime", tolerance)
        ok = all(comparison.ok for comparison in comparisons)
        culprit = None if ok else find_culprit(simplified, compiled, feeds, tolerance)
    if not ok:
        notes.append(_explained(culprit))
    verdict = f"{'ok' if ok else 'not ok'}: {sum(not each.ok for each in comparisons)} of {len(comparisons)} differ"
    facts = {
        "comparisons": [comparison.to_json() for comparison in comparisons],
        "culprit": None if culprit is None else culprit.to_json(),
        "notes": notes,
    }
    output.show(_table(comparisons), "", *notes, verdict, ok=ok, facts=facts)
    if not ok:
        raise typer.Exit(1)


def _explained(culprit: Culprit | None) -> str:
    if culprit is None:
        return (
            "no kernel is over tolerance by itself: a rewrite of the graph changed the result, or it is the reference"
        )
    return (
        f"first over tolerance: {culprit.value}, made by {culprit.operator} at {culprit.location or 'no ONNX node'}, "
        f"needs {culprit.comparison.needed:.2g}"
    )


def _table(comparisons: list[Comparison]) -> Table:
    rows: list[tuple[object, ...]] = [
        (
            comparison.name,
            comparison.reference,
            f"{comparison.max_abs:.2g}",
            f"{comparison.max_rel:.2g}",
            f"{comparison.needed:.2g}",
            f"{comparison.tolerance:.2g}",
            "ok" if comparison.ok else comparison.problem or "over tolerance",
        )
        for comparison in comparisons
    ]
    return table("output", "against", "max abs", "max rel", "needs", "tolerance", "", rows=rows)
