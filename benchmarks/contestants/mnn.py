"""MNN in high precision. The model goes through the converter inside the package.

The package's own conversion script is never run: it installs telemetry into the interpreter on PATH.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import numpy as np
import onnx

from benchmarks.contestants import Job, Runner

CONVERT = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"


def prepare(job: Job) -> Runner:
    converted = job.scratch / "model.mnn"
    options = ["-f", "ONNX", "--modelFile", str(job.model), "--MNNModel", str(converted), "--bizCode", "benchmark"]
    if not converted.exists():
        subprocess.run([sys.executable, "-c", CONVERT, *options], check=True, stdout=sys.stderr)
    network = _load(job, str(converted))
    variables = [_placeholder(array) for array in job.feeds.values()]

    def run() -> list[np.ndarray]:
        """Reading an output is what computes it."""
        return [output.read() for output in network.forward(variables)]

    return Runner(run, run)


def _load(job: Job, converted: str) -> Any:
    nn = import_module("MNN.nn")
    graph = onnx.load(job.model, load_external_data=False).graph
    settings = {"backend": "CPU", "numThread": job.threads, "precision": "high"}
    manager = nn.create_runtime_manager((settings,))
    outputs = [output.name for output in graph.output]
    return nn.load_module_from_file(converted, list(job.feeds), outputs, runtime_manager=manager)


def _placeholder(array: np.ndarray) -> Any:
    """MNN's integers have 32 bits."""
    expr = import_module("MNN.expr")
    is_float = array.dtype == np.float32
    variable = expr.placeholder(list(array.shape), expr.NCHW, expr.float if is_float else expr.int)
    variable.write(np.ascontiguousarray(array if is_float else array.astype(np.int32)))
    return variable
