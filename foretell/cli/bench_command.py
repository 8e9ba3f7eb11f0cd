"""`foretell bench`: how long one call of a model takes here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli.options import AnyModel, Inputs, Json, Quiet, Seed, Shapes, Threads, Verbose
from foretell.cli.output import Output
from foretell.report.tables import table
from foretell.support.errors import UsageError


def bench_command(
    model: AnyModel,
    input: Inputs = None,
    shape: Shapes = None,
    seed: Seed = 0,
    threads: Threads = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Calls to time; by time unless given.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to go on calling.")] = 2.0,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="What `bench --json` printed before, to compare p50 with.")
    ] = None,
    fail_if: Annotated[
        float, typer.Option(min=0.0, metavar="PERCENT", help="Exit with 1 if p50 is slower than the baseline by more.")
    ] = 5.0,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Time a model: p50, p90 and p99 of one call, warm-up excluded."""
    from foretell.cli.environment import describe_environment
    from foretell.cli.inputs import fill_feeds, load_feeds, parse_shapes, sizes_line
    from foretell.cli.models import open_model
    from foretell.report.bench_model import bench_model

    output = Output(json, quiet, verbose)
    before_ms = None if baseline is None else _read_baseline(baseline)
    shapes = parse_shapes(shape or ())
    with output.progress() as progress:
        compiled = open_model(model, shapes, threads=threads, progress=progress)
        feeds = fill_feeds(load_feeds(input or (), compiled.inputs), compiled.inputs, seed, shapes)
        progress.step("bench")
        report = bench_model(compiled, feeds, runs=runs, seconds=seconds)
    here = describe_environment()
    machine = f"{here.cpu}, {here.platform}, foretell {here.foretell}, seed {seed}"
    times_ms = (report.p50_ms, report.p90_ms, report.p99_ms, report.min_ms, report.mean_ms)
    row = tuple(f"{time_ms:.3f}" for time_ms in times_ms)
    change = None if before_ms is None else (report.p50_ms / before_ms - 1) * 100
    ok = change is None or change <= fail_if
    compared = [] if change is None else [f"{change:+.1f} % against {baseline}, at most {fail_if:+g} % is allowed"]
    output.show(
        table("p50 ms", "p90 ms", "p99 ms", "min ms", "mean ms", rows=[row]),
        "",
        f"{report.runs} runs after {report.warmup_runs} of warm-up, threads: {report.threads}, {sizes_line(feeds)}",
        machine,
        *compared,
        ok=ok,
        facts={
            **report.to_json(),
            "machine": machine,
            "inputs": {name: list(array.shape) for name, array in feeds.items()},
            "change_percent": change,
        },
    )
    if not ok:
        raise typer.Exit(1)


def _read_baseline(path: Path) -> float:
    """The p50 of an earlier run."""
    import json

    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        facts = {"p50_ms": str(error)}
    found = facts.get("p50_ms") if isinstance(facts, dict) else None
    if isinstance(found, int | float) and found > 0:
        return float(found)
    raise UsageError(
        "a baseline cannot be read",
        where=f"--baseline {path}",
        expected="what `foretell bench --json` prints",
        got=str(found),
        hint="write one with `foretell bench MODEL --json > FILE.json`",
    )
