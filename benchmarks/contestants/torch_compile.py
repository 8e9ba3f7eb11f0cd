"""torch.compile with frozen weights. It compiles when it is first called, with the system's C++ compiler."""

from __future__ import annotations

import os
from importlib import import_module

from benchmarks.contestants import Job, Runner
from benchmarks.contestants.torch_eager import make_runner


def prepare(job: Job) -> Runner:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(job.scratch / "inductor")
    os.environ["TORCHINDUCTOR_FREEZING"] = "1"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # a pool of compilers would not end with this process
    return make_runner(job, import_module("torch").compile)
