"""`foretell compile`: from an ONNX file to one file of machine code and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli.options import Json, Model, Quiet, Shapes, Target, Threads, Verbose, WinogradError
from foretell.cli.output import Output
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR


def compile_command(
    model: Model,
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write; MODEL.foretell unless given."),
    ] = None,
    target: Target = "native",
    threads: Threads = None,
    shape: Shapes = None,
    winograd_error: WinogradError = DEFAULT_WINOGRAD_ERROR,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Compile a model into one file, and say how much memory it needs and where the time went."""
    from foretell.cli.inputs import parse_shapes
    from foretell.compiler import compile
    from foretell.report.compiled import describe_compiled
    from foretell.support.stage_times import StageTimes

    output, times = Output(json, quiet, verbose), StageTimes()
    path = model.with_suffix(".foretell") if to is None else to
    shapes = parse_shapes(shape or ())
    with output.progress() as progress:
        made = compile(
            model,
            target=target,
            threads=threads,
            shapes=shapes,
            winograd_error=winograd_error,
            progress=progress,
            times=times,
        )
        progress.step("save", str(path))
        with times.measure("save"):
            made.save(path)
    report = describe_compiled(made, times)
    size = path.stat().st_size
    output.show(
        report.to_table(),
        "",
        report.stages_line(),
        f"saved {path}",
        facts={**report.to_json(), "file": str(path), "file_bytes": size},
    )
