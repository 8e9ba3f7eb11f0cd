"""Arithmetic on dimensions without data: Shape -> Gather -> Mul -> Concat -> Reshape chains resolve here.

A small integer tensor that depends only on dimensions is carried as an array of numbers and expressions; numpy's
object arrays apply Python's operators to them, so each rule is a line.

    Shape(x: f32[n, 3, 224, 224])  ->  [n, 3, 224, 224]
    Gather(., 0) * 3               ->  3*n
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from foretell.frontend.onnx_node import OnnxNode, normal_axes, normal_axis, object_array
from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.ir import expr
from foretell.ir.dtypes import BOOL, I64, DType
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import ShapeTooComplex

Elements = np.ndarray[Any, np.dtype[Any]]
MAX_KNOWN_ELEMENTS = 1024
"""Tensors larger than this are data, not shapes."""
MAX_EXPRESSIONS, MAX_WEIGHT = 64, 64
"""Elements of a tensor that holds expressions, and atoms of one of them: what is larger is left to run time."""


def try_shape_value(node: OnnxNode) -> tuple[Elements, TensorType] | None:
    """The node's output as numbers and expressions, if it only computes with dimensions."""
    if node.schema.domain or node.output_count != 1:
        return None
    if node.op_type == "Shape":
        return _typed(_shape(node), I64)
    if node.op_type == "Size":
        return _typed(object_array([node.input(0).type.elements], ()), I64)
    rule = _RULES.get(node.op_type)
    if rule is None or not any(value in node.scope.known for value in node.present_inputs):
        return None
    operands = [None if value is None else node.scope.known_dims(value) for value in node.inputs]
    if any(known is None and value is not None for known, value in zip(operands, node.inputs, strict=True)):
        return None
    try:
        result = rule(node, operands)
    except ShapeTooComplex:
        return None
    elements = np.asarray(result, dtype=object)  # numpy makes a bare object of a result of rank 0
    if result is None or not _is_small(elements):
        return None
    return _typed(elements, _result_dtype(node))


def _is_small(elements: Elements) -> bool:
    """Whether the elements are few and simple enough to be carried along."""
    if elements.size > MAX_KNOWN_ELEMENTS:
        return False
    weights = [expr.weight_of(item) for item in elements.reshape(-1).tolist() if not isinstance(item, int)]
    return not weights or (elements.size <= MAX_EXPRESSIONS and max(weights) <= MAX_WEIGHT)


def _typed(elements: Elements, dtype: DType) -> tuple[Elements, TensorType]:
    return elements, TensorType(dtype, elements.shape)


def _result_dtype(node: OnnxNode) -> DType:
    if node.op_type == "Cast":
        return DTYPE_OF_ONNX[node.int("to")]
    if node.op_type in _DECIDABLE:
        return BOOL
    return node.input(1 if node.op_type == "Where" else 0).dtype


def _shape(node: OnnxNode) -> Elements:
    shape = node.input(0).shape
    start, end = node.int("start", 0), node.int("end", len(shape))
    part = shape[slice(start, end if node.has("end") else None)]
    return object_array(part, (len(part),))


def _cast(node: OnnxNode, operands: list[Any]) -> Elements | None:
    to = DTYPE_OF_ONNX.get(node.int("to"))
    return operands[0] if to is not None and to.is_integer and to.bits >= 32 else None


def _gather(node: OnnxNode, operands: list[Any]) -> Elements | None:
    data, indices = operands
    if not all(isinstance(item, int) for item in indices.reshape(-1)):
        return None
    axis = normal_axis(node.int("axis", 0), data.ndim)
    return np.asarray(np.take(data, indices.astype(np.int64), axis=axis), dtype=object)


def _concat(node: OnnxNode, operands: list[Any]) -> Elements | None:
    return np.concatenate(operands, axis=normal_axis(node.int("axis"), operands[0].ndim))


def _squeeze(node: OnnxNode, operands: list[Any]) -> Elements | None:
    axes = operands[1].reshape(-1).tolist() if len(operands) > 1 and operands[1] is not None else node.ints("axes")
    return np.squeeze(operands[0], None if axes is None else normal_axes(axes, operands[0].ndim))


def _unsqueeze(node: OnnxNode, operands: list[Any]) -> Elements | None:
    axes = operands[1].reshape(-1).tolist() if len(operands) > 1 else node.ints("axes")
    assert axes is not None
    return np.expand_dims(operands[0], normal_axes(axes, operands[0].ndim + len(axes)))


def _reshape(node: OnnxNode, operands: list[Any]) -> Elements | None:
    target = operands[1].reshape(-1).tolist()
    if not all(isinstance(item, int) for item in target):
        return None
    return operands[0].reshape([operands[0].shape[k] if item == 0 else item for k, item in enumerate(target)])


