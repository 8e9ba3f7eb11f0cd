"""Tensor expressions: what an operator computes, said once.

A `Definition` is a short list of stages. A `Stage` fills one tensor: for every point of its axes it stores the
body's value, or the reduction of the body over the reduction axes. Bodies are scalar expressions over loads;
an index of a load is an integer expression over the axes (affine, or with // and %), or a scalar that is itself
loaded (a gather). Interpretation, lowering, flop counts and features all derive from this.

Semantics
- Arithmetic is done in the compute type of the operands (`DType.compute`): narrow floats in float32. A stage
  rounds once, when it stores. Integers wrap.
- `Select` evaluates only the branch it takes: a load in the other branch need not be in bounds.
- A reduction over no points stores the identity of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.dtypes import BOOL, F32, F64, I32, I64, DType
from foretell.ir.expr import Dim, Sym
from foretell.support.frozen import frozen, slot_setter


@frozen
class TensorType:
    """Element type and shape of a dense tensor; dimensions may be symbolic."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        return expr.product(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape where it is known to hold no symbols."""
        assert self.is_static, f"{self} has symbolic dimensions"
        return tuple(dim for dim in self.shape if isinstance(dim, int))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(dim) for dim in self.shape)}]"


@frozen
class Axis:
    """A loop variable that runs from 0 to extent - 1."""

    sym: Sym
    extent: Dim

    def __str__(self) -> str:
        return f"{self.sym}<{self.extent}"


@frozen
class Operand:
    """The operator's input number `index`."""

    index: int

    def __str__(self) -> str:
        return f"in{self.index}"


@frozen
class Local:
    """The tensor that an earlier stage of the same definition filled."""

    index: int

    def __str__(self) -> str:
        return f"t{self.index}"


class _Hashed:
    """What is looked up often: its hash is found once."""

    __slots__ = ("_hash",)
    _hash: int


_set_hash = slot_setter(_Hashed, "_hash")


@frozen
class Buffer(_Hashed):
    """A dense row-major tensor in memory: what operands and stages become once they are lowered to loops.

    `scope` says where it lives: `table` (its address is an entry of the table the caller passes: inputs, outputs,
    constants and the arena), `stack` (an array of a kernel's frame, sizes known) or `register` (a few values).
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    scope: str = "table"

    def __post_init__(self) -> None:
        _set_hash(self, hash((self.name, self.dtype.name, self.shape, self.scope)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Most that is compared is one object, or has another hash."""
        if self is other:
            return True
        if not isinstance(other, Buffer) or self._hash != other._hash:
            return False
        return (self.name, self.dtype, self.shape, self.scope) == (other.name, other.dtype, other.shape, other.scope)

    def __reduce__(self) -> tuple[type[Buffer], tuple[str, DType, tuple[Dim, ...], str]]:
        """Made anew where it is read: hashes differ from process to process."""
        return Buffer, (self.name, self.dtype, self.shape, self.scope)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)

    def __str__(self) -> str:
        return f"%{self.name}"


Source: TypeAlias = Operand | Local | Buffer


@frozen
class Const:
    value: bool | int | float
    dtype: DType

    def __str__(self) -> str:
        return f"{self.value}:{self.dtype}"


@frozen
class Index:
    """An index expression as an i64 value."""

    value: Dim

    def __str__(self) -> str:
        return f"index({self.value})"


@frozen
class Load:
    source: Source
    indices: tuple[Dim | Scalar, ...]
    dtype: DType
    """The element type of the source; the loaded value has its compute type."""

    def __str__(self) -> str:
        return f"{self.source}[{', '.join(str(index) for index in self.indices)}]"


@frozen
class Apply:
    """A primitive scalar function; see `PRIMITIVES`."""

    op: str
    arguments: tuple[Scalar, ...]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(str(argument) for argument in self.arguments)})"


@frozen
class Select:
    condition: Scalar
    then: Scalar
    otherwise: Scalar

    def __str__(self) -> str:
        return f"select({self.condition}, {self.then}, {self.otherwise})"


@frozen
class Cast:
    """Conversion as C does it (float to int truncates); `saturate` clamps narrow floats instead of overflowing."""

    value: Scalar
    dtype: DType
    saturate: bool = True

    def __str__(self) -> str:
        return f"{self.dtype}({self.value})"


Scalar: TypeAlias = Const | Index | Load | Apply | Select | Cast

