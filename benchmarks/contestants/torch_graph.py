"""An ONNX model as a torch module: the operators that the suites use, traced into straight-line code.

Written here so that torch needs no converter, and runs the very weights that the others run.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

torch = import_module("torch")
F = import_module("torch.nn.functional")

Attributes = dict[str, Any]


def load_module(model: Path) -> Any:
    """A function of inputs in order that gives a tuple of outputs. ValueError for what it cannot translate."""
    return torch.fx.symbolic_trace(_module(onnx.load(model).graph)).eval()


def _module(graph: onnx.GraphProto) -> Any:
    constants = {tensor.name: np.array(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
    scalars = {name: float(array) for name, array in constants.items() if array.dtype.kind == "f" and not array.ndim}
    unknown = {node.op_type for node in graph.node} - OPERATORS.keys()
    if unknown:
        raise ValueError(f"no translation to torch for {', '.join(sorted(unknown))}")

    class Translated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for place, array in enumerate(constants.values()):
                self.register_buffer(f"constant_{place}", torch.from_numpy(array))

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            values = dict(zip((one.name for one in graph.input), inputs, strict=False))
            values |= {name: getattr(self, f"constant_{place}") for place, name in enumerate(constants)}
            values |= scalars
            for node in graph.node:
                _run(node, values, constants)
            return tuple(values[one.name] for one in graph.output)

    return _with_arity(Translated(), len(graph.input))


def _with_arity(module: Any, count: int) -> Any:
    """Tracing needs to know how many inputs there are."""
    names = ", ".join(f"input_{place}" for place in range(count))
    forward: dict[str, Any] = {}
    exec(f"def forward(self, {names}): return self.translated({names})", forward)
    outer = type("Outer", (torch.nn.Module,), {"forward": forward["forward"]})()
    outer.translated = module
    return outer


def _run(node: NodeProto, values: dict[str, Any], constants: dict[str, np.ndarray]) -> None:
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    attributes |= {f"constant_{place}": constants.get(name) for place, name in enumerate(node.input)}
    result = OPERATORS[node.op_type](attributes, *(values[name] for name in node.input))
    if len(node.output) == 1:
        values[node.output[0]] = result
    else:
        values |= {name: result[place] for place, name in enumerate(node.output) if name}


def _padding(attributes: Attributes) -> list[int]:
    """The same on both sides, which is all that torch knows."""
    pads = attributes.get("pads", [0, 0, 0, 0])
    half = len(pads) // 2
    if list(pads[:half]) != list(pads[half:]):
        raise ValueError(f"padding {pads} differs between sides")
    return list(pads[:half])


def _conv(a: Attributes, x: Any, weight: Any, bias: Any = None) -> Any:
    strides, dilations = a.get("strides", [1, 1]), a.get("dilations", [1, 1])
    return F.conv2d(x, weight, bias, strides, _padding(a), dilations, a.get("group", 1))


def _gemm(a: Attributes, x: Any, weight: Any, bias: Any) -> Any:
    if a.get("transA") or a.get("alpha", 1.0) != 1.0 or a.get("beta", 1.0) != 1.0:
        raise ValueError("a Gemm that is not a fully connected layer")
    return F.linear(x, weight, bias) if a.get("transB") else torch.addmm(bias, x, weight)


def _max_pool(a: Attributes, x: Any) -> Any:
    top, left, bottom, right = a.get("pads", [0, 0, 0, 0])
    padded = F.pad(x, (left, right, top, bottom), value=float("-inf")) if any((top, left, bottom, right)) else x
    return F.max_pool2d(padded, a["kernel_shape"], a.get("strides", [1, 1]))


def _average_pool(a: Attributes, x: Any) -> Any:
    return F.avg_pool2d(x, a["kernel_shape"], a.get("strides", [1, 1]), _padding(a), count_include_pad=False)


def _layer_norm(a: Attributes, x: Any, scale: Any, bias: Any) -> Any:
    return F.layer_norm(x, a["constant_1"].shape, scale, bias, a.get("epsilon", 1e-5))


def _batch_norm(a: Attributes, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return F.batch_norm(x, mean, variance, scale, bias, eps=a.get("epsilon", 1e-5))


def _numbers(a: Attributes, place: int) -> list[int]:
    """The value of an input that is a constant."""
    found = a[f"constant_{place}"]
    if found is None:
        raise ValueError("an input that must be a constant is computed")
    return [int(number) for number in found.reshape(-1)]


def _clip(a: Attributes, x: Any, *_: Any) -> Any:
    return torch.clamp(x, float(a["constant_1"]), float(a["constant_2"]))


def _gather(a: Attributes, x: Any, indices: Any) -> Any:
    axis, known = a.get("axis", 0), a["constant_1"]
    if known is not None and known.ndim == 0:
        return torch.select(x, axis, int(known))
    if axis:
        raise ValueError("a Gather along another axis than the first")
    return F.embedding(indices, x)


def _unsqueeze(a: Attributes, x: Any, *_: Any) -> Any:
    for axis in sorted(a["axes"] if "axes" in a else _numbers(a, 1)):
        x = torch.unsqueeze(x, axis)
    return x


def _softmax(a: Attributes, x: Any) -> Any:
    return torch.softmax(x, a.get("axis", -1))


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": lambda a, x: x.to(torch.float32),
    "Clip": _clip,
    "Concat": lambda a, *parts: torch.cat(parts, a["axis"]),
    "Conv": _conv,
    "Div": lambda a, x, y: x / y,
    "Dropout": lambda a, x: (x, x),
    "Erf": lambda a, x: torch.erf(x),
    "Exp": lambda a, x: torch.exp(x),
    "Flatten": lambda a, x: torch.flatten(x, a.get("axis", 1)),
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda a, x: F.adaptive_avg_pool2d(x, 1),
    "HardSigmoid": lambda a, x: F.hardsigmoid(x),
    "HardSwish": lambda a, x: F.hardswish(x),
    "LRN": lambda a, x: F.local_response_norm(x, a["size"], a["alpha"], a["beta"], a.get("bias", 1.0)),
    "LayerNormalization": _layer_norm,
    "MatMul": lambda a, x, y: torch.matmul(x, y),
    "MaxPool": _max_pool,
    "Mul": lambda a, x, y: x * y,
    "Pow": lambda a, x, y: torch.pow(x, float(a["constant_1"])),
    "ReduceMax": lambda a, x: torch.amax(x),
    "ReduceSum": lambda a, x, _: torch.sum(x, _numbers(a, 1), keepdim=bool(a.get("keepdims", 1))),
    "Relu": lambda a, x: F.relu(x),
    "Reshape": lambda a, x, _: torch.reshape(x, _numbers(a, 1)),
    "Sigmoid": lambda a, x: torch.sigmoid(x),
    "Softmax": _softmax,
    "Split": lambda a, x, _: torch.split(x, _numbers(a, 1), a.get("axis", 0)),
    "Sub": lambda a, x, y: x - y,
    "Tanh": lambda a, x: torch.tanh(x),
    "Transpose": lambda a, x: torch.permute(x, a["perm"]),
    "Unsqueeze": _unsqueeze,
}
"""Attributes first, with the values of constant inputs among them, then the inputs."""
