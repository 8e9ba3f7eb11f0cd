"""ONNX softmax and norms. Statistics are taken in the compute type, whatever `stash_type` allows to be narrower."""

from __future__ import annotations

from foretell.frontend.onnx_node import OnnxNode, Unsupported, normal_axes, normal_axis
from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.frontend.operators.contraction import along_axis
from foretell.frontend.operators.importer import Importer
from foretell.graph.build import Builder
from foretell.graph.nodes import Value
from foretell.ir import expr
from foretell.ir.dtypes import BF16, F32, I64
from foretell.ir.expr import Dim

# --- softmax -------------------------------------------------------------------------------------------------


def _rows(node: OnnxNode) -> tuple[Value, int]:
    """The input and the axis to work along; before opset 13 all axes from the given one on count as one.

    before: [a, b, c, d], axis=2     after: [a * b, c * d], axis=1
    """
    x, rank = node.input(0), node.input(0).type.rank
    if node.version >= 13:
        return x, node.axis(rank, default=-1)
    axis = node.int("axis", 1)
    first = rank if axis == rank else normal_axis(axis, rank)
    if first == rank - 1:
        return x, first
    return node.build.reshape(x, (expr.product(x.shape[:first]), expr.product(x.shape[first:]))), 1


def _along_rows(op: str) -> Importer:
    def apply(node: OnnxNode) -> Value:
        x, axis = _rows(node)
        return node.build.reshape(node.build.op(op, x, axis=axis), node.input(0).shape)

    return apply


def _hardmax(node: OnnxNode) -> Value:
    """1 at the first maximum, 0 elsewhere."""
    x, axis = _rows(node)
    build = node.build
    first = build.op("ArgMax", x, axis=axis, keepdims=True, select_last_index=False)
    hit = build.op("Equal", build.op("Iota", shape=x.shape, axis=axis, dtype=I64), first)
    return build.reshape(build.cast(hit, x.dtype), node.input(0).shape)


# --- statistics ----------------------------------------------------------------------------------------------


def _moments(build: Builder, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value, Value]:
    """x - mean, mean and variance over some axes, which are kept; all in the compute type."""
    wide = build.cast(x, x.dtype.compute)
    mean = build.op("ReduceMean", wide, axes=axes, keepdims=True)
    centred = build.op("Sub", wide, mean)
    return centred, mean, build.op("ReduceMean", build.op("Mul", centred, centred), axes=axes, keepdims=True)


def _deviation(build: Builder, variance: Value, epsilon: float) -> Value:
    """sqrt(variance + epsilon)"""
    return build.op("Sqrt", build.op("Add", variance, build.scalar(epsilon, variance.dtype)))


# --- norms over the last axes --------------------------------------------------------------------------------


def _layer_normalization(node: OnnxNode) -> tuple[Value, ...] | None:
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    axis, epsilon = node.axis(x.type.rank, default=-1), node.float("epsilon", 1e-5)
    stash = DTYPE_OF_ONNX.get(node.int("stash_type", 1))
    if stash not in (F32, BF16):
        return None
    build = node.build
    y = build.op("LayerNorm", x, scale, *(() if bias is None else (bias,)), axis=axis, epsilon=epsilon)
    if node.output_count == 1:
        return (y,)
    _, mean, variance = _moments(build, x, tuple(range(axis, x.type.rank)))
    inverse = build.op("Reciprocal", _deviation(build, variance, epsilon))
    return y, build.cast(mean, stash), build.cast(inverse, stash)


def _rms_normalization(node: OnnxNode) -> Value:
    """The result has the type of the scale."""
    x, scale = node.input(0), node.input(1)
    axis, epsilon = node.axis(x.type.rank, default=-1), node.float("epsilon", 1e-5)
    if scale.dtype != x.dtype:
        x = node.build.cast(x, x.dtype.compute)
    return node.build.cast(node.build.op("RMSNorm", x, scale, axis=axis, epsilon=epsilon), scale.dtype)


def _instance_normalization(node: OnnxNode) -> Value:
    """A layer norm over all spatial axes, with a scale and a bias per channel."""
    x, build = node.input(0), node.build
    if x.type.rank < 2:
        raise ValueError(f"InstanceNormalization needs a channel axis, {x.type} has none")
    spatial = x if x.type.rank > 2 else build.reshape(x, (*x.shape, 1))
    scale, bias = (along_axis(build, node.input(number), spatial.type.rank, 1) for number in (1, 2))
    y = build.op("LayerNorm", spatial, scale, bias, axis=2, epsilon=node.float("epsilon", 1e-5))
    return build.reshape(y, x.shape)


