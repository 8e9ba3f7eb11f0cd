"""Random small networks over images: what layouts and borders are about."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from foretell.graph.nodes import Array, Graph, Value
from foretell.graph.ops.window import pool_extent
from foretell.ir.expr import Dim, Sym
from foretell.loops.interpret import interpret
from foretell.loops.nodes import Kernel
from foretell.loops.verify import verify
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.kernels import kernels_of, symbols_of
from tests.random_graphs import Draw, assert_agrees

SIZES = {"n": 2, "h": 5, "w": 6}
CHANNELS = (1, 2, 4, 5, 8)


def conv(
    sketch: Sketch,
    x: Value,
    outputs: int,
    kernel: int = 3,
    *,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    group: int = 1,
    bias: bool = True,
) -> Value:
    channels, rank = x.shape[1], x.type.rank - 2
    assert isinstance(channels, int)
    w = sketch.weights(outputs, channels // group, *(kernel,) * rank, seed=outputs)
    operands = (x, w, sketch.weights(outputs)) if bias else (x, w)
    window = {"strides": (stride,) * rank, "dilations": (dilation,) * rank}
    return sketch.op("Conv", *operands, **window, before=(pad,) * rank, after=(pad,) * rank, group=group)


def pool(sketch: Sketch, op: str, x: Value, kernel: int = 2, *, stride: int = 1, pad: int = 0) -> Value:
    rank = x.type.rank - 2
    shape = tuple(pool_extent(dim, kernel, stride, 1, (pad, pad), False) for dim in x.shape[2:])
    window = {"kernel": (kernel,) * rank, "strides": (stride,) * rank, "dilations": (1,) * rank}
    more = {"indices": ""} if op == "MaxPool" else {"count_include_pad": False}
    return sketch.op(op, x, **window, before=(pad,) * rank, after=(pad,) * rank, shape=shape, **more)


@st.composite
def image_graphs(draw: Draw, channels: tuple[int, ...] = CHANNELS) -> tuple[Graph, dict[str, Array]]:
    """Convolutions, pools, sums and concatenations of a small image, perhaps of unknown size; and data."""

    def one_of(*options: object) -> object:
        return draw(st.sampled_from(options))

    sketch = Sketch()
    batch = one_of(1, 2, Sym("n", 1))
    height, width = (Sym("h", 4), Sym("w", 4)) if one_of(False, False, True) else (5, 6)
    first = one_of(*channels)
    assert isinstance(batch, (int, Sym)) and isinstance(first, int)
    shape: tuple[Dim, ...] = (batch, first, height, width)
    values = [sketch.data(*shape)]
    for _ in range(int(str(one_of(2, 3, 4, 5)))):
        x = values[int(str(one_of(-1, -1, -1, 0)))] if len(values) > 1 else values[0]
        values.append(_layer(sketch, x, values, draw, channels))
    last = values[-1]
    match one_of("image", "image", "flat", "mean", "transposed", "softmax"):
        case "flat" if last.type.is_static:
            n, *rest = last.type.static_shape
            features = int(np.prod(rest))
            last = sketch.op("MatMul", sketch.op("Reshape", last, shape=(n, features)), sketch.weights(features, 3))
        case "mean":
            last = sketch.op("ReduceMean", last, axes=(2, 3), keepdims=False)
        case "transposed":
            last = sketch.op("Transpose", last, perm=(0, 2, 3, 1))
        case "softmax":
            last = sketch.op("Softmax", last, axis=1)
        case _:
            pass
    outputs = (last, values[-2]) if len(values) > 2 and one_of(False, False, True) else (last,)
    graph = sketch.graph(*outputs)
    return graph, random_feeds(graph, SIZES)


def _layer(sketch: Sketch, x: Value, values: list[Value], draw: Draw, channels: tuple[int, ...]) -> Value:
    def one_of(*options: object) -> object:
        return draw(st.sampled_from(options))

    count = x.shape[1]
    assert isinstance(count, int)
    match one_of("conv", "conv", "conv", "depthwise", "grouped", "pool", "act", "residual", "concat", "resize"):
        case "conv":
            kernel, outputs = one_of((1, 0, 1), (3, 1, 1), (3, 1, 1), (3, 2, 2)), one_of(*channels)
            assert isinstance(kernel, tuple) and isinstance(outputs, int)
            stride = 2 if x.type.is_static and one_of(False, False, True) else 1
            y = conv(sketch, x, outputs, kernel[0], pad=kernel[1], dilation=kernel[2], stride=stride)
            return sketch.op("Relu", y) if one_of(True, False) else y
        case "depthwise":
            return conv(sketch, x, count, pad=1, group=count, bias=bool(one_of(True, False)))
        case "grouped" if count % 2 == 0:
            return conv(sketch, x, count * int(str(one_of(1, 2))), pad=1, group=2)
        case "pool":
            return pool(sketch, str(one_of("MaxPool", "AveragePool")), x, 3, pad=1)
        case "residual":
            partner = next((v for v in values if v.type == x.type and v is not x), x)
            return sketch.op("Add", conv(sketch, x, count, pad=1), partner)
        case "concat":
            return sketch.op("Concat", x, sketch.op("Sigmoid", x), axis=1)
        case "resize":
            table = sketch.constant(np.repeat(np.arange(4), 2).astype(np.int64))
            return sketch.op("Gather", x, table, axis=2)
        case _:
            return sketch.op(str(one_of("Relu", "Sigmoid", "Tanh")), x)


def check_kernels(graph: Graph, feeds: dict[str, Array], lanes: int = 4) -> list[Kernel]:
    """The kernels of a graph, valid and with the evaluator's results."""
    kernels = kernels_of(graph, lanes)
    for kernel in kernels:
        verify(kernel)
    given = {value.name: array for value, array in graph.constants.items()} | feeds
    memory = interpret(kernels, given, symbols_of(graph, feeds))
    assert_agrees(graph, feeds, [memory[value.name] for value in graph.outputs])
    return kernels
