"""TVM with its default schedules."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import onnx

from benchmarks.contestants import Job, Runner


def prepare(job: Job) -> Runner:
    return make_runner(job, lambda module, target: module)


def make_runner(job: Job, schedule: Any) -> Runner:
    """`schedule` turns a translated module and a target into a module to compile."""
    tvm, relax = import_module("tvm"), import_module("tvm.relax")
    from_onnx = import_module("tvm.relax.frontend.onnx").from_onnx
    shapes = {name: list(array.shape) for name, array in job.feeds.items()}
    module = from_onnx(onnx.load(job.model), shape_dict=shapes, keep_params_in_input=False)
    target = tvm.target.Target({"kind": "llvm", "mcpu": _cpu(), "num-cores": job.threads})
    machine = relax.VirtualMachine(tvm.compile(schedule(module, target), target=target), tvm.cpu())
    inputs = [tvm.runtime.tensor(array) for array in job.feeds.values()]

    def run() -> Any:
        return machine["main"](*inputs)

    def outputs() -> list[np.ndarray]:
        found = run()
        return [found.numpy()] if hasattr(found, "numpy") else [tensor.numpy() for tensor in found]

    return Runner(run, outputs)


def _cpu() -> str:
    """This machine's CPU, as LLVM calls it."""
    return import_module("tvm.target.codegen").llvm_get_system_cpu()
