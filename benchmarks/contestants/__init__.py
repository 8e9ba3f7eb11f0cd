"""Who takes part. A contestant is a module with one function, `prepare(job) -> Runner`, named in `CONTESTANTS`.

It runs in a process of its own, perhaps in another environment, so it imports nothing of foretell but what it times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata, util
from pathlib import Path

import numpy as np

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Job:
    """What a contestant prepares: a model file, inputs by name, a number of threads, and a folder to itself.

    The folder is the same in every heat of a race: what was converted there need not be again.
    """

    model: Path
    feeds: Feeds
    threads: int
    scratch: Path


@dataclass(frozen=True, slots=True)
class Runner:
    """`run` is what is timed: it returns when the results are ready. `outputs` gives them, in the model's order."""

    run: Callable[[], object]
    outputs: Callable[[], Sequence[np.ndarray]]
    save: Callable[[Path], None] | None = None
    """Writes what was compiled to a file, where the engine can do that."""


@dataclass(frozen=True, slots=True)
class Contestant:
    module: str
    """Inside this package."""
    imports: tuple[str, ...]
    """What must be importable, the engine itself first."""
    distribution: str
    """What its version is read from."""

    def missing(self) -> list[str]:
        return [name for name in self.imports if not _is_importable(name)]

    def version(self) -> str:
        return metadata.version(self.distribution)

    def prepare(self, job: Job) -> Runner:
        return import_module(f"{__name__}.{self.module}").prepare(job)


def _is_importable(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


OURS = "foretell"
REFERENCE = "onnxruntime"
"""Whose outputs the others' are compared with."""
CONTESTANTS = {
    OURS: Contestant("foretell", ("foretell",), "foretell"),
    REFERENCE: Contestant("onnxruntime", ("onnxruntime",), "onnxruntime"),
    "openvino": Contestant("openvino", ("openvino",), "openvino"),
    "mnn": Contestant("mnn", ("MNN",), "MNN"),
    "torch": Contestant("torch_eager", ("torch",), "torch"),
    "torch_compile": Contestant("torch_compile", ("torch",), "torch"),
    "ncnn": Contestant("ncnn", ("ncnn", "pnnx"), "ncnn"),
    "tvm": Contestant("tvm", ("tvm",), "apache-tvm"),
    "tvm_tuned": Contestant("tvm_tuned", ("tvm", "xgboost"), "apache-tvm"),
    "iree": Contestant("iree", ("iree.compiler", "iree.runtime"), "iree-base-compiler"),
    "halide": Contestant("halide", ("halide",), "halide"),
}
DEFAULT_PEERS = ("onnxruntime", "openvino", "mnn")
SAVED_SUFFIX = ".foretell"
"""Of files that foretell loads instead of compiling a model."""


def base_name(name: str) -> str:
    """Whose variant a contestant is: what stands in brackets tells them apart, as in `foretell (no fusion)`."""
    return name.partition(" (")[0]


def find_contestant(name: str) -> Contestant:
    """By its name or that of a variant of it, which differs in the file it is given."""
    return CONTESTANTS[base_name(name)]
