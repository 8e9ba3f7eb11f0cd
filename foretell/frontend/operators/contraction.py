"""ONNX sums of products."""

from __future__ import annotations

from string import ascii_letters

from foretell.frontend.onnx_node import OnnxNode, Unsupported
from foretell.frontend.operators.importer import Importer
from foretell.frontend.operators.windows import conv_window
from foretell.graph.build import Builder
from foretell.graph.nodes import Value
from foretell.ir.dtypes import I32, DType
from foretell.ir.tensor_expr import TensorType

MAX_EINSUM_OPERANDS = 64


def matmul(build: Builder, a: Value, b: Value, dtype: DType | None = None) -> Value:
    """numpy's matmul: a vector is a row on the left, a column on the right, and loses that axis again."""
    left = a if a.type.rank > 1 else build.reshape(a, (1, *a.shape))
    right = b if b.type.rank > 1 else build.reshape(b, (*b.shape, 1))
    y = build.op("MatMul", left, right) if dtype is None else build.op("MatMul", left, right, dtype=dtype)
    shape = y.shape
    if b.type.rank == 1:
        shape = shape[:-1]
    if a.type.rank == 1:
        shape = shape[: -1 if b.type.rank == 1 else -2] + (() if b.type.rank == 1 else shape[-1:])
    return build.reshape(y, shape)


def _matmul(node: OnnxNode) -> Value:
    a, b = node.input(0), node.input(1)
    if not a.type.rank or not b.type.rank:
        raise ValueError("MatMul of a scalar")
    return matmul(node.build, a, b)


def _gemm(node: OnnxNode) -> Value:
    """alpha * a' b' + beta * c"""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    build = node.build
    if a.type.rank != 2 or b.type.rank != 2:
        raise ValueError(f"Gemm needs matrices, not {a.type} and {b.type}")
    a = build.transpose(a, (1, 0)) if node.int("transA", 0) else a
    b = build.transpose(b, (1, 0)) if node.int("transB", 0) else b
    y = build.op("MatMul", a, b)
    alpha, beta = node.float("alpha", 1.0), node.float("beta", 1.0)
    if alpha != 1:
        y = build.op("Mul", y, node.scalar(alpha, y))
    if c is not None and beta != 0:
        y = build.op("Add", y, c if beta == 1 else build.op("Mul", c, node.scalar(beta, c)))
    return y


def _matmul_integer(node: OnnxNode) -> Value:
    a, b = node.input(0), node.input(1)
    left = centred(node.build, a, node.optional(2), max(a.type.rank - 2, 0))
    right = centred(node.build, b, node.optional(3), b.type.rank - 1)
    return matmul(node.build, left, right)


def centred(build: Builder, x: Value, zero: Value | None, axis: int, dtype: DType = I32) -> Value:
    """x - zero point in a type that holds the difference; a vector of zero points runs along `axis` of x."""
    wide = build.cast(x, dtype)
    if zero is None:
        return wide
    return build.op("Sub", wide, build.cast(along_axis(build, zero, x.type.rank, axis), dtype))


def along_axis(build: Builder, value: Value, rank: int, axis: int) -> Value:
    """One number as a scalar, a vector shaped to run along one axis of a tensor; other shapes stay.

    before: [c] along axis 1 of rank 4     after: [c, 1, 1]
    """
    if value.type.elements == 1:
        return build.reshape(value, ())
    return build.reshape(value, (*value.shape, *(1,) * (rank - 1 - axis))) if value.type.rank == 1 else value


def _conv(node: OnnxNode) -> Value:
    return conv(node, node.input(0), node.input(1), node.optional(2))


def conv(node: OnnxNode, x: Value, w: Value, bias: Value | None) -> Value:
    """A canonical Conv with the node's window attributes."""
    if x.type.rank < 3:
        raise ValueError(f"Conv needs at least one spatial axis, got {x.type}")
    window = conv_window(node, x, w.shape[2:])
    padded = (d + b + a for d, b, a in zip(x.shape[2:], window.before, window.after, strict=True))
    node.scope.check_type(TensorType(x.dtype, (*x.shape[:2], *padded)), node.location)
    return node.build.op(
        "Conv",
        x,
        w,
        *(() if bias is None else (bias,)),
        strides=window.strides,
        dilations=window.dilations,
        before=window.before,
        after=window.after,
        group=window.group,
    )


def _conv_integer(node: OnnxNode) -> Value:
    # Padding stands for the zero point, which is 0 once it is subtracted.
    x = centred(node.build, node.input(0), node.optional(2), 0)
    return conv(node, x, centred(node.build, node.input(1), node.optional(3), 0), None)


def _einsum(node: OnnxNode) -> Value:
    values = node.present_inputs
    if len(values) > MAX_EINSUM_OPERANDS:
        raise Unsupported(f"a product of {len(values)} tensors, where {MAX_EINSUM_OPERANDS} are possible")
    return node.build.op("Einsum", *values, equation=explicit_equation(node.text("equation"), values))


def explicit_equation(equation: str, values: tuple[Value, ...]) -> str:
    """The equation with its result spelled out and its ellipses replaced by letters.

    before: "...ij,...jk" on ranks 4 and 4     after: "ABij,ABjk->ABik"
    """
    compact = equation.replace(" ", "")
    left, arrow, right = compact.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise ValueError(f"{equation!r} has {len(terms)} terms for {len(values)} inputs")
    spare = [letter for letter in ascii_letters[::-1] if letter not in compact]
    widths = [value.type.rank - len(term.replace("...", "")) for term, value in zip(terms, values, strict=True)]
    depth = max((width for width, term in zip(widths, terms, strict=True) if "..." in term), default=0)
    if depth > len(spare):
        raise ValueError(f"{equation!r} needs more indices than there are letters")
    dots = "".join(spare[:depth])
    spelled: list[str] = []
    for term, width in zip(terms, widths, strict=True):
        if width < 0 or (width and "..." not in term) or term.count("...") > 1:
            raise ValueError(f"term {term!r} of {equation!r} does not fit its input")
        spelled.append(term.replace("...", dots[depth - width :]))
    if not arrow:
        letters = "".join(spelled)
        right = "..." if depth else ""
        right += "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots))
    result = right.replace("...", dots)
    used = set("".join(spelled))
    if not all(letter.isalpha() and letter.isascii() for letter in used | set(result)):
        raise ValueError(f"{equation!r} is not an einsum equation")
    if len(set(result)) != len(result) or not set(result) <= used:
        raise ValueError(f"the result of {equation!r} repeats an index or names an unknown one")
    return f"{','.join(spelled)}->{result}"


CONTRACTION_IMPORTERS: dict[str, Importer] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "MatMulInteger": _matmul_integer,
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "Einsum": _einsum,
}
