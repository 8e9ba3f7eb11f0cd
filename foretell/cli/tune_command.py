"""`foretell tune`: measure schedules of a model on this machine, for `compile` to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli.options import Json, Model, Quiet, Shapes, Threads, Verbose
from foretell.cli.output import Output


def tune_command(
    model: Model,
    budget: Annotated[str, typer.Option(metavar="TIME", help="How long to measure: 30s, 5m, 1h.")] = "5m",
    threads: Threads = None,
    shape: Shapes = None,
    records: Annotated[
        Path | None, typer.Option(metavar="FILE.sqlite", help="Where measurements are kept; in the cache unless given.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.jsonl", help="Write all measurements there in the end, a line each.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Search for faster schedules by measuring; may be interrupted, and goes on where it stopped."""
    from foretell.cli.inputs import parse_shapes
    from foretell.report.tables import table
    from foretell.tune.budget import parse_budget
    from foretell.tune.tune_model import tune_model

    output, budget_s = Output(json, quiet, verbose), parse_budget(budget)
    with output.progress() as progress:
        report = tune_model(
            model,
            budget_s,
            threads=threads,
            shapes=parse_shapes(shape or ()),
            path=records,
            export=export,
            progress=progress,
        )
    rows = [
        (
            line.nest,
            f"{line.count}",
            f"{line.predicted_ms:.4g}",
            f"{1 / line.ratio:.3f}",
            f"{line.tried} of {line.space}",
        )
        for line in report.lines
    ]
    output.show(
        table("nest", "times", "ms as predicted", "best is faster by", "tried", rows=rows),
        "",
        f"{report.predicted_ms:.4g} ms as predicted, {report.best_ms:.4g} ms as measured; records in {report.path}",
        facts=report.to_json(),
    )
