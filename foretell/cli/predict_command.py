"""`foretell predict`: how long a model will take on a machine that need not be here."""

from __future__ import annotations

from foretell.cli.options import Json, Model, Quiet, Shapes, Target, Threads, Verbose, WinogradError
from foretell.cli.output import Output
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR


def predict_command(
    model: Model,
    target: Target = "native",
    threads: Threads = None,
    shape: Shapes = None,
    winograd_error: WinogradError = DEFAULT_WINOGRAD_ERROR,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict the time of one call, kernel by kernel, without running anything."""
    from foretell.cli.inputs import parse_shapes
    from foretell.compiler import choose_algorithms, import_model, lower_program, simplify
    from foretell.report.predict_model import predict_model
    from foretell.target.resolve import resolve_target

    output = Output(json, quiet, verbose)
    shapes = parse_shapes(shape or ())
    with output.progress() as progress:
        resolved = resolve_target(target)
        progress.step("import", str(model))
        graph = simplify(import_model(model, shapes=shapes))
        graph = choose_algorithms(graph, resolved.spec, winograd_error)
        progress.step("predict", f"{len(graph.nodes)} nodes for {resolved}")
        count = resolved.spec.cores if threads is None else threads
        found = predict_model(graph, lower_program(graph, resolved), resolved, count)
    output.show(found.to_table(), "", found.summary(), facts=found.to_json())
