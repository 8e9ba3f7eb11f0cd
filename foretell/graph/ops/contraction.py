"""Sums of products: MatMul, Einsum and Conv, the operators that uKernels will carry.

Partial sums are kept in the compute type and rounded once, in the last stage.
"""

from __future__ import annotations

from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr, text_attr
from foretell.graph.ops.elementwise import broadcast_shapes, load_broadcast
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Const,
    Definition,
    Index,
    Load,
    Local,
    Operand,
    Scalar,
    Select,
    Source,
    Stage,
    TensorType,
    axes_over,
    axis_over,
)


def _result_dtype(operands: Operands, attrs: Attrs) -> DType:
    """The attribute `dtype` when there is one (integer products accumulate in i32), else the first operand's."""
    dtype = attrs.get("dtype")
    return dtype if isinstance(dtype, DType) else present(operands[0]).dtype


def _with_bias(stages: tuple[Stage, ...], bias: TensorType | None, channel: int, dtype: DType) -> Definition:
    """Add operand 2, indexed by axis `channel` of the result, to the last stage."""
    if bias is None:
        return Definition(stages, (len(stages) - 1,))
    last = stages[-1]
    point = Load(Local(len(stages) - 1), tuple(axis.sym for axis in last.axes), last.dtype)
    added = Load(Operand(2), (last.axes[channel].sym,), bias.dtype)
    return Definition((*stages, Stage("y", dtype, last.axes, Apply("add", (point, added)))), (len(stages),))


# --- MatMul(a, b, bias?): y[batch..., i, j] = sum[k] a[batch..., i, k] * b[batch..., k, j] (+ bias[j]) --------


