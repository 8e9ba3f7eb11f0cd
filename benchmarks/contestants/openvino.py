"""OpenVINO's CPU plugin in float32, sharing the memory of inputs and outputs."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from benchmarks.contestants import Job, Runner


def prepare(job: Job) -> Runner:
    openvino = import_module("openvino")
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": job.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,
    }
    compiled = core.compile_model(core.read_model(job.model), "CPU", settings)
    request = compiled.create_infer_request()
    tensors = {name: openvino.Tensor(array, shared_memory=True) for name, array in job.feeds.items()}
    for name, tensor in tensors.items():
        request.set_tensor(name, tensor)

    def outputs() -> list[np.ndarray]:
        assert len(tensors) == len(compiled.inputs)  # a request does not keep its model and tensors alive: this does
        return [np.array(request.get_output_tensor(index).data) for index in range(len(compiled.outputs))]

    return Runner(request.infer, outputs)
