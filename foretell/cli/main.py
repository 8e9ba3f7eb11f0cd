"""The `foretell` command.

Exit codes: 0 done; 1 the model, its data or a limit is at fault; 2 the command line is.
Commands import what they need themselves, so that `--help` and `--version` answer at once.
"""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretell.cli.bench_command import bench_command
from foretell.cli.calibrate_command import calibrate_command
from foretell.cli.compile_command import compile_command
from foretell.cli.options import Json, Model, Quiet, Shapes, Target, Threads, Verbose
from foretell.cli.output import Output
from foretell.cli.predict_command import predict_command
from foretell.cli.run_command import run_command
from foretell.cli.tune_command import tune_command
from foretell.cli.verify_command import verify_command
from foretell.report.tables import table
from foretell.support.errors import ForetellError, UsageError

if TYPE_CHECKING:
    from foretell.graph.nodes import Graph

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
    kernels: Annotated[bool, typer.Option("--kernels", help="List the kernels instead.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE.html", help="Write a page: a picture of the kernels, times, terms, a roofline."
        ),
    ] = None,
    target: Target = "native",
    threads: Threads = None,
    shape: Shapes = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print the simplified graph, operator by operator, and the passes that made it; or its kernels."""
    from foretell.cli.explain_html import write_page
    from foretell.cli.inputs import parse_shapes
    from foretell.compiler import choose_algorithms, import_model, lower_program, simplify
    from foretell.report.choices import choices_table, describe_choices
    from foretell.report.groups import groups_table
    from foretell.report.kernels import describe_kernels, kernels_table
    from foretell.report.passes import passes_json, passes_table, summarise_passes
    from foretell.support.trace import Trace
    from foretell.target.resolve import resolve_target

    output = Output(json, quiet, verbose)
    trace: Trace[Graph] = Trace(keep_ir=True)
    shapes = parse_shapes(shape or ())
    with output.progress() as progress:
        progress.step("import", str(model))
        graph = trace.start("import", lambda: import_model(model, shapes=shapes))
        progress.step("simplify", f"{len(graph.nodes)} nodes")
        resolved = resolve_target(target)
        graph = simplify(graph, trace=trace)
        graph = trace.run("choose_algorithms", lambda before: choose_algorithms(before, resolved.spec), graph)
    if html is not None:
        count = resolved.spec.cores if threads is None else threads
        write_page(html, model.name, graph, resolved, count)
        output.show(f"wrote {html}", facts={"file": str(html)})
        return
    if kernels:
        lowered = lower_program(graph, resolved)
        found, choices = describe_kernels(lowered), describe_choices(lowered, resolved)
        output.show(
            kernels_table(found),
            "",
            choices_table(choices),
            "",
            groups_table(lowered.decisions),
            facts={
                "kernels": [kernel.to_json() for kernel in found],
                "sums_of_products": [asdict(choice) for choice in choices],
                "fusing": [asdict(decision) for decision in lowered.decisions],
            },
        )
        return
    shown = str(graph if after is None else trace.after(after))
    passes = [] if quiet else ["", passes_table(summarise_passes(trace.records))]
    output.show(shown, *passes, facts={"graph": shown, "passes": passes_json(trace.records)})


app.command("compile")(compile_command)
app.command("run")(run_command)
app.command("verify")(verify_command)
app.command("bench")(bench_command)
app.command("predict")(predict_command)
app.command("tune")(tune_command)
app.command("calibrate")(calibrate_command)


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
def targets(
    name: Annotated[
        str | None, typer.Argument(metavar="[CPU]", help="Show all numbers of this one, or of a spec file (.toml).")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List the CPUs that code can be generated for, and what `native` resolves to here."""
    from foretell.cli.targets import describe_targets, numbers_table
    from foretell.target.resolve import resolve_target

    output = Output(json, quiet, verbose)
    if name is not None:
        target = resolve_target(name)
        output.show(numbers_table(target), facts={"resolved": target.resolved, **target.spec.to_json()})
        return
    found = describe_targets()
    native = found.native.resolved if found.native else "none: foretell does not generate code for this machine"
    output.show(found.to_table(), "", f"native is {native}", facts=found.to_json())


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
