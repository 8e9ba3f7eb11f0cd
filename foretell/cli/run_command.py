"""`foretell run`: one call of a model, on given or random inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretell.cli.options import AnyModel, Inputs, Json, Quiet, Seed, Shapes, Threads, Verbose
from foretell.cli.output import Output
from foretell.report.tables import table
from foretell.support.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def run_command(
    model: AnyModel,
    input: Inputs = None,
    shape: Shapes = None,
    seed: Seed = 0,
    threads: Threads = None,
    save: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write output_0.npy, ... here.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run a model once, on native code."""
    from foretell.cli.inputs import fill_feeds, load_feeds, parse_shapes
    from foretell.cli.models import open_model

    output = Output(json, quiet, verbose)
    shapes = parse_shapes(shape or ())
    with output.progress() as progress:
        compiled = open_model(model, shapes, threads=threads, progress=progress)
        feeds = fill_feeds(load_feeds(input or (), compiled.inputs), compiled.inputs, seed, shapes)
        progress.step("run")
        results = compiled.run(feeds)
    saved = [] if save is None else _save(save, results)
    given = [_summary(name, array) for name, array in feeds.items()]
    made = [_summary(name, array) for name, array in results.items()]
    parts: list[RenderableType] = [_summary_table({"input": given, "output": made})]
    if saved:
        parts += ["", f"saved {', '.join(saved)}"]
    output.show(*parts, facts={"inputs": given, "outputs": made, "saved": saved})


def _summary(name: str, array: Any) -> dict[str, object]:
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


def _save(folder: Path, results: dict[str, Any]) -> list[str]:
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
