"""torch, operator by operator, without gradients."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.contestants import Job, Runner


def prepare(job: Job) -> Runner:
    return make_runner(job, lambda module: module)


def make_runner(job: Job, compile_module: Any) -> Runner:
    torch = import_module("torch")
    torch.set_num_threads(job.threads)
    module = compile_module(import_module("benchmarks.contestants.torch_graph").load_module(job.model))
    inputs = [torch.from_numpy(array) for array in job.feeds.values()]

    def run() -> Any:
        with torch.inference_mode():
            return module(*inputs)

    def outputs() -> list[np.ndarray]:
        return [output.numpy() for output in run()]

    return Runner(run, outputs)
