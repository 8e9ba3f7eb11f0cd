"""`foretell verify`: compiled code against the evaluator and, where it is installed, onnxruntime."""

from __future__ import annotations

from typing import Annotated

import typer

from foretell.cli.options import Inputs, Json, Model, Quiet, Seed, Shapes, Threads, Verbose, WinogradError
from foretell.cli.output import Output
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR

LEAST_SIZE = 3
"""What free dimensions stand for by default: ones would hide what goes wrong between elements."""


def verify_command(
    model: Model,
    input: Inputs = None,
    shape: Shapes = None,
    seed: Seed = 0,
    threads: Threads = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, help="In parts of an output's largest number; by element type by default."),
    ] = None,
    winograd_error: WinogradError = DEFAULT_WINOGRAD_ERROR,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compare compiled code with the evaluator and onnxruntime; exit code 1 if an output is over tolerance.

    For each layer computed by Winograd's methods, its error is measured; one above its budget is a failure too.
    """
    from foretell.cli.inputs import fill_feeds, load_feeds, parse_shapes, sizes_line
    from foretell.compiler import import_model
    from foretell.report.verify_model import verify_model
    from foretell.target.resolve import resolve_target
    from foretell.target.threads import default_threads

    output = Output(json, quiet, verbose)
    count = default_threads() if threads is None else threads
    with output.progress() as progress:
        graph = import_model(model, shapes=parse_shapes(shape or ()), progress=progress)
        feeds = fill_feeds(load_feeds(input or (), graph.inputs), graph.inputs, seed, least=LEAST_SIZE)
        report = verify_model(
            model,
            graph,
            feeds,
            target=resolve_target(),
            threads=count,
            progress=progress,
            tolerance=tolerance,
            winograd_error=winograd_error,
        )
    tried = f"inputs: {sizes_line(feeds) or 'none'}, seed {seed}, threads: {count}"
    facts = {**report.to_json(), "inputs": {name: list(array.shape) for name, array in feeds.items()}}
    tables = [part for made in report.to_tables() for part in (made, "")]
    output.show(*tables, tried, *report.lines(), ok=report.ok, facts=facts)
    if not report.ok:
        raise typer.Exit(1)