def infer_matmul(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    a, b = present(operands[0]), present(operands[1])
    if a.rank < 2 or b.rank < 2:
        raise ValueError(f"MatMul needs matrices, not {a} and {b}")
    inner, other = a.shape[-1], b.shape[-2]
    if isinstance(inner, int) and isinstance(other, int) and inner != other:
        raise ValueError(f"the inner dimensions of {a} and {b} differ")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (TensorType(_result_dtype(operands, attrs), (*batch, a.shape[-2], b.shape[-1])),)


def define_matmul(operands: Operands, attrs: Attrs) -> Definition:
    a, b = present(operands[0]), present(operands[1])
    bias = operands[2] if len(operands) > 2 else None
    (out,) = infer_matmul(operands, attrs)
    axes = axes_over(out.shape)
    k = axis_over(a.shape[-1], "k")
    batch = axes[:-2]

    def load(number: int, type: TensorType, last: tuple[Dim, Dim]) -> Load:
        lead = load_broadcast(Operand(number), TensorType(type.dtype, type.shape[:-2]), batch).indices
        return Load(Operand(number), (*lead, *last), type.dtype)

    product = Apply("mul", (load(0, a, (axes[-2].sym, k.sym)), load(1, b, (k.sym, axes[-1].sym))))
    name, dtype = ("y", out.dtype) if bias is None else ("product", out.dtype.compute)
    return _with_bias((Stage(name, dtype, axes, product, "sum", (k,)),), bias, len(axes) - 1, out.dtype)


# --- Einsum{equation}: letters only, the result spelled out, no ellipsis -------------------------------------


def _letters(operands: Operands, attrs: Attrs) -> tuple[list[str], str, dict[str, Dim]]:
    left, result = text_attr(attrs, "equation").split("->")
    terms = left.split(",")
    extents: dict[str, Dim] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, dim in zip(term, present(operand).shape, strict=True):
            known = extents.get(letter, 1)
            if isinstance(known, int) and isinstance(dim, int) and 1 not in (known, dim) and known != dim:
                raise ValueError(f"index {letter} of {attrs['equation']} has both extent {known} and {dim}")
            extents[letter] = dim if known == 1 else known
    return terms, result, extents


def infer_einsum(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    _, result, extents = _letters(operands, attrs)
    return (TensorType(present(operands[0]).dtype, tuple(extents[letter] for letter in result)),)


def define_einsum(operands: Operands, attrs: Attrs) -> Definition:
    terms, result, extents = _letters(operands, attrs)
    (out,) = infer_einsum(operands, attrs)
    axes: dict[str, Axis] = dict(zip(result, axes_over(out.shape), strict=True))
    inner = tuple(axis_over(extents[letter], f"r{letter}") for letter in extents if letter not in axes)
    axes |= dict(zip((letter for letter in extents if letter not in result), inner, strict=True))
    body: Scalar | None = None
    for number, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        x = present(operand)
        indices = tuple(
            0 if dim == 1 and extents[letter] != 1 else axes[letter].sym
            for letter, dim in zip(term, x.shape, strict=True)
        )
        load = Load(Operand(number), indices, x.dtype)
        body = load if body is None else Apply("mul", (body, load))
    assert body is not None
    return Definition((Stage("y", out.dtype, tuple(axes[c] for c in result), body, "sum", inner),), (0,))


# --- Conv(x, w, bias?){strides, dilations, before, after, group} ---------------------------------------------


def window_extent(extent: Dim, kernel: Dim, stride: int, dilation: int, pads: Dim, ceil: bool = False) -> Dim:
    """How many windows of `kernel` taps fit into a padded extent."""
    room = extent + pads - (dilation * (kernel - 1) + 1)
    return (room + (stride - 1 if ceil else 0)) // stride + 1


def infer_conv(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, w, group = present(operands[0]), present(operands[1]), int_attr(attrs, "group")
    if x.rank < 3 or x.rank != w.rank:
        raise ValueError(f"Conv needs data and weights of one rank, at least 3; got {x} and {w}")
    if isinstance(x.shape[1], int) and isinstance(w.shape[1], int) and x.shape[1] != w.shape[1] * group:
        raise ValueError(f"Conv of {x} in {group} group(s) needs weights for {x.shape[1]} channels, got {w}")
    if isinstance(w.shape[0], int) and w.shape[0] % group:
        raise ValueError(f"{w.shape[0]} output channels do not divide into {group} groups")
    spatial: list[Dim] = []
    for number in range(x.rank - 2):
        extent = window_extent(
            x.shape[number + 2],
            w.shape[number + 2],
            ints_attr(attrs, "strides")[number],
            ints_attr(attrs, "dilations")[number],
            dims_attr(attrs, "before")[number] + dims_attr(attrs, "after")[number],
        )
        if isinstance(extent, int) and extent <= 0:
            raise ValueError(f"the window of {w} does not fit into {x}")
        spatial.append(extent)
    return (TensorType(_result_dtype(operands, attrs), (x.shape[0], w.shape[0], *spatial)),)


def pad_stage(x: TensorType, before: tuple[Dim, ...], after: tuple[Dim, ...], fill: Scalar) -> Stage:
    """Operand 0 with its trailing axes widened; a load outside is `fill`."""
    lead = x.rank - len(before)
    shape = tuple(dim + (before[k - lead] + after[k - lead] if k >= lead else 0) for k, dim in enumerate(x.shape))
    axes = axes_over(shape)
    places = tuple(axis.sym - (before[k - lead] if k >= lead else 0) for k, axis in enumerate(axes))
    body: Scalar = Load(Operand(0), places, x.dtype)
    for k in range(lead, x.rank):
        if before[k - lead]:
            body = Select(Apply("ge", (Index(places[k]), Index(0))), body, fill)
        if after[k - lead]:
            body = Select(Apply("lt", (Index(places[k]), Index(x.shape[k]))), body, fill)
    return Stage("padded", x.dtype, axes, body)


def padded(x: TensorType, before: tuple[Dim, ...], after: tuple[Dim, ...]) -> tuple[tuple[Stage, ...], Source]:
    """Operand 0 with zeros around it, and what to load it from."""
    if not any(before) and not any(after):
        return (), Operand(0)
    return (pad_stage(x, before, after, Const(0, x.dtype)),), Local(0)


def define_conv(operands: Operands, attrs: Attrs) -> Definition:
    """Pad; y[n, g, o, s...] = sum[c, k...] x[n, g*C + c, s*stride + k*dilation ...] * w[g*O + o, c, k...]; bias.

    With one group, or one output channel per group, the channel is one axis; otherwise a last stage joins g and o.
    """
    x, w, group = present(operands[0]), present(operands[1]), int_attr(attrs, "group")
    bias = operands[2] if len(operands) > 2 else None
    before, after = dims_attr(attrs, "before"), dims_attr(attrs, "after")
    strides, dilations = ints_attr(attrs, "strides"), ints_attr(attrs, "dilations")
    (out,) = infer_conv(operands, attrs)
    stages, source = padded(x, before, after)
    per_group = out.shape[1] // group
    split = group > 1 and per_group != 1
    n, space = axis_over(out.shape[0], "n"), axes_over(out.shape[2:], "s")
    c, taps = axis_over(w.shape[1], "c"), axes_over(w.shape[2:], "k")
    o, g = axis_over(per_group if split else out.shape[1], "o"), axis_over(group, "g")
    channels = (g, o) if split else (o,)
    first = channels[0].sym * w.shape[1] + c.sym if group > 1 else c.sym
    filters = g.sym * per_group + o.sym if split else o.sym
    window = tuple(
        s.sym * stride + k.sym * dilation
        for s, k, stride, dilation in zip(space, taps, strides, dilations, strict=True)
    )
    data = Load(source, (n.sym, first, *window), x.dtype)
    weight = Load(Operand(1), (filters, c.sym, *(k.sym for k in taps)), w.dtype)
    name, dtype = ("y", out.dtype) if bias is None and not split else ("sum", out.dtype.compute)
    product = Apply("mul", (data, weight))
    stages += (Stage(name, dtype, (n, *channels, *space), product, "sum", (c, *taps)),)
    if split:
        joined = axes_over(out.shape)
        channel = joined[1].sym
        index = (joined[0].sym, channel // per_group, channel % per_group, *(axis.sym for axis in joined[2:]))
        dtype = out.dtype if bias is None else out.dtype.compute
        stages += (Stage("joined", dtype, joined, Load(Local(len(stages) - 1), index, stages[-1].dtype)),)
    return _with_bias(stages, bias, 1, out.dtype)


CONTRACTION: dict[str, OpDef] = {
    "MatMul": OpDef("MatMul", infer_matmul, define_matmul),
    "Einsum": OpDef("Einsum", infer_einsum, define_einsum),
    "Conv": OpDef("Conv", infer_conv, define_conv),
}
