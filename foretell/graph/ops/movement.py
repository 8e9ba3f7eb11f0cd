"""Operators that move elements: reshape, transpose, slice, pad, concatenate, gather, and tensors made from nothing."""

from __future__ import annotations

from collections.abc import Callable

from foretell.graph.ops.attrs import dims_attr, dtype_attr, int_attr, ints_attr, text_attr
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
    Operand,
    Scalar,
    Select,
    Stage,
    TensorType,
    axes_over,
)


def _single(type: TensorType, axes: tuple[Axis, ...], body: Scalar) -> Definition:
    return Definition((Stage("y", type.dtype, axes, body),), (0,))


# --- Reshape{shape} ------------------------------------------------------------------------------------------


def infer_reshape(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, shape = present(operands[0]), dims_attr(attrs, "shape")
    before, after = x.elements, expr.product(shape)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise ValueError(f"cannot reshape {before} elements to shape {shape}")
    return (TensorType(x.dtype, shape),)


def define_reshape(operands: Operands, attrs: Attrs) -> Definition:
    """y[i...] = x[j...] where i and j have the same place in row-major order."""
    x = present(operands[0])
    (out,) = infer_reshape(operands, attrs)
    axes = axes_over(out.shape)
    if 0 in x.shape:
        return _single(out, axes, Const(0, x.dtype))  # no element has a place, and no index divides by zero
    indices: list[Dim] = []
    for source, target in _matching_groups(x.shape, out.shape):
        place: Dim = 0
        for number in target:
            place = place * axes[number].extent + axes[number].sym
        indices += _unflatten(place, tuple(x.shape[number] for number in source))
    return _single(out, axes, Load(Operand(0), tuple(indices), x.dtype))


def _unflatten(place: Dim, shape: tuple[Dim, ...]) -> list[Dim]:
    indices: list[Dim] = []
    for number in range(len(shape)):
        inner = expr.product(shape[number + 1 :])
        index = place if inner == 1 else place // inner
        indices.append(index if number == 0 else index % shape[number])
    return indices


def _matching_groups(source: tuple[Dim, ...], target: tuple[Dim, ...]) -> list[tuple[range, range]]:
    """Split both shapes into the smallest runs of equal products, so that unchanged dimensions stay apart.

    before: (n, 64, 56, 56) and (n, 64, 3136)     after: n|n, 64|64, 56 56|3136
    """
    groups: list[tuple[range, range]] = []
    left = right = 0
    while left < len(source) and right < len(target):
        left_end, right_end = left + 1, right + 1
        left_product, right_product = source[left], target[right]
        while left_product != right_product:
            low, _ = expr.bounds(left_product - right_product)
            if right_end < len(target) and ((low is not None and low > 0) or left_end == len(source)):
                right_product, right_end = right_product * target[right_end], right_end + 1
            elif left_end < len(source):
                left_product, left_end = left_product * source[left_end], left_end + 1
            else:
                break
        groups.append((range(left, left_end), range(right, right_end)))
        left, right = left_end, right_end
    # What is left over has extent one; it joins the last group.
    if groups and (left < len(source) or right < len(target)):
        last_source, last_target = groups.pop()
        groups.append((range(last_source.start, len(source)), range(last_target.start, len(target))))
    elif not groups:
        groups.append((range(len(source)), range(len(target))))
    return groups


# --- Transpose{perm} -----------------------------------------------------------------------------------------


def infer_transpose(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, permutation = present(operands[0]), ints_attr(attrs, "perm")
    if sorted(permutation) != list(range(x.rank)):
        raise ValueError(f"{permutation} is not a permutation of {x.rank} axes")
    return (TensorType(x.dtype, tuple(x.shape[axis] for axis in permutation)),)


def define_transpose(operands: Operands, attrs: Attrs) -> Definition:
    x, permutation = present(operands[0]), ints_attr(attrs, "perm")
    (out,) = infer_transpose(operands, attrs)
    axes = axes_over(out.shape)
    indices = tuple(axes[permutation.index(axis)].sym for axis in range(x.rank))
    return _single(out, axes, Load(Operand(0), indices, x.dtype))


# --- Broadcast{shape}: numpy's broadcast_to ------------------------------------------------------------------


def infer_broadcast(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, shape = present(operands[0]), dims_attr(attrs, "shape")
    own = shape[len(shape) - x.rank :]
    if len(shape) < x.rank or any(
        isinstance(a, int) and isinstance(b, int) and a not in (1, b) for a, b in zip(x.shape, own, strict=True)
    ):
        raise ValueError(f"{x} does not broadcast to shape {shape}")
    return (TensorType(x.dtype, shape),)


def define_broadcast(operands: Operands, attrs: Attrs) -> Definition:
    x = present(operands[0])
    (out,) = infer_broadcast(operands, attrs)
    axes = axes_over(out.shape)
    own = axes[out.rank - x.rank :]
    indices = tuple(0 if dim == 1 and axis.extent != 1 else axis.sym for dim, axis in zip(x.shape, own, strict=True))
    return _single(out, axes, Load(Operand(0), indices, x.dtype))


# --- Slice{starts, steps, shape}: y[i...] = x[start + i * step ...], all axes, already clamped ---------------


def infer_slice(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, shape = present(operands[0]), dims_attr(attrs, "shape")
    starts, steps = dims_attr(attrs, "starts"), ints_attr(attrs, "steps")
    if not len(starts) == len(steps) == len(shape) == x.rank:
        raise ValueError(f"slice of {x} needs one start, step and length per axis")
    return (TensorType(x.dtype, shape),)


def define_slice(operands: Operands, attrs: Attrs) -> Definition:
    x, starts, steps = present(operands[0]), dims_attr(attrs, "starts"), ints_attr(attrs, "steps")
    (out,) = infer_slice(operands, attrs)
    axes = axes_over(out.shape)
    indices = tuple(start + axis.sym * step for start, axis, step in zip(starts, axes, steps, strict=True))
    return _single(out, axes, Load(Operand(0), indices, x.dtype))


# --- Pad(x, value?){before, after, mode}: negative amounts crop ----------------------------------------------


def infer_pad(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, before, after = present(operands[0]), dims_attr(attrs, "before"), dims_attr(attrs, "after")
    if not len(before) == len(after) == x.rank:
        raise ValueError(f"pads of {x} need two numbers per axis")
    shape = tuple(dim + left + right for dim, left, right in zip(x.shape, before, after, strict=True))
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise ValueError(f"pads {before}, {after} leave {x} with a negative dimension")
    if text_attr(attrs, "mode") != "constant" and any(
        dim == 0 and out != 0 for dim, out in zip(x.shape, shape, strict=True)
    ):
        raise ValueError(f"cannot pad {x} from its own elements: it has none")
    return (TensorType(x.dtype, shape),)


def define_pad(operands: Operands, attrs: Attrs) -> Definition:
    x, before, mode = present(operands[0]), dims_attr(attrs, "before"), text_attr(attrs, "mode")
    after = dims_attr(attrs, "after")
    (out,) = infer_pad(operands, attrs)
    axes = axes_over(out.shape)
    places = tuple(axis.sym - left for axis, left in zip(axes, before, strict=True))
    if mode != "constant":
        indices = tuple(_PLACE_IN[mode](place, dim) for place, dim in zip(places, x.shape, strict=True))
        return _single(out, axes, Load(Operand(0), indices, x.dtype))
    fill: Scalar = Const(0, x.dtype)
    if len(operands) > 1 and operands[1] is not None:
        fill = Load(Operand(1), (0,) * operands[1].rank, operands[1].dtype)
    body: Scalar = Load(Operand(0), places, x.dtype)
    for place, dim, left, right in zip(places, x.shape, before, after, strict=True):
        inside: list[Scalar] = []
        if left != 0:
            inside.append(Apply("ge", (Index(place), Index(0))))
        if right != 0:
            inside.append(Apply("lt", (Index(place), Index(dim))))
        for condition in inside:
            body = Select(condition, body, fill)
    return _single(out, axes, body)


def _reflect(place: Dim, extent: Dim) -> Dim:
    if extent == 1:
        return 0
    period = 2 * (extent - 1)
    return expr.minimum(place % period, period - place % period)


def _edge(place: Dim, extent: Dim) -> Dim:
    return expr.minimum(expr.maximum(place, 0), extent - 1)


_PLACE_IN: dict[str, Callable[[Dim, Dim], Dim]] = {"edge": _edge, "reflect": _reflect, "wrap": expr.mod}


# --- Concat{axis} --------------------------------------------------------------------------------------------


def infer_concat(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    types, axis = tuple(present(operand) for operand in operands), int_attr(attrs, "axis")
    first = types[0]
    total: Dim = 0
    for type in types:
        if type.rank != first.rank or type.dtype != first.dtype:
            raise ValueError(f"cannot concatenate {first} and {type}")
        for number, (a, b) in enumerate(zip(first.shape, type.shape, strict=True)):
            if number != axis and isinstance(a, int) and isinstance(b, int) and a != b:
                raise ValueError(f"cannot concatenate {first} and {type} on axis {axis}")
        total = total + type.shape[axis]
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def define_concat(operands: Operands, attrs: Attrs) -> Definition:
    types, axis = tuple(present(operand) for operand in operands), int_attr(attrs, "axis")
    (out,) = infer_concat(operands, attrs)
    axes = axes_over(out.shape)
    starts: list[Dim] = [0]
    for type in types:
        starts.append(starts[-1] + type.shape[axis])

    def load(number: int) -> Load:
        indices = tuple(a.sym - starts[number] if k == axis else a.sym for k, a in enumerate(axes))
        return Load(Operand(number), indices, out.dtype)

    def choose(first: int, last: int) -> Scalar:
        """The load of the operand, out of `first` to `last`, in which the point lies; halving keeps it shallow."""
        if first == last:
            return load(first)
        middle = (first + last + 1) // 2
        return Select(
            Apply("lt", (Index(axes[axis].sym), Index(starts[middle]))), choose(first, middle - 1), choose(middle, last)
        )

    return _single(out, axes, choose(0, len(types) - 1))


# --- Gather(x, indices){axis}: y[a..., i..., b...] = x[a..., indices[i...], b...] ----------------------------


def wrapped_index(index: Scalar, extent: Dim) -> Scalar:
    """A loaded index, where a negative one counts from the end."""
    wide = Cast(index, I64)
    return Select(Apply("lt", (wide, Const(0, I64))), Apply("add", (wide, Index(extent))), wide)


def infer_gather(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices, axis = present(operands[0]), present(operands[1]), int_attr(attrs, "axis")
    return (TensorType(x.dtype, x.shape[:axis] + indices.shape + x.shape[axis + 1 :]),)


def define_gather(operands: Operands, attrs: Attrs) -> Definition:
    x, indices, axis = present(operands[0]), present(operands[1]), int_attr(attrs, "axis")
    (out,) = infer_gather(operands, attrs)
    axes = axes_over(out.shape)
    syms = tuple(a.sym for a in axes)
    chosen = Load(Operand(1), syms[axis : axis + indices.rank], indices.dtype)
    place = (*syms[:axis], wrapped_index(chosen, x.shape[axis]), *syms[axis + indices.rank :])
    return _single(out, axes, Load(Operand(0), place, x.dtype))


# --- GatherElements(x, indices){axis}: y[i...] = x[..., indices[i...], ...] ----------------------------------


def infer_gather_elements(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices = present(operands[0]), present(operands[1])
    if x.rank != indices.rank:
        raise ValueError(f"indices {indices} need the rank of {x}")
    return (TensorType(x.dtype, indices.shape),)


def define_gather_elements(operands: Operands, attrs: Attrs) -> Definition:
    x, indices, axis = present(operands[0]), present(operands[1]), int_attr(attrs, "axis")
    (out,) = infer_gather_elements(operands, attrs)
    axes = axes_over(out.shape)
    syms = tuple(a.sym for a in axes)
    chosen = wrapped_index(Load(Operand(1), syms, indices.dtype), x.shape[axis])
    return _single(out, axes, Load(Operand(0), (*syms[:axis], chosen, *syms[axis + 1 :]), x.dtype))


# --- GatherND(x, indices){batch_dims} ------------------------------------------------------------------------


def infer_gather_nd(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    x, indices, batch = present(operands[0]), present(operands[1]), int_attr(attrs, "batch_dims")
    if not 0 <= batch < min(x.rank, indices.rank):
        raise ValueError(f"{batch} batch dimensions, where the indices are {indices} and the data {x}")
    depth = indices.shape[-1]
    if not isinstance(depth, int) or batch + depth > x.rank:
        raise ValueError(f"indices {indices} reach beyond the rank of {x}")
    return (TensorType(x.dtype, indices.shape[:-1] + x.shape[batch + depth :]),)


def define_gather_nd(operands: Operands, attrs: Attrs) -> Definition:
    x, indices, batch = present(operands[0]), present(operands[1]), int_attr(attrs, "batch_dims")
    (out,) = infer_gather_nd(operands, attrs)
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    axes = axes_over(out.shape)
    syms = tuple(a.sym for a in axes)
    outer = indices.rank - 1
    chosen = tuple(
        wrapped_index(Load(Operand(1), (*syms[:outer], k), indices.dtype), x.shape[batch + k]) for k in range(depth)
    )
    return _single(out, axes, Load(Operand(0), (*syms[:batch], *chosen, *syms[outer:]), x.dtype))


# --- Iota{shape, axis, dtype}: y[i...] = i[axis];  Dims{values, shape}: dimensions as data -------------------


def infer_iota(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(dtype_attr(attrs, "dtype"), dims_attr(attrs, "shape")),)


def define_iota(operands: Operands, attrs: Attrs) -> Definition:
    (out,) = infer_iota(operands, attrs)
    axes = axes_over(out.shape)
    return _single(out, axes, Cast(Index(axes[int_attr(attrs, "axis")].sym), out.dtype))


def infer_dims(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(dtype_attr(attrs, "dtype"), dims_attr(attrs, "shape")),)


def define_dims(operands: Operands, attrs: Attrs) -> Definition:
    """A small integer tensor whose elements, in row-major order, are the given expressions."""
    (out,) = infer_dims(operands, attrs)
    values = dims_attr(attrs, "values")
    axes = axes_over(out.shape)
    place: Dim = 0
    for axis in axes:
        place = place * axis.extent + axis.sym

    def choose(first: int, last: int) -> Scalar:
        if first >= last:
            return Index(values[first] if values else 0)
        middle = (first + last + 1) // 2
        return Select(Apply("lt", (Index(place), Index(middle))), choose(first, middle - 1), choose(middle, last))

    return _single(out, axes, Cast(choose(0, len(values) - 1), out.dtype))


MOVEMENT: dict[str, OpDef] = {
    "Reshape": OpDef("Reshape", infer_reshape, define_reshape),
    "Transpose": OpDef("Transpose", infer_transpose, define_transpose),
    "Broadcast": OpDef("Broadcast", infer_broadcast, define_broadcast),
    "Slice": OpDef("Slice", infer_slice, define_slice),
    "Pad": OpDef("Pad", infer_pad, define_pad),
    "Concat": OpDef("Concat", infer_concat, define_concat),
    "Gather": OpDef("Gather", infer_gather, define_gather),
    "GatherElements": OpDef("GatherElements", infer_gather_elements, define_gather_elements),
    "GatherND": OpDef("GatherND", infer_gather_nd, define_gather_nd),
    "Iota": OpDef("Iota", infer_iota, define_iota),
    "Dims": OpDef("Dims", infer_dims, define_dims),
}