def _group_normalization(node: OnnxNode) -> Value:
    """A layer norm over the channels of a group and all spatial axes.

    before: x[n, c, s...], g groups     after: Reshape(LayerNorm(Reshape(x, [n, g, c / g, s...])), [n, c, s...])
    """
    x, groups, build = node.input(0), node.int("num_groups"), node.build
    if x.type.rank < 2 or groups < 1:
        raise ValueError(f"{x.type} has no {groups} groups of channels")
    channels = x.shape[1]
    if isinstance(channels, int) and (channels % groups or groups > max(channels, 1)):
        raise ValueError(f"{channels} channels do not divide into {groups} groups")
    # Scale and bias belong to a group before opset 21, to a channel since.
    own: tuple[Dim, ...] = (groups, 1) if node.version < 21 else (groups, channels // groups)
    shape = (*own, *(1,) * (x.type.rank - 2))
    scale, bias = (build.reshape(node.input(number), shape) for number in (1, 2))
    grouped = build.reshape(x, (x.shape[0], groups, channels // groups, *x.shape[2:]))
    y = build.op("LayerNorm", grouped, scale, bias, axis=2, epsilon=node.float("epsilon", 1e-5))
    return build.reshape(y, x.shape)


# --- norms over other axes -----------------------------------------------------------------------------------


def _batch_normalization(node: OnnxNode) -> tuple[Value, ...]:
    """At inference, y = (x - mean) / sqrt(variance + epsilon) * scale + bias with all of them given."""
    x, *parameters = (node.input(number) for number in range(5))
    if x.type.rank < 2:
        raise ValueError(f"BatchNormalization needs a channel axis, {x.type} has none")
    # Before opset 14 a node was in training mode when it had more outputs than one.
    training = node.int("training_mode", 0) if node.version >= 14 else node.output_count > 1
    if not node.int("spatial", 1):
        return _per_element_batch_norm(node)
    if training:
        return _training_batch_norm(node)
    if node.output_count > 1:
        raise ValueError("running statistics exist in training mode only")
    return (node.build.op("BatchNorm", x, *parameters, epsilon=node.float("epsilon", 1e-5)),)


def _per_element_batch_norm(node: OnnxNode) -> tuple[Value, ...]:
    """Before opset 9 statistics may be kept per element instead of per channel."""
    if node.output_count > 1:
        raise Unsupported("training a batch norm that is not spatial")
    x, scale, bias, mean, variance = (node.input(number) for number in range(5))
    build, deviation = node.build, _deviation(node.build, variance, node.float("epsilon", 1e-5))
    normal = build.op("Div", build.op("Sub", x, mean), deviation)
    return (build.op("Add", build.op("Mul", normal, scale), bias),)


def _training_batch_norm(node: OnnxNode) -> tuple[Value, ...]:
    """Statistics of this batch, and those that were given moved towards them.

    running = given * momentum + current * (1 - momentum)
    """
    x, scale, bias, *given = (node.input(number) for number in range(5))
    build, momentum = node.build, node.float("momentum", 0.9)
    axes = tuple(axis for axis in range(x.type.rank) if axis != 1)
    current = [build.reshape(value, (x.shape[1],)) for value in _moments(build, x, axes)[1:]]
    y = build.op("BatchNorm", x, scale, bias, *current, epsilon=node.float("epsilon", 1e-5))
    running: list[Value] = []
    for old, new in zip(given, current, strict=True):
        kept = build.op("Mul", build.cast(old, new.dtype), build.scalar(momentum, new.dtype))
        moved = build.op("Add", kept, build.op("Mul", new, build.scalar(1 - momentum, new.dtype)))
        running.append(build.cast(moved, old.dtype))
    saved = [build.cast(value, x.dtype) for value in current] if node.output_count > 3 else []
    return y, *running, *saved


def _lp_normalization(node: OnnxNode) -> Value:
    """x / norm, and 0 where the norm is 0."""
    x, order, build = node.input(0), node.int("p", 2), node.build
    axes = (node.axis(x.type.rank, default=-1),)
    if order not in (1, 2):
        raise ValueError(f"p must be 1 or 2, not {order}")
    wide = build.cast(x, x.dtype.compute)
    size = build.op("Abs", wide) if order == 1 else build.op("Mul", wide, wide)
    norm = build.op("ReduceSum", size, axes=axes, keepdims=True)
    norm = norm if order == 1 else build.op("Sqrt", norm)
    zero = build.scalar(0, wide.dtype)
    return build.cast(build.op("Where", build.op("Equal", norm, zero), zero, build.op("Div", wide, norm)), x.dtype)


def _mean_variance_normalization(node: OnnxNode) -> Value:
    """(x - mean) / (deviation + 1e-9)"""
    x, build = node.input(0), node.build
    axes = normal_axes(node.ints("axes", (0, 2, 3)) or (), x.type.rank)
    centred, _, variance = _moments(build, x, tuple(sorted(axes)))
    deviation = build.op("Add", build.op("Sqrt", variance), build.scalar(1e-9, variance.dtype))
    return build.cast(build.op("Div", centred, deviation), x.dtype)


NORMALISATION_IMPORTERS: dict[str, Importer] = {
    "Softmax": _along_rows("Softmax"),
    "LogSoftmax": _along_rows("LogSoftmax"),
    "Hardmax": _hardmax,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "InstanceNormalization": _instance_normalization,
    "GroupNormalization": _group_normalization,
    "BatchNormalization": _batch_normalization,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
}
