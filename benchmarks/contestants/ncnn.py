"""ncnn in float32, converted by pnnx. It knows no batches: a leading dimension of one is left out."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contestants import Job, Runner

SUFFIXES = {"float32": "f32", "int64": "i64"}
CONVERT_LIMIT_S = 200


def prepare(job: Job) -> Runner:
    if not (job.scratch / "model.ncnn.param").exists():
        _convert(job)
    network = _load(job)
    inputs = dict(zip(network.input_names(), (_matrix(array) for array in job.feeds.values()), strict=True))
    names = list(network.output_names())

    def run() -> list[Any]:
        extractor = network.create_extractor()
        for name, matrix in inputs.items():
            extractor.input(name, matrix)
        found = [extractor.extract(name) for name in names]
        assert all(code == 0 for code, _ in found)
        return [matrix for _, matrix in found]

    return Runner(run, lambda: [np.array(matrix) for matrix in run()])


def _convert(job: Job) -> None:
    """pnnx writes beside its input."""
    (job.scratch / "model.onnx").write_bytes(job.model.read_bytes())
    shapes = ",".join(f"{list(array.shape)}{SUFFIXES[str(array.dtype)]}" for array in job.feeds.values())
    options = [f"inputshape={shapes.replace(' ', '')}", "fp16=0", "optlevel=2"]
    command = [_converter(), "model.onnx", *options]
    subprocess.run(command, cwd=job.scratch, check=True, stdout=sys.stderr, timeout=CONVERT_LIMIT_S)


def _converter() -> str:
    """The program inside the package; its Python part needs torch, which the program does not."""
    found = util.find_spec("pnnx")
    assert found is not None and found.origin is not None
    return str(next(path for path in Path(found.origin).parent.rglob("pnnx") if path.is_file()))


def _load(job: Job) -> Any:
    network = import_module("ncnn").Net()
    network.opt.num_threads = job.threads
    for narrow in ("use_fp16_storage", "use_fp16_packed", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(network.opt, narrow, False)
    for load, kind in ((network.load_param, "param"), (network.load_model, "bin")):
        if load(str(job.scratch / f"model.ncnn.{kind}")) != 0:
            raise ValueError(f"ncnn cannot load the {kind} file that pnnx wrote")
    return network


def _matrix(array: np.ndarray) -> Any:
    plain = array[0] if array.ndim > 1 and array.shape[0] == 1 else array
    plain = plain.astype(np.int32) if plain.dtype == np.int64 else plain
    return import_module("ncnn").Mat(np.ascontiguousarray(plain)).clone()
