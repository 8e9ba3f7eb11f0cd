"""Whole models through native code, against onnxruntime: transformers, a mobile network, and recurrent layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import foretell
from foretell.compiler import import_model
from tests.graph.test_exported_models import feeds_for

EXPORTED = sorted((Path(__file__).parents[1] / "data" / "exported").glob("*_sdpa_*.onnx"))
RELATIVE = 1e-4
"""The largest error allowed, of the scale of the output."""
Random = np.random.Generator


def compare(model: bytes, feeds: dict[str, np.ndarray], threads: int = 2) -> foretell.CompiledModel:
    compiled = foretell.compile(model, threads=threads)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    found = compiled.run(feeds)
    for name, expected in zip(found, session.run(list(found), feeds), strict=True):
        expected = np.asarray(expected)
        assert np.abs(found[name] - expected).max() <= RELATIVE * np.abs(expected).max()
    return compiled


@pytest.mark.parametrize("path", EXPORTED, ids=lambda path: path.stem)
def test_transformers(path: Path) -> None:
    compiled = compare(path.read_bytes(), feeds_for(import_model(path)))
    assert compiled.program.is_native


class Network:
    """An ONNX model written layer by layer, with random weights."""

    def __init__(self, opset: int = 17) -> None:
        self.random: Random = np.random.default_rng(0)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.opset = opset

    def weight(self, *shape: int, low: float = -0.5, high: float = 0.5) -> str:
        name = f"w{len(self.weights)}"
        values = self.random.uniform(low, high, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def constant(self, *values: float) -> str:
        array = np.array(values[0] if len(values) == 1 else values, np.float32)
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def model(self, shape: tuple[int | str, ...], output: str) -> bytes:
        source = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "network", [source], [], self.weights)
        graph.output.append(helper.make_empty_tensor_value_info(output))
        made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        return made.SerializeToString()


def convolution(net: Network, x: str, inputs: int, outputs: int, kernel: int, stride: int, group: int = 1) -> str:
    weight = net.weight(outputs, inputs // group, kernel, kernel)
    pads = [kernel // 2] * 4
    y = net.add("Conv", x, weight, strides=[stride] * 2, pads=pads, group=group, kernel_shape=[kernel] * 2)
    statistics = [net.weight(outputs), net.weight(outputs), net.weight(outputs), net.weight(outputs, low=0.5, high=1.5)]
    return net.add("BatchNormalization", y, *statistics)


def inverted_residual(net: Network, x: str, inputs: int, outputs: int, stride: int) -> str:
    wide = 4 * inputs
    y = net.add("Clip", convolution(net, x, inputs, wide, 1, 1), net.constant(0.0), net.constant(6.0))
    y = net.add("HardSwish", convolution(net, y, wide, wide, 3, stride, group=wide))
    gate = net.add("GlobalAveragePool", y)
    gate = net.add("HardSigmoid", net.add("Conv", gate, net.weight(wide, wide, 1, 1)), alpha=1 / 6, beta=0.5)
    y = convolution(net, net.add("Mul", y, gate), wide, outputs, 1, 1)
    return net.add("Add", x, y) if stride == 1 and inputs == outputs else y


def test_mobile_network() -> None:
    net = Network()
    y = net.add("Relu", convolution(net, "x", 3, 8, 3, 2))
    for inputs, outputs, stride in ((8, 8, 1), (8, 13, 2), (13, 13, 1), (13, 24, 2)):
        y = inverted_residual(net, y, inputs, outputs, stride)
    y = net.add("Flatten", net.add("GlobalAveragePool", y))
    y = net.add("Softmax", net.add("Gemm", y, net.weight(10, 24), net.weight(10), transB=1), axis=-1)
    x = np.random.default_rng(1).standard_normal((2, 3, 37, 41), dtype=np.float32)
    assert compare(net.model(("batch", 3, 37, 41), y), {"x": x}).program.is_native


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(layer: str) -> None:
    """The loop over steps is the executor's; everything inside it is native."""
    gates, size, inputs, steps = {"LSTM": 4, "GRU": 3, "RNN": 1}[layer], 11, 7, 13
    net = Network()
    weights = [net.weight(2, gates * size, inputs), net.weight(2, gates * size, size), net.weight(2, 2 * gates * size)]
    y = net.add(layer, "x", *weights, hidden_size=size, direction="bidirectional")
    y = net.add("ReduceMean", y, axes=[0, 1], keepdims=0)
    x = np.random.default_rng(1).standard_normal((steps, 3, inputs), dtype=np.float32)
    compare(net.model((steps, "batch", inputs), y), {"x": x})
