"""Operators that read an image between its elements: GridSample, DeformConv, RoiAlign and MaxRoiPool.

First the coordinates, as float tensors; from each, along its axis, the places of a few neighbours and their weights;
then the sum over neighbours of weight * x[place]. What needs no interpolation has places alone.
"""

from __future__ import annotations

from foretell.graph.interpret import lowest
from foretell.graph.ops.attrs import dims_attr, float_attr, int_attr, ints_attr, text_attr
from foretell.graph.ops.contraction import window_extent
from foretell.graph.ops.op import Attrs, OpDef, Operands, present
from foretell.graph.ops.window import flat_index, guarded, syms
from foretell.ir import expr
from foretell.ir.dtypes import I64, DType
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
    Stage,
    TensorType,
    axes_over,
    axis_over,
    dtype_of,
)

NEIGHBOURS = {"linear": 2, "cubic": 4}
"""How many elements along one axis a sample is made of, by mode; "nearest" needs no axis of its own for one."""
CUBIC_COEFFICIENT = -0.75


def _apply(op: str, *arguments: Scalar) -> Scalar:
    return Apply(op, arguments)


def _number(value: Dim, dtype: DType) -> Scalar:
    """An index expression as a float."""
    return Const(float(value), dtype) if isinstance(value, int) else Cast(Index(value), dtype)


