"""Models named on the command line: ONNX files, which are compiled, and compiled ones, which are loaded."""

from __future__ import annotations

from pathlib import Path

from foretell.runtime.artifact import MAGIC
from foretell.runtime.session import CompiledModel
from foretell.support.progress import Steps
from foretell.support.stage_times import StageTimes


def is_compiled(path: Path) -> bool:
    """By name or by content; what cannot be read is left to those who say why."""
    if path.suffix == ".foretell" or not path.is_file():
        return path.suffix == ".foretell"
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


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
