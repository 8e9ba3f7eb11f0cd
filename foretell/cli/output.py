"""Where a command's results go: text for people, or one JSON object for programs, on stdout."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

import typer
from rich.console import Console, RenderableType

from foretell.support.errors import ForetellError
from foretell.support.printable import printable
from foretell.support.progress import Progress

UNBROKEN_WIDTH = 240


@dataclass(frozen=True, slots=True)
class Output:
    """The choices every command offers: `--json`, `-q` and `-v`."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False

    def progress(self) -> Progress:
        """A live line on a terminal; `-v` keeps every step on the screen, `-q` shows none."""
        return Progress(self.quiet, live=False if self.verbose else None)

    def show(self, *parts: RenderableType, ok: bool = True, facts: Mapping[str, object]) -> None:
        """Print the parts, or with `--json` the facts."""
        if self.as_json:
            typer.echo(json.dumps({"ok": ok, **facts}, allow_nan=False))
            return
        for part in parts:
            typer.echo(printable(part) if isinstance(part, str) else _rendered(part))

    def show_error(self, error: ForetellError) -> None:
        """The three lines on stderr, or with `--json` an object on stdout; `-v` adds the traceback on stderr."""
        if self.verbose:
            sys.stderr.writelines(traceback.format_exception(error))
        if self.as_json:
            typer.echo(json.dumps({"ok": False, "error": error.to_json()}))
        else:
            typer.echo(printable(str(error)), err=True)


def _rendered(part: RenderableType) -> str:
    """For a terminal as it likes it; in a pipe or a file, lines are neither broken nor padded."""
    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if is_terminal or "COLUMNS" in os.environ else UNBROKEN_WIDTH)
    with console.capture() as capture:
        console.print(part)
    lines = capture.get().splitlines()
    return "\n".join(lines if is_terminal else [line.rstrip() for line in lines])
