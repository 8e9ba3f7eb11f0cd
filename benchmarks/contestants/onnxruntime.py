"""onnxruntime's CPU provider, with inputs and outputs bound in place."""

from __future__ import annotations

import numpy as np
import onnxruntime

from benchmarks.contestants import Job, Runner


def prepare(job: Job) -> Runner:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = job.threads, 1, 3
    session = onnxruntime.InferenceSession(str(job.model), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in job.feeds.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(output.shape, np.float32)
        binding.bind_ortvalue_output(output.name, value)
    return Runner(lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu)
