"""Operators that slide a window: the pools, LRN, transposed convolution and Col2Im.

Along one spatial axis, tap k < kernel of window s stands at place  s * stride + k * dilation - before  of the input.
What lies outside the input is padding: the identity of the reduction. A window may reach beyond the declared padding
(`after`) where the number of windows was rounded up; only the count of AveragePool asks about the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretell.graph.interpret import lowest
from foretell.graph.ops.attrs import dims_attr, float_attr, int_attr, ints_attr, text_attr
from foretell.graph.ops.contraction import window_extent
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.ir import expr
from foretell.ir.dtypes import I64
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import (
    Apply,
    Axis,
    Cast,
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


def syms(axes: tuple[Axis, ...]) -> tuple[Dim, ...]:
    return tuple(axis.sym for axis in axes)


def guarded(conditions: list[Scalar], value: Scalar, otherwise: Scalar) -> Scalar:
    """The value if all conditions hold."""
    for condition in conditions:
        value = Select(condition, value, otherwise)
    return value


def flat_index(indices: tuple[Dim, ...], shape: tuple[Dim, ...]) -> Dim:
    """The place in row-major order."""
    place: Dim = 0
    for index, extent in zip(indices, shape, strict=True):
        place = place * extent + index
    return place


def box_stage(x: TensorType, first: tuple[Dim, ...], shape: tuple[Dim, ...], fill: Scalar) -> Stage | None:
    """A box of operand 0 that may stick out of it: padded[i...] = x[first + i ...], or `fill` where x has nothing.

    None if the box starts at the origin and lies inside, so that operand 0 itself serves.
    """
    axes = axes_over(shape)
    places = tuple(axis.sym + start for axis, start in zip(axes, first, strict=True))
    conditions: list[Scalar] = []
    for place, start, length, extent in zip(places, first, shape, x.shape, strict=True):
        if _may_be_negative(start):
            conditions.append(Apply("ge", (Index(place), Index(0))))
        if _may_be_negative(extent - start - length):
            conditions.append(Apply("lt", (Index(place), Index(extent))))
    if not conditions and not any(first):
        return None
    return Stage("padded", x.dtype, axes, guarded(conditions, Load(Operand(0), places, x.dtype), fill))


def _may_be_negative(value: Dim) -> bool:
    low, _ = expr.bounds(value)
    return low is None or low < 0


# --- pools: MaxPool, AveragePool, LpPool {kernel, strides, dilations, before, after, shape} ------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """The window attributes, one number per spatial axis; `shape` says how many windows there are."""

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Dim, ...]
    after: tuple[Dim, ...]
    shape: tuple[Dim, ...]

    @property
    def spans(self) -> tuple[Dim, ...]:
        """How much of the padded input all windows together see."""
        return tuple(
            (count - 1) * stride + dilation * (kernel - 1) + 1
            for count, stride, dilation, kernel in zip(
                self.shape, self.strides, self.dilations, self.kernel, strict=True
            )
        )

    def places(self, windows: tuple[Axis, ...], taps: tuple[Axis, ...]) -> tuple[Dim, ...]:
        """Where each tap stands, counted from the start of the padding."""
        return tuple(
            s.sym * stride + k.sym * dilation
            for s, k, stride, dilation in zip(windows, taps, self.strides, self.dilations, strict=True)
        )


def _window(attrs: Attrs) -> _Window:
    return _Window(
        dims_attr(attrs, "kernel"),
        ints_attr(attrs, "strides"),
        ints_attr(attrs, "dilations"),
        dims_attr(attrs, "before"),
        dims_attr(attrs, "after"),
        dims_attr(attrs, "shape"),
    )


def pool_extent(extent: Dim, kernel: int, stride: int, dilation: int, pads: tuple[Dim, Dim], ceil: bool) -> Dim:
    """How many windows there are; rounded up, those that would start in the padding behind the input do not count."""
    count = window_extent(extent, kernel, stride, dilation, pads[0] + pads[1], ceil)
    return expr.minimum(count, expr.ceildiv(extent + pads[0], stride)) if ceil else count


def infer_pool(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, window = present(operands[0]), _window(attrs)
    if x.rank < 3 or any(len(numbers) != x.rank - 2 for numbers in (window.kernel, window.before, window.shape)):
        raise ValueError(f"the window {window.kernel} does not fit the spatial axes of {x}")
    if any(isinstance(count, int) and count < 0 for count in window.shape):
        raise ValueError(f"the window {window.kernel} does not fit into {x}")
    return (TensorType(x.dtype, x.shape[:2] + window.shape),)


@dataclass(frozen=True, slots=True)
class _Pool:
    """What the pools' definitions share: the padded input, and the load of one tap of one window."""

    stages: tuple[Stage, ...]
    axes: tuple[Axis, ...]
    taps: tuple[Axis, ...]
    load: Load


