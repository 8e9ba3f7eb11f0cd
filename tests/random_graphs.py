"""Random small graphs from the op table, for tests that compare two ways to run one.

Only functions that are continuous where floats meet them: one rounding more or less must not decide a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph, Value
from foretell.ir import dtypes
from foretell.ir.dtypes import BOOL, DType
from foretell.ir.expr import Dim, Sym
from tests.graph.build_graphs import Sketch
from tests.tolerances import assert_close, coarsest

FLOATS = (dtypes.F32, dtypes.F64, dtypes.F16, dtypes.BF16)
INTEGERS = (
    *(dtypes.I8, dtypes.I16, dtypes.I32, dtypes.I64),
    *(dtypes.U8, dtypes.U16, dtypes.U32, dtypes.U64),
)
NATIVE = (*FLOATS, *INTEGERS, BOOL)
"""Every element type with native code that is not packed."""

FLOAT_UNARY = ("Neg", "Abs", "Relu", "Tanh", "Sigmoid", "Erf", "Sin", "LeakyRelu", "HardSwish", "Gelu")
INTEGER_UNARY = ("Abs", "Sign", "Relu", "Neg", "Not")
MOST_ELEMENTS = 3000
ROWS = Sym("n")
"""The first dimension of the input, where it is symbolic."""

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy], object]


@st.composite
def graphs(
    draw: Draw, types: Sequence[DType] = NATIVE, sizes: Sequence[int] = (0, 1, 2, 3, 5, 7), most_steps: int = 4
) -> tuple[Graph, dict[str, Array]]:
    """A graph of a few operators, and data for its inputs."""
    dtype = _one_of(draw, types)
    shape = tuple(_one_of(draw, sizes) for _ in range(_number(draw, 0, 3)))
    rows = bool(shape) and _number(draw, 0, 3) == 0
    sketch = Sketch()
    dims: tuple[Dim, ...] = (ROWS, *shape[1:]) if rows else shape
    values = [sketch.data(*dims, dtype=dtype, name=name) for name in ("x", "y")]
    for _ in range(_number(draw, 1, most_steps)):
        added = _step(draw, sketch, values)
        if added is not None and _elements(added, shape) <= MOST_ELEMENTS:
            values.append(added)
    random = np.random.default_rng(_number(draw, 0, 1 << 16))
    feeds = {name: random_data(shape, dtype, random) for name in ("x", "y")}
    outputs = values[-1:] if len(values) < 5 or _number(draw, 0, 1) else values[-2:]
    return sketch.graph(*outputs), feeds


def assert_agrees(graph: Graph, feeds: dict[str, Array], found: Sequence[Array]) -> None:
    """Outputs in order are what the evaluator says, within the tolerance of the coarsest type on the way."""
    values = [value for node in graph.nodes for value in node.outputs]
    through = coarsest(value.dtype for value in (*graph.inputs, *values)) or dtypes.F32
    whole = replace(graph, outputs=(*graph.outputs, *values), output_names=_numbered(len(graph.outputs) + len(values)))
    expected = list(evaluate(whole, feeds).values())
    scale = max((_largest(array) for array in expected), default=0.0)
    for array, wanted in zip(found, expected, strict=False):
        assert_close(array, wanted, through, scale=max(1.0, scale))


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))


def _largest(array: Array) -> float:
    wide = np.abs(array.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=0.0))


def random_data(shape: Sequence[int], dtype: DType, random: np.random.Generator) -> Array:
    """Floats around zero, integers of the whole range of a byte."""
    if dtype.is_float:
        return np.asarray(random.standard_normal(shape)).astype(dtype.numpy)
    if dtype is BOOL:
        return np.asarray(random.integers(0, 2, shape)).astype(np.bool_)
    low, high = (-128, 128) if dtype.kind == "int" else (0, 256)
    return np.asarray(random.integers(low, high, shape)).astype(dtype.numpy)


def _one_of(draw: Draw, options: Sequence[T]) -> T:
    return options[_number(draw, 0, len(options) - 1)]


def _number(draw: Draw, low: int, high: int) -> int:
    found = draw(st.integers(low, high))
    assert isinstance(found, int)
    return found


def _elements(value: Value, shape: tuple[int, ...]) -> int:
    return prod(dim if isinstance(dim, int) else max(1, prod(shape)) for dim in value.shape)


def _step(draw: Draw, sketch: Sketch, values: Sequence[Value]) -> Value | None:
    """One more operator on a recent value; None where it does not apply."""
    value = values[-1 - _number(draw, 0, min(1, len(values) - 1))]
    steps = (_unary, _binary, _binary, _cast, _transpose, _reshape, _slice, _pad, _concat, _gather, _reduce, _reduce)
    return _one_of(draw, (*steps, _softmax, _matmul, _where))(draw, sketch, value, values)


def _unary(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if value.dtype is BOOL:
        return sketch.op("Not", value)
    op = _one_of(draw, FLOAT_UNARY if value.dtype.is_float else INTEGER_UNARY)
    attrs = {"alpha": 0.25} if op == "LeakyRelu" else {}
    return sketch.op(op, value, **attrs)


def _binary(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    logical, bitwise, plain = ("And", "Or", "Xor"), ("And", "Xor", "Mod", "Div"), ("Add", "Sub", "Mul", "Max", "Min")
    ops = logical if value.dtype is BOOL else plain if value.dtype.is_float else plain + bitwise
    partners = [other for other in values if other.type == value.type]
    return sketch.op(_one_of(draw, ops), value, _one_of(draw, partners))


def _where(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    """Decided by inputs, which have no rounding errors."""
    partners = [other for other in values[:2] if other.type == value.type]
    if len(partners) < 2:
        return None
    return sketch.op("Where", sketch.op("Less", *partners) if value.dtype is not BOOL else partners[0], value, value)


def _cast(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    targets = FLOATS if value.dtype.is_float else (*INTEGERS, *FLOATS) if value.dtype is not BOOL else NATIVE
    return sketch.op("Cast", value, to=_one_of(draw, targets))


def _transpose(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    order = draw(st.permutations(range(value.type.rank)))
    assert isinstance(order, list)
    return sketch.op("Transpose", value, perm=tuple(order))


def _reshape(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if value.type.rank == 0:
        return sketch.op("Reshape", value, shape=(1,))
    split = _number(draw, 0, value.type.rank)
    head, tail = value.type.shape[:split], value.type.shape[split:]
    joined: Dim = 1
    for dim in tail:
        joined = joined * dim
    return sketch.op("Reshape", value, shape=(*head, joined, 1) if _number(draw, 0, 1) else (*head, joined))


def _slice(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if not value.type.is_static or value.type.rank == 0:
        return None
    starts, steps, shape = [], [], []
    for dim in value.type.static_shape:
        start, step = _number(draw, 0, dim), _one_of(draw, (1, 1, 2))
        starts.append(start)
        steps.append(step)
        shape.append(-(-(dim - start) // step))
    return sketch.op("Slice", value, starts=tuple(starts), steps=tuple(steps), shape=tuple(shape))


def _pad(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if not value.type.is_static or 0 in value.type.static_shape:
        return None
    before, after = (tuple(_number(draw, 0, 2) for _ in value.shape) for _ in range(2))
    mode = _one_of(draw, ("constant", "edge", "reflect", "wrap"))
    return sketch.op("Pad", value, before=before, after=after, mode=mode)


def _concat(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if value.type.rank == 0:
        return None
    partners = [other for other in values if other.type == value.type]
    axis = _number(draw, 0, value.type.rank - 1)
    return sketch.op("Concat", value, *(_one_of(draw, partners) for _ in range(_number(draw, 1, 2))), axis=axis)


def _gather(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if value.type.rank == 0 or not value.type.is_static:
        return None
    axis = _number(draw, 0, value.type.rank - 1)
    extent = value.type.static_shape[axis]
    if extent == 0:
        return None
    chosen = [_number(draw, -extent, extent - 1) for _ in range(_number(draw, 0, 5))]
    indices = sketch.constant(np.array(chosen, _one_of(draw, (np.int64, np.int32))), "indices")
    return sketch.op("Gather", value, indices, axis=axis)


def _reduce(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if value.type.rank == 0:
        return None
    axes = tuple(axis for axis in range(value.type.rank) if _number(draw, 0, 1)) or (value.type.rank - 1,)
    ops = ("ReduceMax", "ReduceMin") if value.dtype is BOOL else ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean")
    return sketch.op(_one_of(draw, ops), value, axes=axes, keepdims=bool(_number(draw, 0, 1)))


def _softmax(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if not value.dtype.is_float or value.type.rank == 0:
        return None
    return sketch.op("Softmax", value, axis=_number(draw, 0, value.type.rank - 1))


def _matmul(draw: Draw, sketch: Sketch, value: Value, values: Sequence[Value]) -> Value | None:
    if value.dtype is BOOL or value.type.rank != 2:
        return None
    return sketch.op("MatMul", value, sketch.transpose(value, (1, 0)))
