"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Model: TypeAlias = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
AnyModel: TypeAlias = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a compiled model (.foretell).")
]
Shapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1x3x224x224", help="Fix the shape of an input; may be repeated."),
]
Inputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="[NAME=]FILE.npy",
        help="An input, or a .npz of several; those not given are random. May be repeated.",
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Of the random inputs.")]
Target: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="CPU", help="The CPU to make code for: `foretell targets` lists them, `foretell calibrate` writes one."
    ),
]
Threads: TypeAlias = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Threads to run on; all that this process may use unless given.")
]
WinogradError: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="FRACTION",
        min=0,
        help="Error that a layer computed by Winograd's methods may have, of its greatest result; 0: none is.",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Keep every step, and show tracebacks.")]