def _slice(node: OnnxNode, operands: list[Any]) -> Elements | None:
    if node.version < 10:
        starts, ends, steps = node.ints("starts"), node.ints("ends"), None
    else:
        given = [None if operand is None else operand.reshape(-1).tolist() for operand in operands[1:]]
        starts, ends, _, steps = [*given, None, None][:4]
    if operands[0].ndim != 1 or starts is None or ends is None or len(starts) != 1:
        return None
    step = 1 if steps is None else steps[0]
    if not all(isinstance(item, int) for item in (starts[0], ends[0], step)) or step == 0:
        return None
    return operands[0][slice(starts[0], _end(ends[0], step), step)]


def _end(end: int, step: int) -> int | None:
    """ONNX clamps an end far below the start of a backward slice; Python would count it from the back."""
    return None if step < 0 and end < -(1 << 31) else end


def _where(node: OnnxNode, operands: list[Any]) -> Elements | None:
    condition = operands[0]
    if not all(isinstance(item, int) for item in condition.reshape(-1)):
        return None
    return np.where(condition.astype(bool), operands[1], operands[2])


def _divide(left: Dim, right: Dim) -> Dim:
    """ONNX divides integers towards zero; for dimensions that is floor division."""
    if isinstance(left, int) and isinstance(right, int) and right != 0:
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if right == 0:
        raise ZeroDivisionError("a dimension is divided by zero")
    low, _ = expr.bounds(left)
    right_low, _ = expr.bounds(right)
    if low is None or low < 0 or right_low is None or right_low <= 0:
        raise _Undecided
    return expr.floordiv(left, right)


class _Undecided(Exception):
    """The result depends on the values of symbols."""


def _equal(left: Dim, right: Dim) -> int:
    low, high = expr.bounds(expr.add(left, expr.mul(right, -1)))
    if low == 0 and high == 0:
        return 1
    if (low is not None and low > 0) or (high is not None and high < 0):
        return 0
    raise _Undecided


def _less(left: Dim, right: Dim) -> int:
    low, high = expr.bounds(expr.add(left, expr.mul(right, -1)))
    if high is not None and high < 0:
        return 1
    if low is not None and low >= 0:
        return 0
    raise _Undecided


def _elementwise(function: Callable[..., Any]) -> Callable[[OnnxNode, list[Any]], Elements | None]:
    def apply(node: OnnxNode, operands: list[Any]) -> Elements | None:
        if prod(np.broadcast_shapes(*(operand.shape for operand in operands))) > MAX_KNOWN_ELEMENTS:
            return None
        try:
            first, *rest = operands
            if not rest:
                return np.frompyfunc(function, 1, 1)(first)
            return reduce(np.frompyfunc(function, 2, 1), rest, first)
        except _Undecided:
            return None

    return apply


def _reduce(function: Callable[[Dim, Dim], Dim], identity: Dim) -> Callable[[OnnxNode, list[Any]], Elements | None]:
    def apply(node: OnnxNode, operands: list[Any]) -> Elements | None:
        if operands[0].ndim != 1:
            return None
        total = reduce(function, operands[0].tolist(), identity)
        return object_array([total], (1,) if node.int("keepdims", 1) else ())

    return apply


def _range(node: OnnxNode, operands: list[Any]) -> Elements | None:
    bounds = [operand.reshape(-1)[0] for operand in operands]
    if not all(isinstance(item, int) for item in bounds) or bounds[2] == 0:
        return None
    values = range(*bounds)
    return object_array(list(values), (len(values),)) if len(values) <= MAX_KNOWN_ELEMENTS else None


_DECIDABLE = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}
_RULES: dict[str, Callable[[OnnxNode, list[Any]], Elements | None]] = {
    "Identity": lambda node, operands: operands[0],
    "Cast": _cast,
    "Gather": _gather,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Where": _where,
    "Range": _range,
    "Add": _elementwise(expr.add),
    "Sub": _elementwise(lambda left, right: expr.add(left, expr.mul(right, -1))),
    "Mul": _elementwise(expr.mul),
    "Div": _elementwise(_divide),
    "Max": _elementwise(expr.maximum),
    "Min": _elementwise(expr.minimum),
    "Neg": _elementwise(lambda value: expr.mul(value, -1)),
    "Equal": _elementwise(_equal),
    "Less": _elementwise(_less),
    "Greater": _elementwise(lambda left, right: _less(right, left)),
    "LessOrEqual": _elementwise(lambda left, right: 1 - _less(right, left)),
    "GreaterOrEqual": _elementwise(lambda left, right: 1 - _less(left, right)),
    "ReduceProd": _reduce(expr.mul, 1),
    "ReduceSum": _reduce(expr.add, 0),
}