ARITHMETIC = frozenset({"add", "sub", "mul", "div", "mod", "fmod", "pow", "max", "min"})
"""Two arguments of one type. div truncates for integers; mod has the divisor's sign, fmod the dividend's;
max and min return NaN if either argument is NaN."""
BITWISE = frozenset({"and", "or", "xor", "shl", "shr"})
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
UNARY = frozenset(
    "neg abs sign floor ceil round sqrt reciprocal exp expm1 log log1p sin cos tan asin acos atan sinh cosh tanh"
    " asinh acosh atanh erf normal_cdf sigmoid not isnan isinf bits".split()
)
"""One argument. round goes to even; `not` is bitwise on integers; `bits` reads a float as an integer, or back."""
PRIMITIVES = ARITHMETIC | BITWISE | COMPARISONS | UNARY

REDUCTION_OPERATIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
"""Each kind of reduction, and the primitive that combines two of its values."""
REDUCTIONS = frozenset(REDUCTION_OPERATIONS)


@frozen
class Stage:
    """One tensor and how each of its elements is computed."""

    name: str
    dtype: DType
    axes: tuple[Axis, ...]
    body: Scalar
    reduction: str | None = None
    reduction_axes: tuple[Axis, ...] = ()

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, tuple(axis.extent for axis in self.axes))

    def __str__(self) -> str:
        head = f"{self.name}[{', '.join(map(str, self.axes))}]: {self.dtype}"
        if self.reduction is None:
            return f"{head} = {self.body}"
        return f"{head} = {self.reduction}[{', '.join(map(str, self.reduction_axes))}] {self.body}"


@frozen
class Definition:
    """The stages of an operator in order, and which of them are its outputs."""

    stages: tuple[Stage, ...]
    outputs: tuple[int, ...]

    def __str__(self) -> str:
        return "\n".join(str(stage) for stage in self.stages)


def dtype_of(scalar: Scalar) -> DType:
    """The type of a scalar expression's value: always a compute type."""
    match scalar:
        case Const(_, dtype) | Load(_, _, dtype) | Cast(_, dtype):
            return dtype.compute
        case Index():
            return I64
        case Select(_, then, _):
            return dtype_of(then)
        case Apply(op, arguments):
            if op in COMPARISONS or op in ("isnan", "isinf"):
                return BOOL
            first = dtype_of(arguments[0])
            return _SAME_BITS[first] if op == "bits" else first


_SAME_BITS = {F32: I32, F64: I64, I32: F32, I64: F64}


def scalars(scalar: Scalar) -> Iterator[Scalar]:
    """A scalar expression and all that it is made of."""
    yield scalar
    match scalar:
        case Const() | Index():
            inner: tuple[Scalar, ...] = ()
        case Load(_, indices):
            inner = tuple(index for index in indices if not isinstance(index, (int, expr.Expr)))
        case Cast(value):
            inner = (value,)
        case Select(condition, then, otherwise):
            inner = (condition, then, otherwise)
        case Apply(_, arguments):
            inner = arguments
    for part in inner:
        yield from scalars(part)


def operation_count(scalar: Scalar) -> int:
    """Arithmetic operations in one evaluation of the scalar; moves, selects, casts and comparisons are free."""
    match scalar:
        case Const() | Index() | Load():
            return 0
        case Cast(value):
            return operation_count(value)
        case Select(condition, then, otherwise):
            return operation_count(condition) + max(operation_count(then), operation_count(otherwise))
        case Apply(op, arguments):
            return (0 if op in COMPARISONS or op in BITWISE else 1) + sum(map(operation_count, arguments))


def stage_flops(stage: Stage) -> Dim:
    """Operations of one stage; a multiply-accumulate counts two, a max or min reduction one per point."""
    points = expr.product(tuple(axis.extent for axis in stage.axes + stage.reduction_axes))
    per_point = operation_count(stage.body) + (0 if stage.reduction is None else 1)
    return expr.mul(points, per_point)


def definition_points(definition: Definition) -> Dim:
    """Iterations of all loops of all stages."""
    total: Dim = 0
    for stage in definition.stages:
        total = expr.add(total, expr.product(tuple(axis.extent for axis in stage.axes + stage.reduction_axes)))
    return total


def definition_flops(definition: Definition) -> Dim:
    total: Dim = 0
    for stage in definition.stages:
        total = expr.add(total, stage_flops(stage))
    return total


def axes_over(shape: tuple[Dim, ...], prefix: str = "i") -> tuple[Axis, ...]:
    """One fresh axis per dimension: i0, i1, ..."""
    return tuple(axis_over(extent, f"{prefix}{number}") for number, extent in enumerate(shape))


def axis_over(extent: Dim, name: str) -> Axis:
    _, high = expr.bounds(extent)
    return Axis(Sym(name, 0, None if high is None else max(0, high - 1)), extent)
