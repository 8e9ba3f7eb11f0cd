"""Elementwise operators: one scalar body over broadcast operands.

y[i...] = body(in0[i...], in1[i...], ...)        an axis of extent 1 in an operand is read at index 0
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir import expr
from foretell.ir.dtypes import BOOL, F32, I32, I64, DType
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Cast,
    Const,
    Definition,
    Load,
    Operand,
    Scalar,
    Select,
    Source,
    Stage,
    TensorType,
    axes_over,
    dtype_of,
)

Body = Callable[[tuple[Scalar, ...], Attrs], Scalar]


def broadcast_shapes(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape numpy would broadcast to; two unequal symbolic dimensions are an error unless one is 1.

    before: (n, 1, 4), (3, 1)     after: (n, 3, 4)
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = []
    for position in range(rank):
        dims = [shape[position - rank + len(shape)] for shape in shapes if position - rank + len(shape) >= 0]
        result.append(_broadcast_dims(dims))
    return tuple(result)


def _broadcast_dims(dims: list[Dim]) -> Dim:
    wide = [dim for dim in dims if dim != 1]
    if not wide:
        return 1
    # A number says more than a symbol: where both meet, the symbol must turn out equal to it (or to 1).
    chosen = next((dim for dim in wide if isinstance(dim, int)), wide[0])
    for dim in wide:
        if isinstance(dim, int) and dim != chosen:
            raise ValueError(f"dimensions {chosen} and {dim} do not broadcast")
    return chosen


def load_broadcast(source: Source, operand: TensorType, axes: tuple[Axis, ...]) -> Load:
    """Read an operand at the point `axes` of the broadcast shape."""
    own = axes[len(axes) - operand.rank :]
    indices = tuple(
        0 if dim == 1 and axis.extent != 1 else axis.sym for dim, axis in zip(operand.shape, own, strict=True)
    )
    return Load(source, indices, operand.dtype)


def elementwise(name: str, body: Body, *, result: DType | str = "first") -> OpDef:
    """An elementwise operator. `result` is a dtype, "first" or "last" (that operand's), or "to" (the attribute)."""

    def result_dtype(operands: Operands, attrs: Attrs) -> DType:
        if isinstance(result, DType):
            return result
        if result == "to":
            to = attrs["to"]
            assert isinstance(to, DType)
            return to
        return present(operands[0 if result == "first" else -1]).dtype

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
        types = tuple(present(operand) for operand in operands)
        return (TensorType(result_dtype(operands, attrs), broadcast_shapes(*(t.shape for t in types))),)

    def define(operands: Operands, attrs: Attrs) -> Definition:
        (out,) = infer(operands, attrs)
        axes = axes_over(out.shape)
        loads = tuple(load_broadcast(Operand(k), present(operand), axes) for k, operand in enumerate(operands))
        return Definition((Stage("y", out.dtype, axes, body(loads, attrs)),), (0,))

    return OpDef(name, infer, define)


def constant_like(value: float | int | bool, like: Scalar) -> Const:
    """A constant of the type of another scalar."""
    dtype = dtype_of(like)
    return Const(float(value) if dtype.is_float else bool(value) if dtype is BOOL else int(value), dtype)


def _primitive(op: str) -> Body:
    return lambda loads, attrs: Apply(op, loads)


def _number(attrs: Attrs, name: str) -> float:
    value = attrs[name]
    assert isinstance(value, (int, float))
    return float(value)


def _relu(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    return Apply("max", (loads[0], constant_like(0, loads[0])))


def _gelu(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    """x times the normal distribution function, or its tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415)."""
    (x,) = loads
    if attrs.get("approximate") != "tanh":
        return Apply("mul", (x, Apply("normal_cdf", (x,))))
    cube = Apply("mul", (Apply("mul", (x, x)), x))
    inner = Apply("add", (x, Apply("mul", (constant_like(0.044715, x), cube))))
    gate = Apply("tanh", (Apply("mul", (constant_like(sqrt(2 / pi), x), inner)),))
    return Apply("mul", (Apply("mul", (constant_like(0.5, x), x)), Apply("add", (constant_like(1, x), gate))))


def _silu(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    return Apply("mul", (loads[0], Apply("sigmoid", loads)))


def _hard_swish(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    """x * max(0, min(1, x / 6 + 1 / 2))"""
    (x,) = loads
    line = Apply("add", (Apply("mul", (x, constant_like(1 / 6, x))), constant_like(0.5, x)))
    gate = Apply("max", (constant_like(0, x), Apply("min", (constant_like(1, x), line))))
    return Apply("mul", (x, gate))


def _leaky_relu(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    (x,) = loads
    scaled = Apply("mul", (x, constant_like(_number(attrs, "alpha"), x)))
    return Select(Apply("lt", (x, constant_like(0, x))), scaled, x)


def _softplus(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    """log(1 + exp x) = max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    (x,) = loads
    tail = Apply("log1p", (Apply("exp", (Apply("neg", (Apply("abs", (x,)),)),)),))
    return Apply("add", (Apply("max", (x, constant_like(0, x))), tail))


def _where(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    return Select(*loads)


def _cast(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    to = attrs["to"]
    assert isinstance(to, DType)
    value = loads[0]
    if to is BOOL:
        return Apply("ne", (value, constant_like(0, value)))
    return Cast(value, to, bool(attrs.get("saturate", True)))


def _bit_cast(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    """The same bits as another type of the same width: integers of either sign, and floats of 32 or 64 bits."""
    to = attrs["to"]
    assert isinstance(to, DType)
    value = Apply("bits", loads) if dtype_of(loads[0]).is_float else loads[0]
    if to.is_float:
        return Apply("bits", (Cast(value, I32 if to is F32 else I64),))
    return Cast(value, to)


def _isinf(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    (x,) = loads
    infinite = Apply("isinf", (x,))
    positive = Apply("gt", (x, constant_like(0, x)))
    if not attrs.get("detect_negative", True):
        infinite = Apply("and", (infinite, positive))
    if not attrs.get("detect_positive", True):
        infinite = Apply("and", (infinite, Apply("not", (positive,))))
    return infinite


UNARY_OPS = {
    **{"Neg": "neg", "Abs": "abs", "Sign": "sign", "Floor": "floor", "Ceil": "ceil", "Round": "round"},
    **{"Sqrt": "sqrt", "Reciprocal": "reciprocal", "Exp": "exp", "Log": "log", "Erf": "erf", "Not": "not"},
    **{"Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan"},
    **{"Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh"},
    "Sigmoid": "sigmoid",
}
BINARY_OPS = {
    **{"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Mod": "mod", "FMod": "fmod"},
    **{"Max": "max", "Min": "min", "And": "and", "Or": "or", "Xor": "xor", "ShiftLeft": "shl", "ShiftRight": "shr"},
}
COMPARE_OPS = {"Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge"}


def _pow(loads: tuple[Scalar, ...], attrs: Attrs) -> Scalar:
    """The exponent may have another type; the result has the base's."""
    base, exponent = loads
    base_type, exponent_type = dtype_of(base), dtype_of(exponent)
    if base_type.is_integer and exponent_type.is_float:
        return Cast(Apply("pow", (Cast(base, exponent_type), exponent)), base_type)
    if base_type != exponent_type:
        exponent = Cast(exponent, base_type)
    return Apply("pow", (base, exponent))


ELEMENTWISE: dict[str, OpDef] = {
    **{name: elementwise(name, _primitive(op)) for name, op in (UNARY_OPS | BINARY_OPS).items()},
    **{name: elementwise(name, _primitive(op), result=BOOL) for name, op in COMPARE_OPS.items()},
    "IsNaN": elementwise("IsNaN", _primitive("isnan"), result=BOOL),
    "IsInf": elementwise("IsInf", _isinf, result=BOOL),
    "Pow": elementwise("Pow", _pow),
    "Where": elementwise("Where", _where, result="last"),
    "Cast": elementwise("Cast", _cast, result="to"),
    "BitCast": elementwise("BitCast", _bit_cast, result="to"),
    "Relu": elementwise("Relu", _relu),
    "LeakyRelu": elementwise("LeakyRelu", _leaky_relu),
    "Gelu": elementwise("Gelu", _gelu),
    "Silu": elementwise("Silu", _silu),
    "HardSwish": elementwise("HardSwish", _hard_swish),
    "Softplus": elementwise("Softplus", _softplus),
}


def is_scalar_shape(shape: tuple[Dim, ...]) -> bool:
    return expr.product(shape) == 1
