"""Architectures that the onnx package brings along without weights, given random ones.

Their files make weights with ConstantOfShape; here each becomes an initializer that suits the node that reads it.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, ValueInfoProto, numpy_helper

from benchmarks.network import RELU_GAIN, Input, Network, Random

FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
CLASSIFIER_GAIN = 0.5
"""The last weights are small: where a softmax picks one class outright, no difference between outputs would show."""
Readers = dict[str, tuple[NodeProto, int]]


def light(name: str) -> Network:
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph = model.graph
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    readers: Readers = {value: (node, place) for node in nodes for place, value in enumerate(node.input)}
    constants: dict[str, np.ndarray | Random] = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if tensor.name in readers and tensor.data_type == onnx.TensorProto.INT64
    }
    last = [node for node in nodes if node.op_type in ("Conv", "Gemm")][-1]
    for value, shape in _weight_shapes(graph).items():
        node, place = _reader(readers, value)
        gain = CLASSIFIER_GAIN if node is last else RELU_GAIN
        constants[value] = _random(node, place, shape, gain)
    inputs = {one.name: Input(_shape(one)) for one in graph.input if one.name in readers and one.name not in constants}
    outputs = {one.name: _shape(one) for one in graph.output}
    opset = next(one.version for one in model.opset_import if not one.domain)
    return Network(name, nodes, inputs, outputs, constants, opset)


def _weight_shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    """Every float that a node reads: those made from a shape, and the small ones that are stored."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {
        node.output[0]: tuple(int(size) for size in numpy_helper.to_array(stored[node.input[0]]))
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    floats = {name: tuple(tensor.dims) for name, tensor in stored.items() if tensor.data_type == onnx.TensorProto.FLOAT}
    return shapes | floats


def _reader(readers: Readers, value: str) -> tuple[NodeProto, int]:
    """The node that computes with a value, beyond those that only change its shape."""
    node, place = readers[value]
    return _reader(readers, node.output[0]) if node.op_type in ("Unsqueeze", "Reshape") else (node, place)


def _random(node: NodeProto, place: int, shape: tuple[int, ...], gain: float) -> Random:
    match node.op_type, place:
        case "Conv", 1:
            return Random(shape, gain * prod(shape[1:]) ** -0.5)
        case "Gemm", 1:
            return Random(shape, gain * shape[-1] ** -0.5)
        case ("BatchNormalization", 1 | 4) | ("Mul", _):
            return Random(shape, 0.1, mean=1.0)
        case _:
            return Random(shape, 0.05)


def _shape(value: ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