def _clamped(value: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return _apply("min", _apply("max", value, low), high)


def _as(value: Scalar, dtype: DType) -> Scalar:
    return value if dtype_of(value) == dtype else Cast(value, dtype)


def _differ(left: Dim, right: Dim) -> bool:
    """Whether two dimensions are known to be different."""
    return isinstance(left, int) and isinstance(right, int) and left != right


# --- neighbours of a coordinate ------------------------------------------------------------------------------


def _place_stage(coordinate: Stage, local: int, mode: str, extent: Dim, padding: str, align: bool) -> Stage:
    """place[..., t]: element t of the neighbours, brought back inside unless outside means zero."""
    point = Load(Local(local), syms(coordinate.axes), coordinate.dtype)
    base = Cast(_apply("floor", point), I64)
    if mode == "nearest":
        return Stage("place", I64, coordinate.axes, _inside(base, extent, padding, align))
    tap = axis_over(NEIGHBOURS[mode], "t")
    place = _apply("add", base, Index(tap.sym - (NEIGHBOURS[mode] - 1) // 2))
    return Stage("place", I64, (*coordinate.axes, tap), _inside(place, extent, padding, align))


def _inside(place: Scalar, extent: Dim, padding: str, align: bool) -> Scalar:
    """A reflection mirrors at the first and last elements' centres (align) or at their outer edges."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        period = 2 * expr.maximum(extent - 1, 1) if align else 2 * extent
        turn = _apply("mod", place, Index(period))
        place = _apply("min", turn, _apply("sub", Index(period - (0 if align else 1)), turn))
    return _clamped(place, Index(0), Index(extent - 1))


def _weight_stage(coordinate: Stage, local: int, mode: str) -> Stage:
    """weight[..., t]: how much element t of the neighbours counts."""
    tap, dtype = axis_over(NEIGHBOURS[mode], "t"), coordinate.dtype
    point = Load(Local(local), syms(coordinate.axes), dtype)
    offset = _apply("sub", point, _apply("floor", point))
    if mode == "linear":
        first = _apply("eq", Index(tap.sym), Index(0))
        body: Scalar = Select(first, _apply("sub", Const(1.0, dtype), offset), offset)
    else:
        body = _cubic_weight(_apply("abs", _apply("sub", offset, Cast(Index(tap.sym - 1), dtype))))
    return Stage("weight", dtype, (*coordinate.axes, tap), body)


def _cubic_weight(distance: Scalar) -> Scalar:
    """Cubic convolution, Keys 1981 (doi 10.1109/TASSP.1981.1163711), for distances from 0 to 2."""
    dtype, a = dtype_of(distance), CUBIC_COEFFICIENT

    def polynomial(*coefficients: float) -> Scalar:
        value: Scalar = Const(coefficients[0], dtype)
        for coefficient in coefficients[1:]:
            value = _apply("add", _apply("mul", value, distance), Const(coefficient, dtype))
        return value

    near = polynomial(a + 2, -(a + 3), 0.0, 1.0)
    return Select(_apply("le", distance, Const(1.0, dtype)), near, polynomial(a, -5 * a, 8 * a, -4 * a))


def _pixel(x: TensorType, lead: tuple[Dim, ...], places: list[Scalar], zeros: bool) -> Scalar:
    """x at the places; with `zeros`, 0 where one of them is outside."""
    conditions: list[Scalar] = []
    for place, extent in zip(places, x.shape[2:], strict=True):
        conditions += [_apply("ge", place, Index(0)), _apply("lt", place, Index(extent))] if zeros else []
    return guarded(conditions, Load(Operand(0), (*lead, *places), x.dtype), Const(0, x.dtype))


# --- GridSample(x, grid){mode, padding, align_corners} -------------------------------------------------------
#
# x [N, C, D...], grid [N, S..., r] with coordinates from -1 to 1, the innermost axis of x first; y [N, C, S...].


def infer_grid_sample(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, grid = present(operands[0]), present(operands[1])
    if x.rank < 3 or grid.rank != x.rank or _differ(grid.shape[-1], x.rank - 2):
        raise ValueError(f"the grid {grid} does not fit {x}")
    if _differ(x.shape[0], grid.shape[0]):
        raise ValueError(f"{x} and the grid {grid} differ in their batch")
    if any(extent == 0 for extent in x.shape[2:]):
        raise ValueError(f"nothing to sample in {x}")
    return (TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1])),)


def define_grid_sample(operands: Operands, attrs: Attrs) -> Definition:
    x, grid, mode = present(operands[0]), present(operands[1]), text_attr(attrs, "mode")
    padding, align = text_attr(attrs, "padding"), bool(attrs["align_corners"])
    (out,) = infer_grid_sample(operands, attrs)
    axes, rank = axes_over(out.shape), x.rank - 2
    point = (axes[0], *axes[2:])
    taps = () if mode == "nearest" else axes_over((NEIGHBOURS[mode],) * rank, "t")
    stages = [_grid_coordinate(x, grid, number, point, attrs) for number in range(rank)]
    stages += [_place_stage(stages[k], k, mode, x.shape[k + 2], padding, align) for k in range(rank)]
    places: list[Scalar] = [Load(Local(rank + k), (*syms(point), *syms(taps[k : k + 1])), I64) for k in range(rank)]
    value = _pixel(x, syms(axes[:2]), places, padding == "zeros")
    if mode == "nearest":
        return Definition((*stages, Stage("y", out.dtype, axes, value)), (2 * rank,))
    stages += [_weight_stage(stages[k], k, mode) for k in range(rank)]
    for k in range(rank):
        weight = Load(Local(2 * rank + k), (*syms(point), taps[k].sym), stages[k].dtype)
        value = _apply("mul", value, _as(weight, x.dtype.compute))
    stages.append(Stage("y", out.dtype, axes, value, "sum", taps))
    return Definition(tuple(stages), (len(stages) - 1,))


def _grid_coordinate(x: TensorType, grid: TensorType, number: int, point: tuple[Axis, ...], attrs: Attrs) -> Stage:
    """Where on axis `number` of x's space each sample lies; -1 and 1 are centres (align) or outer edges of the ends."""
    align, dtype, extent = bool(attrs["align_corners"]), grid.dtype.compute, x.shape[number + 2]
    half, one = Const(0.5, dtype), Const(1.0, dtype)
    shifted = _apply("add", Load(Operand(1), (*syms(point), x.rank - 3 - number), grid.dtype), one)
    if align:
        place = _apply("mul", _apply("mul", shifted, half), _number(extent - 1, dtype))
    else:
        place = _apply("mul", _apply("sub", _apply("mul", shifted, _number(extent, dtype)), one), half)
    if text_attr(attrs, "mode") == "nearest":
        place = _apply("round", place)
    if text_attr(attrs, "padding") == "border":
        # Up to half an element outside a cubic still looks at its neighbours; beyond that the border itself serves.
        margin = Const(0.0 if align else 0.5, dtype)
        zero, last = Const(0.0, dtype), _number(extent - 1, dtype)
        outside = _apply("lt", place, _apply("neg", margin)), _apply("gt", place, _apply("add", last, margin))
        place = Select(_apply("or", *outside), _clamped(place, zero, last), place)
    return Stage("coordinate", dtype, point, place)


# --- DeformConv(x, w, offset, bias?, mask?){strides, dilations, before, after, group, offset_group} ----------


def _optional(operands: Operands, index: int) -> TensorType | None:
    return operands[index] if index < len(operands) else None


def _check_rows(name: str, operand: TensorType | None, x: TensorType, rows: Dim, space: tuple[Dim, ...]) -> None:
    if operand is None:
        return
    wanted = (x.shape[0], rows, *space)
    if operand.rank != len(wanted) or any(map(_differ, operand.shape, wanted)):
        raise ValueError(f"the {name} {operand} of a DeformConv should have the shape {wanted}")


def infer_deform_conv(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, w = present(operands[0]), present(operands[1])
    group, offset_group = int_attr(attrs, "group"), int_attr(attrs, "offset_group")
    if x.rank < 3 or x.rank != w.rank:
        raise ValueError(f"DeformConv needs data and weights of one rank, at least 3; got {x} and {w}")
    if _differ(x.shape[1], w.shape[1] * group) or _differ(x.shape[1] % offset_group, 0):
        raise ValueError(f"{x} and {w} do not divide into {group} and {offset_group} groups")
    if _differ(w.shape[0] % group, 0):
        raise ValueError(f"{w.shape[0]} output channels do not divide into {group} groups")
    space = tuple(
        window_extent(extent, kernel, stride, dilation, before + after)
        for extent, kernel, stride, dilation, before, after in zip(
            x.shape[2:],
            w.shape[2:],
            ints_attr(attrs, "strides"),
            ints_attr(attrs, "dilations"),
            dims_attr(attrs, "before"),
            dims_attr(attrs, "after"),
            strict=True,
        )
    )
    taps = offset_group * expr.product(w.shape[2:])
    _check_rows("offset", present(operands[2]), x, taps * (x.rank - 2), space)
    _check_rows("mask", _optional(operands, 4), x, taps, space)
    return (TensorType(x.dtype, (x.shape[0], w.shape[0], *space)),)


def define_deform_conv(operands: Operands, attrs: Attrs) -> Definition:
    """A convolution whose taps are moved by offsets (arXiv 1703.06211) and weighed by a mask (arXiv 1811.11168).

    columns[n, c, k..., s...] = x[n, c, s * stride + k * dilation - before + offset[n, c // per_offset_group, k, s]]
    y[n, o, s...] = sum[c, k...] columns * w[o, c, k...] + bias[o]
    """
    x, w, group = present(operands[0]), present(operands[1]), int_attr(attrs, "group")
    (out,), rank = infer_deform_conv(operands, attrs), x.rank - 2
    stages = [_moved_tap(operands, attrs, number, out) for number in range(rank)]
    stages += [_place_stage(stages[k], k, "linear", x.shape[k + 2], "zeros", True) for k in range(rank)]
    stages += [_weight_stage(stages[k], k, "linear") for k in range(rank)]
    stages.append(_columns(operands, attrs, out))
    n, space = axis_over(out.shape[0], "n"), axes_over(out.shape[2:], "s")
    per_group = w.shape[0] // group
    g, o, c, taps = axis_over(group, "g"), axis_over(per_group, "o"), axis_over(w.shape[1], "c"), _taps(w)
    column = (n.sym, g.sym * w.shape[1] + c.sym, *syms(taps), *syms(space))
    weight = Load(Operand(1), (g.sym * per_group + o.sym, c.sym, *syms(taps)), w.dtype)
    product = _apply("mul", Load(Local(3 * rank), column, x.dtype.compute), weight)
    stages.append(Stage("sum", x.dtype.compute, (n, g, o, *space), product, "sum", (c, *taps)))
    axes = axes_over(out.shape)
    channel = axes[1].sym
    joined = (axes[0].sym, channel // per_group, channel % per_group, *syms(axes[2:]))
    body: Scalar = Load(Local(3 * rank + 1), joined, x.dtype.compute)
    bias = _optional(operands, 3)
    body = body if bias is None else _apply("add", body, Load(Operand(3), (channel,), bias.dtype))
    stages.append(Stage("y", out.dtype, axes, body))
    return Definition(tuple(stages), (len(stages) - 1,))


def _taps(w: TensorType) -> tuple[Axis, ...]:
    return axes_over(w.shape[2:], "k")


def _moved_tap(operands: Operands, attrs: Attrs, number: int, out: TensorType) -> Stage:
    """coordinate[n, offset group, k..., s...] along one spatial axis."""
    w, offset = present(operands[1]), present(operands[2])
    n, h, taps = axis_over(out.shape[0], "n"), axis_over(int_attr(attrs, "offset_group"), "h"), _taps(w)
    space, dtype = axes_over(out.shape[2:], "s"), offset.dtype.compute
    row = flat_index((h.sym, *syms(taps), number), (h.extent, *w.shape[2:], len(space)))
    place = space[number].sym * ints_attr(attrs, "strides")[number] - dims_attr(attrs, "before")[number]
    place = place + taps[number].sym * ints_attr(attrs, "dilations")[number]
    moved = _apply("add", Cast(Index(place), dtype), Load(Operand(2), (n.sym, row, *syms(space)), offset.dtype))
    return Stage("coordinate", dtype, (n, h, *taps, *space), moved)


def _columns(operands: Operands, attrs: Attrs, out: TensorType) -> Stage:
    """The samples under each tap, weighed by the mask."""
    x, w, mask = present(operands[0]), present(operands[1]), _optional(operands, 4)
    offset_group = int_attr(attrs, "offset_group")
    n, c, taps, space = axis_over(x.shape[0], "n"), axis_over(x.shape[1], "c"), _taps(w), axes_over(out.shape[2:], "s")
    rank, compute = len(space), x.dtype.compute
    near = axes_over((2,) * rank, "t")
    point = (n.sym, c.sym // (x.shape[1] // offset_group), *syms(taps), *syms(space))
    places: list[Scalar] = [Load(Local(rank + k), (*point, near[k].sym), I64) for k in range(rank)]
    value = _pixel(x, (n.sym, c.sym), places, zeros=True)
    for k in range(rank):
        value = _apply("mul", value, _as(Load(Local(2 * rank + k), (*point, near[k].sym), compute), compute))
    if mask is not None:
        row = flat_index(point[1 : 2 + rank], (offset_group, *w.shape[2:]))
        value = _apply("mul", value, Load(Operand(4), (n.sym, row, *syms(space)), mask.dtype))
    return Stage("columns", compute, (n, c, *taps, *space), value, "sum", near)


# --- RoiAlign(x, rois, batch){scale, ratio, shape, mode, half_pixel} -----------------------------------------
#
# x [N, C, H, W]; rois [R, 4] as x1, y1, x2, y2; y [R, C, *shape]. Each bin of a region of interest takes ratio * ratio
# samples, and their mean, or (mode "max") the largest of all their weighted neighbours, as ONNX has it.


def _infer_roi(x: TensorType, rois: TensorType, columns: int, shape: tuple[int, ...]) -> tuple[TensorType, ...]:
    if x.rank != 4 or rois.rank != 2 or _differ(rois.shape[1], columns) or len(shape) != 2 or min(shape) < 1:
        raise ValueError(f"{x} pooled to {shape} needs rank 4 and regions of {columns} numbers, not {rois}")
    return (TensorType(x.dtype, (rois.shape[0], x.shape[1], *shape)),)


def infer_roi_align(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, batch = present(operands[0]), present(operands[2])
    if batch.rank != 1 or 0 in x.shape[2:]:
        raise ValueError(f"regions of {x} need a vector of batch indices, not {batch}")
    return _infer_roi(x, present(operands[1]), 4, ints_attr(attrs, "shape"))


def define_roi_align(operands: Operands, attrs: Attrs) -> Definition:
    x, batch, ratio = present(operands[0]), present(operands[2]), int_attr(attrs, "ratio")
    (out,), compute = infer_roi_align(operands, attrs), x.dtype.compute
    axes, samples, near = axes_over(out.shape), axes_over((ratio, ratio), "r"), axes_over((2, 2), "t")
    stages = [_roi_coordinate(present(operands[1]), attrs, number, out) for number in (0, 1)]
    stages += [_roi_place(stages[k], k, x.shape[k + 2]) for k in (0, 1)]
    stages += [_roi_weight(stages[k], k, x.shape[k + 2]) for k in (0, 1)]
    points = [(axes[0].sym, axes[2 + k].sym, samples[k].sym, near[k].sym) for k in (0, 1)]
    image = Cast(Load(Operand(2), (axes[0].sym,), batch.dtype), I64)
    places = [Load(Local(2 + k), points[k], I64) for k in (0, 1)]
    weight = _apply("mul", *(_as(Load(Local(4 + k), points[k], stages[k].dtype), compute) for k in (0, 1)))
    value = _apply("mul", weight, Load(Operand(0), (image, axes[1].sym, *places), x.dtype))
    largest = text_attr(attrs, "mode") == "max"
    stages.append(Stage("total", compute, axes, value, "max" if largest else "sum", (*samples, *near)))
    body: Scalar = Load(Local(6), syms(axes), compute)
    body = body if largest else _apply("div", body, Const(float(ratio * ratio), compute))
    stages.append(Stage("y", out.dtype, axes, body))
    return Definition(tuple(stages), (7,))


def _roi_coordinate(rois: TensorType, attrs: Attrs, number: int, out: TensorType) -> Stage:
    """coordinate[region, bin, sample] along y (number 0) or x (1): samples lie evenly inside their bin."""
    region, cell = axis_over(out.shape[0], "i"), axis_over(out.shape[2 + number], "b")
    ratio, dtype, half = int_attr(attrs, "ratio"), rois.dtype.compute, bool(attrs["half_pixel"])
    sample = axis_over(ratio, "r")

    def corner(column: int) -> Scalar:
        place = Load(Operand(1), (region.sym, column), rois.dtype)
        scaled = _apply("mul", place, Const(float_attr(attrs, "scale"), dtype))
        return _apply("sub", scaled, Const(0.5, dtype)) if half else scaled

    start, size = corner(1 - number), _apply("sub", corner(3 - number), corner(1 - number))
    size = size if half else _apply("max", size, Const(1.0, dtype))
    step = _apply("div", size, _number(cell.extent, dtype))
    within = _apply("mul", _apply("add", Cast(Index(sample.sym), dtype), Const(0.5, dtype)), step)
    bin_start = _apply("add", start, _apply("mul", Cast(Index(cell.sym), dtype), step))
    body = _apply("add", bin_start, _apply("div", within, Const(float(ratio), dtype)))
    return Stage("coordinate", dtype, (region, cell, sample), body)


def _roi_point(coordinate: Stage, local: int, extent: Dim) -> tuple[Scalar, Scalar]:
    """(the coordinate as it is, the coordinate inside)."""
    point = Load(Local(local), syms(coordinate.axes), coordinate.dtype)
    return point, _clamped(point, Const(0.0, coordinate.dtype), _number(extent - 1, coordinate.dtype))


def _roi_place(coordinate: Stage, local: int, extent: Dim) -> Stage:
    _, inside = _roi_point(coordinate, local, extent)
    tap = axis_over(2, "t")
    place = _clamped(_apply("add", Cast(inside, I64), Index(tap.sym)), Index(0), Index(extent - 1))
    return Stage("place", I64, (*coordinate.axes, tap), place)


def _roi_weight(coordinate: Stage, local: int, extent: Dim) -> Stage:
    """Linear weights; a sample more than one element outside counts nothing."""
    (point, inside), dtype, tap = _roi_point(coordinate, local, extent), coordinate.dtype, axis_over(2, "t")
    offset = _apply("sub", inside, _apply("floor", inside))
    weight = Select(_apply("eq", Index(tap.sym), Index(0)), _apply("sub", Const(1.0, dtype), offset), offset)
    outside = _apply("lt", point, Const(-1.0, dtype)), _apply("gt", point, _number(extent, dtype))
    return Stage("weight", dtype, (*coordinate.axes, tap), Select(_apply("or", *outside), Const(0.0, dtype), weight))


# --- MaxRoiPool(x, rois){scale, shape}: rois [R, 5] as batch, x1, y1, x2, y2 ---------------------------------


def infer_max_roi_pool(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    return _infer_roi(present(operands[0]), present(operands[1]), 5, ints_attr(attrs, "shape"))


def define_max_roi_pool(operands: Operands, attrs: Attrs) -> Definition:
    """The maximum over each bin, first of its rows, then of its columns; an empty bin is 0 (arXiv 1504.08083)."""
    x, rois = present(operands[0]), present(operands[1])
    (out,), least = infer_max_roi_pool(operands, attrs), Const(lowest(x.dtype), x.dtype)
    bounds = [_roi_bounds(rois, attrs, axis, end, x.shape[2 + axis], out) for axis in (0, 1) for end in (0, 1)]
    region, c, row, column = axes_over(out.shape)
    h, w = axis_over(x.shape[2], "h"), axis_over(x.shape[3], "w")

    def limits(axis: int, cell: Axis) -> tuple[Scalar, Scalar]:
        low, high = (Load(Local(2 * axis + end), (region.sym, cell.sym), I64) for end in (0, 1))
        return low, high

    def within(place: Axis, axis: int, cell: Axis) -> list[Scalar]:
        low, high = limits(axis, cell)
        return [_apply("ge", Index(place.sym), low), _apply("lt", Index(place.sym), high)]

    image = Cast(Load(Operand(1), (region.sym, 0), rois.dtype), I64)
    load = Load(Operand(0), (image, c.sym, h.sym, w.sym), x.dtype)
    rows = Stage("rows", x.dtype, (region, c, row, w), guarded(within(h, 0, row), load, least), "max", (h,))
    load = Load(Local(4), (region.sym, c.sym, row.sym, w.sym), x.dtype)
    cells = (region, c, row, column)
    bins = Stage("bins", x.dtype, cells, guarded(within(w, 1, column), load, least), "max", (w,))
    filled: list[Scalar] = [_apply("lt", *limits(0, row)), _apply("lt", *limits(1, column))]
    body = guarded(filled, Load(Local(5), syms(cells), x.dtype), Const(0, x.dtype))
    return Definition((*bounds, rows, bins, Stage("y", out.dtype, cells, body)), (6,))


def _roi_bounds(rois: TensorType, attrs: Attrs, axis: int, end: int, extent: Dim, out: TensorType) -> Stage:
    """limit[region, bin]: the first row or column of a bin, or (end = 1) the first behind it."""
    region, cell, dtype = axis_over(out.shape[0], "i"), axis_over(out.shape[2 + axis], "b"), rois.dtype.compute

    def corner(column: int) -> Scalar:
        place = Load(Operand(1), (region.sym, column), rois.dtype)
        scaled = _apply("mul", place, Const(float_attr(attrs, "scale"), dtype))
        # Halves are rounded away from zero.
        magnitude = _apply("floor", _apply("add", _apply("abs", scaled), Const(0.5, dtype)))
        return _apply("mul", _apply("sign", scaled), magnitude)

    start, one = corner(2 - axis), Const(1.0, dtype)
    size = _apply("max", _apply("add", _apply("sub", corner(4 - axis), start), one), one)
    step = _apply("div", size, _number(cell.extent, dtype))
    place = _apply("ceil" if end else "floor", _apply("mul", Cast(Index(cell.sym + end), dtype), step))
    limit = _clamped(Cast(_apply("add", place, start), I64), Index(0), Index(extent))
    return Stage("limit", I64, (region, cell), limit)


SAMPLE: dict[str, OpDef] = {
    "GridSample": OpDef("GridSample", infer_grid_sample, define_grid_sample),
    "DeformConv": OpDef("DeformConv", infer_deform_conv, define_deform_conv),
    "RoiAlign": OpDef("RoiAlign", infer_roi_align, define_roi_align),
    "MaxRoiPool": OpDef("MaxRoiPool", infer_max_roi_pool, define_max_roi_pool),
}
