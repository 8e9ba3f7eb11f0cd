"""Progress of a long call: one live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import shutil
import sys
from typing import Protocol, TextIO

from foretell.support.printable import printable


class Steps(Protocol):
    """What a library function asks for: `progress: Steps | None = None`."""

    def step(self, name: str, detail: str = "") -> None:
        """Say what begins now."""
        ...


class Progress:
    """Steps shown on a stream, stderr unless told. Leaving the `with` block clears the live line.

    with Progress() as progress:
        progress.step("import", "model.onnx")
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None, *, live: bool | None = None) -> None:
        """`live` says whether a step replaces the one before; by default it does where the stream is a terminal."""
        self._quiet = quiet
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty() if live is None else live
        self._shown = 0
        """Characters of the live line on the screen."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._replace_line("")
            self._write("\r")

    def step(self, name: str, detail: str = "") -> None:
        """Say what begins now."""
        text = printable(f"{name}: {detail}" if detail else name).replace("\n", " ")
        if self._quiet:
            return
        if self._live:
            self._replace_line(text[: shutil.get_terminal_size().columns - 1])
        else:
            self._write(text + "\n")

    def _replace_line(self, text: str) -> None:
        self._write("\r" + text.ljust(self._shown))
        self._shown = len(text)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
