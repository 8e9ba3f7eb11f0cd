"""The `foretell` command.

Exit codes: 0 done; 1 the model, its data or a limit is at fault; 2 the command line is.
Commands import what they need themselves, so that `--help` and `--version` answer at once.
"""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from foretell.cli.output import Output
from foretell.report.tables import table
from foretell.support.errors import ForetellError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from foretell.graph.nodes import Array, Graph

Model: TypeAlias = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
Shapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1x3x224x224", help="Fix the shape of an input; may be repeated."),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Keep every step, and show tracebacks.")]

app = typer.Typer(help="A deep-learning compiler that predicts instead of profiling.", pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib import metadata

        typer.echo(f"foretell {metadata.version('foretell')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def check(
    model: Model, shape: Shapes = None, json: Json = False, quiet: Quiet = False, verbose: Verbose = False
) -> None:
    """Say what a model needs: operators and their status, inputs, outputs, flops and parameter bytes."""
    from foretell.cli.inputs import parse_shapes
    from foretell.report.check import check_model

    output = Output(json, quiet, verbose)
    with output.progress() as progress:
        progress.step("check", str(model))
        report = check_model(model, shapes=parse_shapes(shape or ()))
    output.show(report, ok=report.ok, facts=report.to_json())
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def explain(
    model: Model,
    after: Annotated[str | None, typer.Option(metavar="PASS", help="Print the graph as this pass left it.")] = None,
    shape: Shapes = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print the simplified graph, operator by operator, and the passes that made it."""
    from foretell.cli.inputs import parse_shapes
    from foretell.compiler import import_model, simplify
    from foretell.report.passes import passes_json, passes_table, summarise_passes
    from foretell.support.trace import Trace

    output = Output(json, quiet, verbose)
    trace: Trace[Graph] = Trace(keep_ir=True)
    shapes = parse_shapes(shape or ())
    with output.progress() as progress:
        progress.step("import", str(model))
        graph = trace.start("import", lambda: import_model(model, shapes=shapes))
        progress.step("simplify", f"{len(graph.nodes)} nodes")
        graph = simplify(graph, trace=trace)
    shown = str(graph if after is None else trace.after(after))
    passes = [] if quiet else ["", passes_table(summarise_passes(trace.records))]
    output.show(shown, *passes, facts={"graph": shown, "passes": passes_json(trace.records)})


@app.command()
def run(
    model: Model,
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE.npy", help="An input; those not given are random. May be repeated."),
    ] = None,
    shape: Shapes = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    save: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write output_0.npy, ... here.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a model on the reference path: correct, and slow."""
    from foretell.cli.inputs import fill_feeds, load_feeds, parse_shapes
    from foretell.compiler import import_model, simplify
    from foretell.graph.evaluate import evaluate

    output = Output(json, quiet, verbose)
    with output.progress() as progress:
        progress.step("import", str(model))
        graph = import_model(model, shapes=parse_shapes(shape or ()))
        feeds = fill_feeds(load_feeds(input or (), graph.inputs), graph.inputs, seed)
        progress.step("simplify", f"{len(graph.nodes)} nodes")
        graph = simplify(graph)
        progress.step("run", "on the reference path, which is slow")
        results = evaluate(graph, feeds)
    saved = [] if save is None else _save(save, results)
    given = [_summary(name, array) for name, array in feeds.items()]
    made = [_summary(name, array) for name, array in results.items()]
    parts: list[RenderableType] = [_summary_table({"input": given, "output": made})]
    if saved:
        parts += ["", f"saved {', '.join(saved)}"]
    output.show(*parts, facts={"inputs": given, "outputs": made, "saved": saved})


@app.command()
def env(json: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Show versions, the CPU and the threads this process may use."""
    from foretell.cli.environment import describe_environment

    found = describe_environment()
    rows: list[tuple[object, ...]] = [
        ("foretell", found.foretell),
        ("python", found.python),
        ("platform", found.platform),
        *found.packages.items(),
        ("cpu", f"{found.cpu} ({found.cpu_family})"),
        ("threads", str(found.threads)),
    ]
    if verbose:
        rows.append(("features", " ".join(found.cpu_features)))
    Output(json, quiet, verbose).show(table("", "", rows=rows), facts=found.to_json())


@app.command()
def targets(json: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """List the CPUs that code can be generated for, and what `native` resolves to here."""
    from foretell.cli.targets import describe_targets

    found = describe_targets()
    native = found.native.resolved if found.native else "none: foretell does not generate code for this machine"
    Output(json, quiet, verbose).show(found.to_table(), "", f"native is {native}", facts=found.to_json())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed, bugs are raised."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    output = Output(as_json="--json" in words, verbose="-v" in words or "--verbose" in words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return app(words, prog_name="foretell", standalone_mode=False) or 0
    except ForetellError as error:
        output.show_error(error)
        return 2 if isinstance(error, UsageError) else 1
    except typer.TyperException as error:
        output.show_error(
            UsageError(
                error.format_message().rstrip("."),
                expected="a command and its options",
                got=shlex.join(["foretell", *words]),
                hint="`foretell --help` lists the commands, `foretell COMMAND --help` the options of one",
            )
        )
        return 2


def _summary(name: str, array: Array) -> dict[str, object]:
    """The facts of one array that fit on a line. What JSON cannot say (nan, inf) is a string."""
    import numpy as np

    from foretell.ir.dtypes import from_numpy

    values = np.asarray(array).astype(np.float64)
    facts: dict[str, object] = {"name": name, "dtype": str(from_numpy(array.dtype)), "shape": list(array.shape)}
    for title, function in (("min", np.min), ("mean", np.mean), ("max", np.max)):
        with np.errstate(all="ignore"):
            value = float(function(values)) if values.size else float("nan")
        facts[title] = value if np.isfinite(value) else str(value)
    return facts


def _summary_table(groups: dict[str, list[dict[str, object]]]) -> Table:
    columns = ("name", "dtype", "shape", "min", "mean", "max")
    rows = [(kind, *(facts[column] for column in columns)) for kind, group in groups.items() for facts in group]
    return table("", *columns, rows=rows)


def _save(folder: Path, results: dict[str, Array]) -> list[str]:
    """Write the outputs in order; the files, in that order."""
    import numpy as np

    files = [folder / f"output_{index}.npy" for index in range(len(results))]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, array in zip(files, results.values(), strict=True):
            np.save(file, array)
    except OSError as error:
        raise UsageError(
            "the outputs cannot be written",
            where="--save",
            expected="a folder, which is made if it is missing",
            got=str(error),
            hint="choose another folder",
        ) from error
    return [str(file) for file in files]