def _pool(operands: Operands, attrs: Attrs, fill: float | int | bool) -> _Pool:
    x, window, (out,) = present(operands[0]), _window(attrs), infer_pool(operands, attrs)
    axes, taps = axes_over(out.shape), axes_over(window.kernel, "k")
    first = (0, 0, *(-before for before in window.before))
    empty = 0 in window.shape
    padded = None if empty else box_stage(x, first, x.shape[:2] + window.spans, Const(fill, x.dtype))
    source: Source = Operand(0) if padded is None else Local(0)
    load = Load(source, (axes[0].sym, axes[1].sym, *window.places(axes[2:], taps)), x.dtype)
    return _Pool(() if padded is None else (padded,), axes, taps, load)


def infer_max_pool(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    (y,) = infer_pool(operands, attrs)
    return (y,) if not text_attr(attrs, "indices") else (y, TensorType(I64, y.shape))


def define_max_pool(operands: Operands, attrs: Attrs) -> Definition:
    """y = max[k...] x; a second output, if `indices` is "rows" or "columns", says where in x it stands."""
    x, window, order = present(operands[0]), _window(attrs), text_attr(attrs, "indices")
    pool = _pool(operands, attrs, lowest(x.dtype))
    stages = (*pool.stages, Stage("y", x.dtype, pool.axes, pool.load, "max", pool.taps))
    y = len(stages) - 1
    if not order:
        return Definition(stages, (y,))
    stages += (_first_maximum(x, window, pool, Local(y)),)
    if order == "columns":
        stages += (_column_major(x, stages[-1], Local(y + 1)),)
    return Definition(stages, (y, len(stages) - 1))


def _first_maximum(x: TensorType, window: _Window, pool: _Pool, maximum: Local) -> Stage:
    """The first place, in row-major order of all of x, at which a window's maximum (or first NaN) stands."""
    padded = window.places(pool.axes[2:], pool.taps)
    places = tuple(place - before for place, before in zip(padded, window.before, strict=True))
    here: Scalar = Apply("eq", (pool.load, Load(maximum, syms(pool.axes), x.dtype)))
    if x.dtype.is_float:
        here = Apply("or", (here, Apply("isnan", (pool.load,))))
    inside: list[Scalar] = [here]
    if pool.stages:
        for place, extent in zip(places, x.shape[2:], strict=True):
            inside += [Apply("ge", (Index(place), Index(0))), Apply("lt", (Index(place), Index(extent)))]
    place = flat_index((*syms(pool.axes[:2]), *places), x.shape)
    return Stage("indices", I64, pool.axes, guarded(inside, Index(place), Index(x.elements)), "min", pool.taps)


def _column_major(x: TensorType, rows: Stage, source: Local) -> Stage:
    """Places within each channel as if the first spatial axis ran fastest."""
    space = x.shape[2:]
    place: Scalar = Load(source, syms(rows.axes), I64)
    total: Scalar = Index(flat_index(syms(rows.axes[:2]), x.shape[:2]) * expr.product(space))
    for number, extent in enumerate(space):
        inner, outer = Index(expr.product(space[number + 1 :])), Index(expr.product(space[:number]))
        index = Apply("mod", (Apply("div", (place, inner)), Index(extent)))
        total = Apply("add", (total, Apply("mul", (index, outer))))
    return Stage("columns", I64, rows.axes, total)


def define_average_pool(operands: Operands, attrs: Attrs) -> Definition:
    """y = sum[k...] x / count, where the count includes declared padding if `count_include_pad`."""
    x, window = present(operands[0]), _window(attrs)
    pool, compute, padding = _pool(operands, attrs, 0), x.dtype.compute, bool(attrs["count_include_pad"])
    count: Dim = 1
    for number, axis in enumerate(pool.axes[2:]):
        count = count * _taps_inside(window, number, axis, x.shape[number + 2], padding)
    total = Stage("sum", compute, pool.axes, pool.load, "sum", pool.taps)
    point = Load(Local(len(pool.stages)), syms(pool.axes), compute)
    mean = Stage("y", x.dtype, pool.axes, Apply("div", (point, Cast(Index(count), compute))))
    return Definition((*pool.stages, total, mean), (len(pool.stages) + 1,))


def _taps_inside(window: _Window, number: int, axis: Axis, extent: Dim, padding: bool) -> Dim:
    """How many taps of a window stand in [low, high): the input, or the input with its declared padding."""
    start = axis.sym * window.strides[number] - window.before[number]
    low = -window.before[number] if padding else 0
    high = extent + window.after[number] if padding else extent
    last = expr.minimum(window.kernel[number], expr.ceildiv(high - start, window.dilations[number]))
    first = expr.maximum(0, expr.ceildiv(low - start, window.dilations[number]))
    return expr.maximum(0, last - first)


def define_lp_pool(operands: Operands, attrs: Attrs) -> Definition:
    """y = (sum[k...] |x|^p)^(1/p)"""
    x, p = present(operands[0]), int_attr(attrs, "p")
    pool, compute = _pool(operands, attrs, 0), x.dtype.compute
    total = Stage("sum", compute, pool.axes, _power(pool.load, p, x), "sum", pool.taps)
    point = Load(Local(len(pool.stages)), syms(pool.axes), compute)
    root = Stage("y", x.dtype, pool.axes, _root(point, p, x))
    return Definition((*pool.stages, total, root), (len(pool.stages) + 1,))


def _power(value: Scalar, p: int, x: TensorType) -> Scalar:
    if p == 2:
        return Apply("mul", (value, value))
    magnitude = Apply("abs", (value,))
    return magnitude if p == 1 else Apply("pow", (magnitude, Const(float(p), x.dtype.compute)))


def _root(value: Scalar, p: int, x: TensorType) -> Scalar:
    if p == 2:
        return Apply("sqrt", (value,))
    return value if p == 1 else Apply("pow", (value, Const(1 / p, x.dtype.compute)))


# --- LRN{size, alpha, beta, bias}: over channels, which are axis 1 -------------------------------------------


def infer_lrn(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x = present(operands[0])
    if x.rank < 2 or int_attr(attrs, "size") < 1:
        raise ValueError(f"LRN over {attrs['size']} channels of {x}")
    return (x,)


def define_lrn(operands: Operands, attrs: Attrs) -> Definition:
    """y = x / (bias + alpha / size * sum[k < size] x[channel + k - (size - 1) // 2]^2) ^ beta"""
    x, size = present(operands[0]), int_attr(attrs, "size")
    compute, axes, tap = x.dtype.compute, axes_over(x.shape), axis_over(size, "k")
    first = tuple(-((size - 1) // 2) if number == 1 else 0 for number in range(x.rank))
    span = tuple(dim + size - 1 if number == 1 else dim for number, dim in enumerate(x.shape))
    padded = box_stage(x, first, span, Const(0, x.dtype))
    stages: tuple[Stage, ...] = () if padded is None else (padded,)
    neighbour = tuple(axis.sym + tap.sym if number == 1 else axis.sym for number, axis in enumerate(axes))
    load = Load(Local(0) if stages else Operand(0), neighbour, x.dtype)
    squares = Stage("squares", compute, axes, Apply("mul", (load, load)), "sum", (tap,))
    scaled = Apply(
        "mul", (Const(float_attr(attrs, "alpha") / size, compute), Load(Local(len(stages)), syms(axes), compute))
    )
    divisor = Apply("add", (Const(float_attr(attrs, "bias"), compute), scaled))
    divisor = Apply("pow", (divisor, Const(float_attr(attrs, "beta"), compute)))
    result = Stage("y", x.dtype, axes, Apply("div", (Load(Operand(0), syms(axes), x.dtype), divisor)))
    return Definition((*stages, squares, result), (len(stages) + 1,))


# --- ConvTranspose(x, w, bias?){strides, dilations, before, shape, group} ------------------------------------
#
# x [N, G*C, ...], w [G*C, O, kernel...]. Element i of x adds x * w to y[i * stride + k * dilation - before] for each
# tap k. Seen from the result (arXiv 1609.07009): let q, r be quotient and remainder of s + before by the stride; then
#     y[s] = sum[j] x[q - j] * filter[r + j * stride]
# where the filter is w with zeros between its taps if it is dilated. So it is a convolution that makes one result for
# each of the `stride` remainders, and those are interleaved: no multiplication by the zeros between elements of x.


@dataclass(frozen=True, slots=True)
class _Interleaved:
    """One spatial axis of a transposed convolution."""

    stride: int
    dilation: int
    kernel: int
    phase: Dim
    """Where the result starts among the remainders: before % stride."""
    first: Dim
    """The smallest quotient."""
    quotients: Dim
    taps: int
    """Taps of the filter that meet one remainder."""


def _interleaved(w: TensorType, attrs: Attrs) -> tuple[_Interleaved, ...]:
    axes: list[_Interleaved] = []
    for stride, dilation, kernel, before, extent in zip(
        ints_attr(attrs, "strides"),
        ints_attr(attrs, "dilations"),
        w.shape[2:],
        dims_attr(attrs, "before"),
        dims_attr(attrs, "shape"),
        strict=True,
    ):
        if not isinstance(kernel, int) or (isinstance(extent, int) and extent <= 0):
            raise ValueError(f"no transposed convolution by {w} has the spatial shape {attrs['shape']}")
        taps = -(-(dilation * (kernel - 1) + 1) // stride)
        quotients = (before + extent - 1) // stride - before // stride + 1
        axes.append(_Interleaved(stride, dilation, kernel, before % stride, before // stride, quotients, taps))
    return tuple(axes)


def infer_conv_transpose(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, w, group = present(operands[0]), present(operands[1]), int_attr(attrs, "group")
    if x.rank < 3 or x.rank != w.rank or len(dims_attr(attrs, "shape")) != x.rank - 2:
        raise ValueError(f"ConvTranspose needs data and weights of one rank, at least 3; got {x} and {w}")
    if isinstance(x.shape[1], int) and isinstance(w.shape[0], int) and x.shape[1] != w.shape[0]:
        raise ValueError(f"ConvTranspose of {x} needs weights for {x.shape[1]} channels, got {w}")
    if isinstance(w.shape[0], int) and w.shape[0] % group:
        raise ValueError(f"{w.shape[0]} channels do not divide into {group} groups")
    _interleaved(w, attrs)
    return (TensorType(x.dtype, (x.shape[0], w.shape[1] * group, *dims_attr(attrs, "shape"))),)


def define_conv_transpose(operands: Operands, attrs: Attrs) -> Definition:
    """Widen the filter to whole strides and pad x; convolve for all remainders; interleave them, and add the bias."""
    x, w, group = present(operands[0]), present(operands[1]), int_attr(attrs, "group")
    (out,), space = infer_conv_transpose(operands, attrs), _interleaved(w, attrs)
    stages: list[Stage] = []
    filters: Source = Operand(1)
    if any(axis.dilation > 1 or axis.taps * axis.stride != axis.kernel for axis in space):
        stages.append(_widened_filter(w, space))
        filters = Local(0)
    data: Source = Operand(0)
    first = (0, 0, *(axis.first - axis.taps + 1 for axis in space))
    span = (*x.shape[:2], *(axis.quotients + axis.taps - 1 for axis in space))
    padded = box_stage(x, first, span, Const(0, x.dtype))
    if padded is not None:
        data = Local(len(stages))
        stages.append(padded)
    stages.append(_remainder_stage(x, w, group, space, (data, filters)))
    bias = operands[2] if len(operands) > 2 else None
    if group == 1 and bias is None and all(axis.stride == 1 for axis in space):
        stages[-1] = replace(stages[-1], name="y", dtype=out.dtype)
        return Definition(tuple(stages), (len(stages) - 1,))
    stages.append(_interleave_stage(out, stages[-1], Local(len(stages) - 1), space, group, bias))
    return Definition(tuple(stages), (len(stages) - 1,))


def _widened_filter(w: TensorType, space: tuple[_Interleaved, ...]) -> Stage:
    """The weights, with zeros between dilated taps and after the last, so that each remainder has as many."""
    axes = axes_over((*w.shape[:2], *(axis.taps * axis.stride for axis in space)))
    conditions: list[Scalar] = []
    for place, axis in zip(axes[2:], space, strict=True):
        if axis.dilation > 1:
            conditions.append(Apply("eq", (Index(place.sym % axis.dilation), Index(0))))
        if axis.taps * axis.stride > axis.dilation * (axis.kernel - 1) + 1:
            conditions.append(Apply("lt", (Index(place.sym), Index(axis.dilation * axis.kernel))))
    places = tuple(place.sym // axis.dilation for place, axis in zip(axes[2:], space, strict=True))
    load = Load(Operand(1), (*syms(axes[:2]), *places), w.dtype)
    return Stage("filter", w.dtype, axes, guarded(conditions, load, Const(0, w.dtype)))


def _remainder_stage(
    x: TensorType, w: TensorType, group: int, space: tuple[_Interleaved, ...], sources: tuple[Source, Source]
) -> Stage:
    """sum[n, g, o, q..., r...] over channels and taps; a stride of 1 has no remainder."""
    n, g, o = axis_over(x.shape[0], "n"), axis_over(group, "g"), axis_over(w.shape[1], "o")
    per_group = w.shape[0] // group
    c, taps = axis_over(per_group, "c"), axes_over(tuple(axis.taps for axis in space), "k")
    quotients = axes_over(tuple(axis.quotients for axis in space), "q")
    remainders = axes_over(tuple(axis.stride for axis in space), "r")
    channel = g.sym * per_group + c.sym if group > 1 else c.sym
    places = tuple(q.sym - k.sym + (axis.taps - 1) for q, k, axis in zip(quotients, taps, space, strict=True))
    weights = tuple(
        r.sym + k.sym * axis.stride if axis.stride > 1 else k.sym
        for r, k, axis in zip(remainders, taps, space, strict=True)
    )
    data = Load(sources[0], (n.sym, channel, *places), x.dtype)
    weight = Load(sources[1], (channel, o.sym, *weights), w.dtype)
    kept = tuple(r for r, axis in zip(remainders, space, strict=True) if axis.stride > 1)
    axes = (n, *((g,) if group > 1 else ()), o, *quotients, *kept)
    return Stage("sum", x.dtype.compute, axes, Apply("mul", (data, weight)), "sum", (c, *taps))


def _interleave_stage(
    out: TensorType, parts: Stage, source: Local, space: tuple[_Interleaved, ...], group: int, bias: TensorType | None
) -> Stage:
    axes = axes_over(out.shape)
    channel, per_group = axes[1].sym, out.shape[1] // group
    quotients = tuple((s.sym + axis.phase) // axis.stride for s, axis in zip(axes[2:], space, strict=True))
    remainders = tuple(
        (s.sym + axis.phase) % axis.stride for s, axis in zip(axes[2:], space, strict=True) if axis.stride > 1
    )
    channels = (channel // per_group, channel % per_group) if group > 1 else (channel,)
    body: Scalar = Load(source, (axes[0].sym, *channels, *quotients, *remainders), parts.dtype)
    if bias is not None:
        body = Apply("add", (body, Load(Operand(2), (channel,), bias.dtype)))
    return Stage("y", out.dtype, axes, body)


# --- Col2Im{image, kernel, strides, dilations, before, after}: the sum of overlapping blocks -----------------


def _blocks(attrs: Attrs) -> tuple[Dim, ...]:
    """How many blocks fit along each axis of the padded image."""
    return tuple(
        window_extent(extent, kernel, stride, dilation, before + after)
        for extent, kernel, stride, dilation, before, after in zip(
            dims_attr(attrs, "image"),
            ints_attr(attrs, "kernel"),
            ints_attr(attrs, "strides"),
            ints_attr(attrs, "dilations"),
            ints_attr(attrs, "before"),
            ints_attr(attrs, "after"),
            strict=True,
        )
    )


def infer_col2im(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, taps = present(operands[0]), expr.product(ints_attr(attrs, "kernel"))
    if x.rank != 3:
        raise ValueError(f"Col2Im needs columns of rank 3, not {x}")
    blocks, columns = expr.product(_blocks(attrs)), x.shape[2]
    if isinstance(blocks, int) and isinstance(columns, int) and blocks != columns:
        raise ValueError(f"the image {attrs['image']} has {blocks} blocks, {x} has {columns}")
    if isinstance(x.shape[1], int) and isinstance(taps, int) and x.shape[1] % taps:
        raise ValueError(f"{x.shape[1]} rows of {x} do not divide into blocks of {taps}")
    return (TensorType(x.dtype, (x.shape[0], x.shape[1] // taps, *dims_attr(attrs, "image"))),)


def define_col2im(operands: Operands, attrs: Attrs) -> Definition:
    """y[n, c, s...] = sum[k...] x[n, (c, k...), b...] over the blocks b with b * stride + k * dilation - before = s"""
    x, kernel, blocks = present(operands[0]), ints_attr(attrs, "kernel"), _blocks(attrs)
    (out,) = infer_col2im(operands, attrs)
    axes, taps = axes_over(out.shape), axes_over(kernel, "k")
    places: list[Dim] = []
    conditions: list[Scalar] = []
    for number, (axis, tap) in enumerate(zip(axes[2:], taps, strict=True)):
        stride, dilation = ints_attr(attrs, "strides")[number], ints_attr(attrs, "dilations")[number]
        start = axis.sym + ints_attr(attrs, "before")[number] - tap.sym * dilation
        place = start // stride
        conditions += [Apply("ge", (Index(start), Index(0))), Apply("lt", (Index(place), Index(blocks[number])))]
        if stride > 1:
            conditions.append(Apply("eq", (Index(start % stride), Index(0))))
        places.append(place)
    row = flat_index((axes[1].sym, *syms(taps)), (out.shape[1], *kernel))
    load = Load(Operand(0), (axes[0].sym, row, flat_index(tuple(places), blocks)), x.dtype)
    body = guarded(conditions, load, Const(0, x.dtype))
    return Definition((Stage("y", x.dtype, axes, body, "sum", taps),), (0,))


WINDOW: dict[str, OpDef] = {
    "MaxPool": OpDef("MaxPool", infer_max_pool, define_max_pool),
    "AveragePool": OpDef("AveragePool", infer_pool, define_average_pool),
    "LpPool": OpDef("LpPool", infer_pool, define_lp_pool),
    "LRN": OpDef("LRN", infer_lrn, define_lrn),
    "ConvTranspose": OpDef("ConvTranspose", infer_conv_transpose, define_conv_transpose),
    "Col2Im": OpDef("Col2Im", infer_col2im, define_col2im),
}
