"""`foretell calibrate`: measure this machine, for `--target`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretell.cli.options import Json, Quiet, Threads, Verbose
from foretell.cli.output import Output
from foretell.support.errors import UsageError


def calibrate_command(
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.toml", help="Where to write; the CPU's name unless given."),
    ] = None,
    threads: Threads = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=600, help="How long to measure.")] = 10.0,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Measure what the cores, caches and memory of this machine do, and write a file for `--target`."""
    from foretell.calibrate.calibrate_host import calibrate_host
    from foretell.report.tables import table

    if to is not None:
        _check_path(to)
    output = Output(json, quiet, verbose)
    with output.progress() as progress:
        found = calibrate_host(threads, seconds, progress)
    path = Path(f"{found.spec.name}.toml") if to is None else to
    _write(path, found.to_toml())
    rows = [
        (
            figure.what,
            "" if figure.known is None else f"{figure.known:.4g}",
            f"{figure.measured:.4g}",
            figure.unit,
        )
        for figure in found.figures
    ]
    output.show(
        table("", f"as {found.spec.name}", "measured", "", rows=rows),
        "",
        f"wrote {path}: compile with --target {path}",
        facts={**found.to_json(), "file": str(path)},
    )


def _check_path(path: Path) -> None:
    """Before anything is measured."""
    if path.suffix != ".toml" or not path.parent.is_dir():
        raise UsageError(
            "the measurements cannot be written there",
            where="--output",
            expected="a name that ends in .toml, in a folder that exists",
            got=str(path),
            hint="`foretell calibrate -o here.toml` writes into this folder",
        )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "the measurements cannot be written",
            where=str(path),
            expected="a file that can be written",
            got=error.strerror or str(error),
            hint="choose another place with -o",
        ) from error
