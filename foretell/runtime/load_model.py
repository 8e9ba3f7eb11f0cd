"""Loading a compiled model: neither ONNX nor any compiler stage is imported."""

from __future__ import annotations

import os

from foretell.runtime.arena import gathered
from foretell.runtime.artifact import read_artifact
from foretell.runtime.session import CompiledModel
from foretell.target.threads import default_threads


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> CompiledModel:
    """A model that `CompiledModel.save` wrote, ready to be called. Load only files that you trust: they hold code.

    `threads` defaults to what this process may use.
    """
    artifact = read_artifact(path)
    count = default_threads() if threads is None else threads
    return CompiledModel(artifact.program, artifact.binary, gathered(artifact.constants), threads=count)
