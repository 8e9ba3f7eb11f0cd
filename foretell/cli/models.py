"""Models named on the command line: ONNX files, which are compiled, and compiled ones, which are loaded."""

from __future__ import annotations

from pathlib import Path

from foretell.runtime.session import CompiledModel
from foretell.support.progress import Steps
from foretell.support.stage_times import StageTimes

MAGIC = b"foretell"


def is_compiled(path: Path) -> bool:
    """By content, so that names do not matter; what cannot be read is left to those who say why."""
    try:
        with path.open("rb") as file:
            return path.suffix == ".foretell" or file.read(len(MAGIC)) == MAGIC
    except OSError:
        return path.suffix == ".foretell"


def open_model(
    path: Path,
    shapes: dict[str, tuple[int, ...]],
    *,
    threads: int | None,
    progress: Steps,
    target: str = "native",
    times: StageTimes | None = None,
) -> CompiledModel:
    """Load or compile; the compiler is imported only for what needs it."""
    if is_compiled(path):
        from foretell.runtime.load_model import load

        progress.step("load", str(path))
        return load(path, threads=threads)
    from foretell.compiler import compile

    return compile(path, target=target, threads=threads, shapes=shapes, progress=progress, times=times)
