"""Halide with the Adams2019 autoscheduler, for single operators and pairs: Conv, MatMul, Clip, Relu, Add."""

from __future__ import annotations

from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from benchmarks.contestants import Job, Runner

SCHEDULER = "Adams2019"


def prepare(job: Job) -> Runner:
    halide = import_module("halide")
    library = next(Path(halide.__path__[0]).rglob(f"libautoschedule_{SCHEDULER.lower()}.*"))
    halide.load_plugin(str(library))
    graph = onnx.load(job.model).graph
    arrays = {tensor.name: np.array(numpy_helper.to_array(tensor)) for tensor in graph.initializer} | job.feeds
    values = {name: _Value.of_array(name, array) for name, array in arrays.items() if array.ndim}
    scalars = {name: float(array) for name, array in arrays.items() if not array.ndim}
    for node in graph.node:
        values[node.output[0]] = _translate(node, values, scalars)
    pipeline, output = _schedule(values[graph.output[0].name], job.threads)
    buffer = halide.Buffer(output)

    def run() -> None:
        pipeline.realize(buffer)

    def outputs() -> list[np.ndarray]:
        assert values  # Halide does not keep the memory of inputs alive: this does
        return [output]

    return Runner(run, outputs)


class _Value:
    """A function of coordinates, the last dimension first as Halide has them, and its shape in ONNX's order."""

    def __init__(self, function: Any, shape: tuple[int, ...], keep: object = None) -> None:
        self.function, self.shape, self.keep = function, shape, keep

    @classmethod
    def of_array(cls, name: str, array: np.ndarray) -> _Value:
        halide = import_module("halide")
        parameter = halide.ImageParam(halide.Float(32), array.ndim, "in_" + "".join(filter(str.isalnum, name)))
        for place, size in enumerate(reversed(array.shape)):
            parameter.dim(place).set_bounds(0, size).set_stride(prod(array.shape[array.ndim - place :]))
            parameter.dim(place).set_estimate(0, size)
        buffer = halide.Buffer(np.array(array, order="C", copy=True))
        parameter.set(buffer)
        return cls(parameter, array.shape, buffer)

    def __getitem__(self, place: tuple[Any, ...]) -> Any:
        return self.function[place]


def _translate(node: NodeProto, values: dict[str, _Value], scalars: dict[str, float]) -> _Value:
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    first = values[node.input[0]]
    match node.op_type:
        case "Conv":
            return _conv(first, values[node.input[1]], values[node.input[2]], attributes)
        case "MatMul":
            return _matmul(first, values[node.input[1]])
        case "Add" if node.input[1] in values:
            return _add(first, values[node.input[1]])
        case "Relu" | "Clip":
            limits = [scalars[name] for name in node.input[1:]]
            return _clip(first, *limits)
        case other:
            raise ValueError(f"no translation to Halide for {other}")


def _places(rank: int) -> tuple[Any, ...]:
    return tuple(import_module("halide").Var(name) for name in "xyzw"[:rank])


def _conv(x: _Value, weight: _Value, bias: _Value, attributes: dict[str, Any]) -> _Value:
    halide = import_module("halide")
    batch, channels, height, width = x.shape
    outputs, inputs, tall, wide = weight.shape
    stride, pad, groups = attributes["strides"][0], attributes["pads"][0], attributes["group"]
    if groups not in (1, channels):
        raise ValueError("a convolution of groups that is not depthwise")
    ranges = [(0, size) for size in (width, height, channels, batch)]
    source = halide.BoundaryConditions.constant_exterior(x.function, halide.f32(0), ranges) if pad else x.function
    result, (i, j, c, b) = halide.Func("conv"), _places(4)
    reduced = halide.RDom([(0, wide), (0, tall), (0, inputs)])
    channel = reduced.z if groups == 1 else c
    result[i, j, c, b] = bias[(c,)]
    result[i, j, c, b] += (
        source[i * stride + reduced.x - pad, j * stride + reduced.y - pad, channel, b]
        * weight[reduced.x, reduced.y, reduced.z, c]
    )
    image = ((size + 2 * pad - kernel) // stride + 1 for size, kernel in ((height, tall), (width, wide)))
    return _Value(result, (batch, outputs, *image), x)


def _matmul(x: _Value, y: _Value) -> _Value:
    halide = import_module("halide")
    result, (column, row, *outer) = halide.Func("matmul"), _places(len(x.shape))
    inner = halide.RDom([(0, x.shape[-1])])
    result[(column, row, *outer)] = halide.f32(0)
    result[(column, row, *outer)] += x[(inner.x, row, *outer)] * y[(column, inner.x, *outer[: len(y.shape) - 2])]
    return _Value(result, (*x.shape[:-1], y.shape[-1]), (x, y))


def _add(x: _Value, y: _Value) -> _Value:
    result, places = import_module("halide").Func("add"), _places(len(x.shape))
    result[places] = x[places] + y[places[: len(y.shape)]]
    return _Value(result, x.shape, (x, y))


def _clip(x: _Value, low: float = 0.0, high: float = float("inf")) -> _Value:
    halide = import_module("halide")
    result, places = halide.Func("clip"), _places(len(x.shape))
    result[places] = halide.clamp(x[places], halide.f32(low), halide.f32(high))
    return _Value(result, x.shape, x)


def _schedule(value: _Value, threads: int) -> tuple[Any, np.ndarray]:
    """The pipeline, ready to run, and the array that it writes."""
    halide = import_module("halide")
    final, places = halide.Func("final"), _places(len(value.shape))
    final[places] = value[places]
    final.set_estimates([(0, size) for size in reversed(value.shape)])
    pipeline, target = halide.Pipeline(final), halide.get_host_target()
    pipeline.apply_autoscheduler(target, halide.AutoschedulerParams(SCHEDULER, {"parallelism": str(threads)}))
    pipeline.compile_jit(target)
    return pipeline, np.empty(value.shape, np.float32)
