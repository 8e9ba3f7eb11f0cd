"""Build a small convolutional network on the spot; check, compile, verify and time it."""

from __future__ import annotations

import contextlib
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import foretell
from foretell.cli.main import main

COMMANDS = (
    "check demo.onnx",
    "compile demo.onnx -o demo.foretell",
    "explain demo.onnx --kernels",
    "verify demo.onnx --shape image=4x3x32x32",
    "run demo.foretell",
    "bench demo.foretell --shape image=4x3x32x32 --seconds 1",
)


def build_model() -> onnx.ModelProto:
    """Two convolutions with batch norm, a residual, pooling and a classifier; the batch size is free."""
    generator = np.random.default_rng(0)
    weights = {
        "conv1.weight": generator.normal(0, 0.2, (16, 3, 3, 3)),
        "conv2.weight": generator.normal(0, 0.1, (16, 16, 3, 3)),
        "dense.weight": generator.normal(0, 0.2, (10, 16)),
        "dense.bias": generator.normal(0, 0.1, 10),
    }
    for layer in ("norm1", "norm2"):
        weights |= {f"{layer}.scale": generator.uniform(0.5, 1.5, 16), f"{layer}.shift": generator.normal(0, 0.1, 16)}
        weights |= {f"{layer}.mean": generator.normal(0, 0.1, 16), f"{layer}.var": generator.uniform(0.5, 1.5, 16)}

    def norm(layer: str) -> list[str]:
        return [f"{layer}.{name}" for name in ("scale", "shift", "mean", "var")]

    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight"], ["conv1"], "conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["conv1", *norm("norm1")], ["norm1"], "norm1"),
        helper.make_node("Relu", ["norm1"], ["relu1"], "relu1"),
        helper.make_node("Conv", ["relu1", "conv2.weight"], ["conv2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["conv2", *norm("norm2")], ["norm2"], "norm2"),
        helper.make_node("Add", ["norm2", "relu1"], ["sum"], "residual"),
        helper.make_node("Relu", ["sum"], ["relu2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["relu2"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "dense.weight", "dense.bias"], ["logits"], "dense", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "demo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def demo() -> int:
    """Compile, verify and time the model with the command; then load it and compare with ONNX's own reference."""
    model = build_model()
    image = np.random.default_rng(0).standard_normal((4, 3, 32, 32), np.float32)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        onnx.save(model, "demo.onnx")
        for command in COMMANDS:
            print(f"\n$ foretell {command}", flush=True)
            code = main(command.split())
            if code:
                return code
        ours = foretell.load("demo.foretell")(image)
    (reference,) = ReferenceEvaluator(model).run(None, {"image": image})
    print(f"\nlargest difference from the ONNX reference: {np.abs(ours - reference).max():.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(demo())
