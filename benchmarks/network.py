"""ONNX models with seeded random weights, written node by node as an exporter would write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 17
RELU_GAIN = sqrt(2.0)
"""Makes up for what a relu drops, so that activations neither explode nor die (He et al., 2015)."""


class Value(NamedTuple):
    """A tensor of the graph."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Random:
    """Weights that are drawn when the model is made: normal, with this deviation and mean."""

    shape: tuple[int, ...]
    deviation: float
    mean: float = 0.0

    def draw(self, random: np.random.Generator) -> np.ndarray:
        drawn = random.standard_normal(self.shape, dtype=np.float32)
        drawn *= np.float32(self.deviation)
        drawn += np.float32(self.mean)
        return drawn


@dataclass(frozen=True, slots=True)
class Input:
    """Normal floats, or integers from 0 up to `below` where that is given."""

    shape: tuple[int, ...]
    below: int | None = None

    @property
    def kind(self) -> int:
        return TensorProto.FLOAT if self.below is None else TensorProto.INT64

    def draw(self, random: np.random.Generator) -> np.ndarray:
        if self.below is None:
            return random.standard_normal(self.shape, dtype=np.float32)
        return random.integers(0, self.below, self.shape)


@dataclass(slots=True)
class Network:
    """A graph under construction: each method adds nodes and returns what they compute."""

    name: str
    nodes: list[NodeProto] = field(default_factory=list)
    inputs: dict[str, Input] = field(default_factory=dict)
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, np.ndarray | Random] = field(default_factory=dict)
    opset: int = OPSET
    seed: int = 0

    # --- the result ---

    def model(self, *, with_weights: bool = True) -> ModelProto:
        """The same model every time; without weights it has their shapes only, which is enough to count in."""
        random = np.random.default_rng(self.seed)
        initializers = [_initializer(name, stored, random, with_weights) for name, stored in self.constants.items()]
        inputs = [helper.make_tensor_value_info(name, one.kind, one.shape) for name, one in self.inputs.items()]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.outputs.items()
        ]
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def feeds(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(self.seed + 1)
        return {name: one.draw(random) for name, one in self.inputs.items()}

    # --- values ---

    def input(self, name: str, *shape: int, below: int | None = None) -> Value:
        self.inputs[name] = Input(shape, below)
        return Value(name, shape)

    def output(self, *values: Value) -> Network:
        self.outputs |= {value.name: value.shape for value in values}
        return self

    def constant(self, array: np.ndarray | Sequence[int] | float) -> Value:
        """A number or an array as it is: floats have 32 bits, integers 64."""
        stored = np.asarray(array)
        stored = stored.astype(np.float32) if stored.dtype.kind == "f" else stored.astype(np.int64)
        return self._keep(stored, stored.shape)

    def weight(self, *shape: int, deviation: float, mean: float = 0.0) -> Value:
        return self._keep(Random(shape, deviation, mean), shape)

    def _keep(self, stored: np.ndarray | Random, shape: tuple[int, ...]) -> Value:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = stored
        return Value(name, shape)

    def node(
        self, op: str, inputs: Sequence[Value], shape: Sequence[int], **attributes: int | float | list[int]
    ) -> Value:
        """One node with one output, of the shape that the caller knows it has."""
        name = f"{op.lower()}_{len(self.nodes)}"
        node = helper.make_node(op, [value.name for value in inputs], [name])
        node.attribute.extend(helper.make_attribute(key, value) for key, value in sorted(attributes.items()))
        self.nodes.append(node)
        return Value(name, tuple(shape))

    def split(self, x: Value, parts: int, axis: int) -> list[Value]:
        size = x.shape[axis] // parts
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        names = [f"split_{len(self.nodes)}_{part}" for part in range(parts)]
        sizes = self.constant([size] * parts)
        self.nodes.append(helper.make_node("Split", [x.name, sizes.name], names, axis=axis))
        return [Value(name, shape) for name in names]

    # --- element by element ---

    def map(self, op: str, x: Value, **attributes: int | float) -> Value:
        return self.node(op, [x], x.shape, **attributes)

    def combine(self, op: str, x: Value, y: Value | float) -> Value:
        other = y if isinstance(y, Value) else self.constant(float(y))
        return self.node(op, [x, other], np.broadcast_shapes(x.shape, other.shape))

    def relu6(self, x: Value) -> Value:
        return self.node("Clip", [x, self.constant(0.0), self.constant(6.0)], x.shape)

    def silu(self, x: Value) -> Value:
        return self.combine("Mul", x, self.map("Sigmoid", x))

    def gelu(self, x: Value) -> Value:
        """x * (1 + erf(x / sqrt 2)) / 2, in the nodes that exporters write."""
        scaled = self.map("Erf", self.combine("Div", x, sqrt(2.0)))
        return self.combine("Mul", self.combine("Mul", x, self.combine("Add", scaled, 1.0)), 0.5)

    def activate(self, x: Value, activation: str | None) -> Value:
        match activation:
            case None:
                return x
            case "relu6" | "silu" | "gelu":
                return getattr(self, activation)(x)
            case _:
                return self.map(activation, x)

    # --- products ---

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
        padding: int | None = None,
        activation: str | None = None,
        gain: float | None = None,
    ) -> Value:
        """A convolution with its batch norm folded in, and what follows it; padded to the same size by default."""
        batch, inputs, *image = x.shape
        pad = kernel // 2 if padding is None else padding
        shape = (channels, inputs // groups, kernel, kernel)
        gain = gain if gain is not None else RELU_GAIN if activation else 1.0
        weight = self.weight(*shape, deviation=gain / sqrt(prod(shape[1:])))
        result = self.node(
            "Conv", [x, weight, self.weight(channels, deviation=0.05)],
            (batch, channels, *((size + 2 * pad - kernel) // stride + 1 for size in image)),
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups, dilations=[1, 1],
        )  # fmt: skip
        return self.activate(result, activation)

    def matmul(self, x: Value, y: Value) -> Value:
        return self.node("MatMul", [x, y], (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]))

    def linear(self, x: Value, features: int, gain: float = 1.0) -> Value:
        """MatMul and Add, on any number of dimensions."""
        weight = self.weight(x.shape[-1], features, deviation=gain / sqrt(x.shape[-1]))
        return self.combine("Add", self.matmul(x, weight), self.weight(features, deviation=0.05))

    def fully_connected(self, x: Value, features: int) -> Value:
        """A Gemm on a matrix, as classifiers end in."""
        weight = self.weight(features, x.shape[1], deviation=1 / sqrt(x.shape[1]))
        bias = self.weight(features, deviation=0.05)
        return self.node("Gemm", [x, weight, bias], (x.shape[0], features), transB=1, alpha=1.0, beta=1.0)

    # --- normalisation, pooling, layout ---

    def layer_norm(self, x: Value, epsilon: float = 1e-5) -> Value:
        features = x.shape[-1]
        scale, bias = self.weight(features, deviation=0.05, mean=1.0), self.weight(features, deviation=0.05)
        return self.node("LayerNormalization", [x, scale, bias], x.shape, axis=-1, epsilon=epsilon)

    def max_pool(self, x: Value, kernel: int, stride: int, padding: int = 0) -> Value:
        image = ((size + 2 * padding - kernel) // stride + 1 for size in x.shape[2:])
        return self.node(
            "MaxPool", [x], (*x.shape[:2], *image), kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4
        )

    def average_image(self, x: Value) -> Value:
        return self.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))

    def softmax(self, x: Value) -> Value:
        return self.map("Softmax", x, axis=-1)

    def reshape(self, x: Value, *shape: int) -> Value:
        assert prod(shape) == prod(x.shape), f"{x.shape} does not fit {shape}"
        return self.node("Reshape", [x, self.constant(shape)], shape)

    def transpose(self, x: Value, *order: int) -> Value:
        return self.node("Transpose", [x], [x.shape[axis] for axis in order], perm=list(order))

    def flatten(self, x: Value) -> Value:
        return self.node("Flatten", [x], (x.shape[0], prod(x.shape[1:])), axis=1)

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        first = values[0].shape
        size = sum(value.shape[axis] for value in values)
        return self.node("Concat", values, (*first[:axis], size, *first[axis + 1 :]), axis=axis)

    def gather(self, x: Value, indices: Value, axis: int = 0) -> Value:
        return self.node("Gather", [x, indices], (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), axis=axis)


def _initializer(
    name: str, stored: np.ndarray | Random, random: np.random.Generator, with_weights: bool
) -> TensorProto:
    if isinstance(stored, np.ndarray):
        return numpy_helper.from_array(stored, name)
    if with_weights:
        return numpy_helper.from_array(stored.draw(random), name)
    return TensorProto(name=name, dims=stored.shape, data_type=TensorProto.FLOAT)
