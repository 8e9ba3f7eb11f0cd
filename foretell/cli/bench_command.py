"""`foretell bench`: how long one call of a model takes here."""

from __future__ import annotations

from typing import Annotated

import typer

from foretell.cli.options import AnyModel, Inputs, Json, Quiet, Seed, Shapes, Threads, Verbose
from foretell.cli.output import Output
from foretell.report.tables import table


def bench_command(
    model: AnyModel,
    input: Inputs = None,
    shape: Shapes = None,
    seed: Seed = 0,
    threads: Threads = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Calls to time; by time unless given.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to go on calling.")] = 2.0,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Time a model: p50, p90 and p99 of one call, warm-up excluded."""
    from foretell.cli.environment import describe_environment
    from foretell.cli.inputs import fill_feeds, load_feeds, parse_shapes
    from foretell.cli.models import open_model
    from foretell.report.bench_model import bench_model

    output = Output(json, quiet, verbose)
    shapes = parse_shapes(shape or ())
    with output.progress() as progress:
        compiled = open_model(model, shapes, threads=threads, progress=progress)
        feeds = fill_feeds(load_feeds(input or (), compiled.inputs), compiled.inputs, seed, shapes)
        progress.step("bench")
        report = bench_model(compiled, feeds, runs=runs, seconds=seconds)
    here = describe_environment()
    machine = f"{here.cpu}, {here.platform}, foretell {here.foretell}, seed {seed}"
    sizes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in feeds.items())
    times_ms = (report.p50_ms, report.p90_ms, report.p99_ms, report.min_ms, report.mean_ms)
    row = tuple(f"{time_ms:.3f}" for time_ms in times_ms)
    output.show(
        table("p50 ms", "p90 ms", "p99 ms", "min ms", "mean ms", rows=[row]),
        "",
        f"{report.runs} runs after {report.warmup_runs} of warm-up, threads: {report.threads}, {sizes}",
        machine,
        facts={**report.to_json(), "machine": machine, "inputs": {n: list(a.shape) for n, a in feeds.items()}},
    )
