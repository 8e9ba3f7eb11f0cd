"""Elementwise ONNX operators."""

from __future__ import annotations

from functools import reduce

from foretell.frontend.onnx_node import OnnxNode
from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.frontend.operators.importer import Importer
from foretell.graph.nodes import Value
from foretell.graph.ops.elementwise import BINARY_OPS, COMPARE_OPS, UNARY_OPS
from foretell.ir.dtypes import BOOL, DType


def _same(op: str) -> Importer:
    """An operator that is canonical under its own name."""
    return lambda node: node.build.op(op, *node.present_inputs)


def _variadic(op: str) -> Importer:
    """Max, Min and Sum take any number of operands."""
    return lambda node: reduce(lambda left, right: node.build.op(op, left, right), node.present_inputs)


def _mean(node: OnnxNode) -> Value:
    total = reduce(lambda left, right: node.build.op("Add", left, right), node.present_inputs)
    return node.build.op("Div", total, node.scalar(len(node.inputs), total))


def _identity(node: OnnxNode) -> Value:
    return node.input(0)


def _mod(node: OnnxNode) -> Value:
    return node.build.op("FMod" if node.int("fmod", 0) else "Mod", node.input(0), node.input(1))


def _shift(node: OnnxNode) -> Value:
    direction = node.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction must be LEFT or RIGHT, not {direction!r}")
    return node.build.op("ShiftLeft" if direction == "LEFT" else "ShiftRight", node.input(0), node.input(1))


def cast_to(node: OnnxNode, dtype: DType) -> Value | None:
    x = node.input(0)
    if node.has("round_mode") and dtype.name == "f8e8m0" and node.text("round_mode") != "nearest":
        return None
    if x.dtype == dtype:
        return x
    return node.build.op("Cast", x, to=dtype, saturate=bool(node.int("saturate", 1)))


def _cast(node: OnnxNode) -> Value | None:
    dtype = DTYPE_OF_ONNX.get(node.int("to"))
    return None if dtype is None else cast_to(node, dtype)


def _bit_cast(node: OnnxNode) -> Value | None:
    x, dtype = node.input(0), DTYPE_OF_ONNX.get(node.int("to"))
    if dtype is None or dtype.bits != x.dtype.bits:
        raise ValueError(f"{x.type} cannot be read as another type of its width")
    if dtype is BOOL or any(type.is_float and type.bits < 32 for type in (x.dtype, dtype)):
        return None
    return x if dtype == x.dtype else node.build.op("BitCast", x, to=dtype)


def _cast_like(node: OnnxNode) -> Value | None:
    return cast_to(node, node.input(1).dtype)


def _clip(node: OnnxNode) -> Value:
    x = node.input(0)
    if node.version < 11:
        bounds = [node.scalar(node.float(name), x) if node.has(name) else None for name in ("min", "max")]
    else:
        bounds = [node.optional(1), node.optional(2)]
    if bounds[0] is not None:
        x = node.build.op("Max", x, bounds[0])
    return x if bounds[1] is None else node.build.op("Min", x, bounds[1])


def _is_inf(node: OnnxNode) -> Value:
    return node.build.op(
        "IsInf",
        node.input(0),
        detect_negative=bool(node.int("detect_negative", 1)),
        detect_positive=bool(node.int("detect_positive", 1)),
    )


def _gelu(node: OnnxNode) -> Value:
    return node.build.op("Gelu", node.input(0), approximate=node.text("approximate", "none"))


def _swish(node: OnnxNode) -> Value | None:
    if node.float("alpha", 1.0) != 1.0:
        return None
    return node.build.op("Silu", node.input(0))


def _leaky_relu(node: OnnxNode) -> Value:
    return node.build.op("LeakyRelu", node.input(0), alpha=node.float("alpha", 0.01))


def _dropout(node: OnnxNode) -> tuple[Value, ...] | None:
    """A dropout that drops nothing passes its input on; its mask, where asked for, is all true."""
    if node.version >= 12 and node.optional(2) is not None:
        training, ratio = node.array(2), node.array(1)
        drops_nothing = ratio is not None and float(ratio.reshape(-1)[0]) == 0
        if training is None or (bool(training.reshape(-1)[0]) and not drops_nothing):
            return None
    x = node.input(0)
    if node.output_count < 2:
        return (x,)
    mask = node.build.scalar(True, BOOL) if node.version >= 10 else node.scalar(1, x)
    return x, node.build.op("Broadcast", mask, shape=x.shape)


ELEMENTWISE_IMPORTERS: dict[str, Importer] = {
    **{name: _same(name) for name in (*UNARY_OPS, *BINARY_OPS, *COMPARE_OPS) if name not in ("Mod", "FMod")},
    **{name: _same(name) for name in ("Pow", "Where", "Relu", "HardSwish", "Softplus", "IsNaN")},
    **{f"Bitwise{name}": _same(name) for name in ("And", "Or", "Xor", "Not")},
    **{"Max": _variadic("Max"), "Min": _variadic("Min"), "Sum": _variadic("Add"), "Mean": _mean},
    "Identity": _identity,
    "Mod": _mod,
    "BitShift": _shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "BitCast": _bit_cast,
    "Clip": _clip,
    "IsInf": _is_inf,
    "Gelu": _gelu,
    "Swish": _swish,
    "LeakyRelu": _leaky_relu,
    "Dropout": _dropout,
}
