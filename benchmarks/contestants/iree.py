"""IREE's CPU backend, compiled for this machine."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants import Job, Runner

OPSET = "18"
COMPILE = (
    "--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling",
)  # fmt: skip


def prepare(job: Job) -> Runner:
    function, device = _load(job, _compile(job))
    runtime = import_module("iree.runtime")
    inputs = [runtime.asdevicearray(device, array) for array in job.feeds.values()]

    def run() -> list[np.ndarray]:
        """Reading results waits for them."""
        found = function(*inputs)
        return [array.to_host() for array in (found if isinstance(found, (list, tuple)) else [found])]

    return Runner(run, run)


def _compile(job: Job) -> Path:
    programs = Path(sys.executable).parent
    imported, compiled = job.scratch / "model.mlir", job.scratch / "model.vmfb"
    if compiled.exists():
        return compiled
    translate = [programs / "iree-import-onnx", job.model, "--opset-version", OPSET, "-o", imported]
    for command in (translate, [programs / "iree-compile", imported, "-o", compiled, *COMPILE]):
        subprocess.run(command, check=True, stdout=sys.stderr)
    return compiled


def _load(job: Job, compiled: Path) -> tuple[Any, Any]:
    runtime = import_module("iree.runtime")
    if job.threads > 1:
        runtime.flags.parse_flags(f"--task_topology_group_count={job.threads}")
    instance = runtime.VmInstance()
    device = runtime.get_device("local-sync" if job.threads == 1 else "local-task")
    module = runtime.VmModule.mmap(instance, str(compiled))
    modules = (runtime.create_hal_module(instance, device), module)
    context = runtime.SystemContext(vm_modules=modules, config=runtime.Config(device=device))
    bound = context.modules[module.name]
    names = bound.vm_module.function_names
    return bound[next(name for name in names if not name.startswith("__") and not name.endswith("$async"))], device
