"""ONNX operators that move elements or make them from nothing."""

from __future__ import annotations

import numpy as np

from foretell.frontend.onnx_node import OnnxNode, normal_axes, normal_axis
from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.frontend.operators.importer import Importer
from foretell.graph.nodes import Value
from foretell.graph.ops.elementwise import broadcast_shapes
from foretell.ir import expr
from foretell.ir.dtypes import F32, I64
from foretell.ir.expr import Dim


def _constant(node: OnnxNode) -> Value | None:
    array = node.tensor("value")
    if array is None:
        for name, dtype in _CONSTANT_TYPES.items():
            if node.has(name):
                array = node.scope.model.stored.numbers(node.attributes[name], dtype)
    return None if array is None else node.build.constant(array, node.build.hint)


_CONSTANT_TYPES = {
    "value_float": np.dtype(np.float32),
    "value_floats": np.dtype(np.float32),
    "value_int": np.dtype(np.int64),
    "value_ints": np.dtype(np.int64),
}


def _reshape(node: OnnxNode) -> Value | None:
    x, wish = node.input(0), node.dims(1)
    if wish is None:
        return None
    return node.build.reshape(x, resolve_reshape(x.shape, wish, bool(node.int("allowzero", 0))))


def resolve_reshape(shape: tuple[Dim, ...], wish: tuple[Dim, ...], allow_zero: bool) -> tuple[Dim, ...]:
    """The shape ONNX's Reshape means: 0 keeps a dimension, -1 takes what is left.

    before: (n, 12, 64) to (0, -1)     after: (n, 768)
    """
    kept: list[Dim] = []
    for position, dim in enumerate(wish):
        if dim == 0 and not allow_zero:
            if position >= len(shape):
                raise ValueError(f"dimension {position} of {shape} does not exist")
            dim = shape[position]
        kept.append(dim)
    if any(isinstance(dim, int) and dim < -1 for dim in kept) or kept.count(-1) > 1:
        raise ValueError(f"{wish} is not a shape")
    if -1 in kept:
        rest = expr.product(tuple(dim for dim in kept if dim != -1))
        total = expr.product(shape)
        if rest == 0 or (isinstance(rest, int) and isinstance(total, int) and total % rest):
            raise ValueError(f"{total} elements do not divide into {wish}")
        kept[kept.index(-1)] = total // rest
    return tuple(kept)


def _flatten(node: OnnxNode) -> Value:
    x = node.input(0)
    axis = node.int("axis", 1)
    axis = axis if axis == x.type.rank else normal_axis(axis, x.type.rank or 1)
    return node.build.reshape(x, (expr.product(x.shape[:axis]), expr.product(x.shape[axis:])))


def _axes_operand(node: OnnxNode, since: int) -> tuple[int, ...] | None:
    """Axes as an attribute before operator set `since`, as an input after; None if absent or unknown."""
    if node.version < since:
        return node.ints("axes")
    dims = node.dims(1)
    return None if dims is None else tuple(dim for dim in dims if isinstance(dim, int))


def _squeeze(node: OnnxNode) -> Value | None:
    x = node.input(0)
    axes = _axes_operand(node, 13)
    if axes is None:
        if node.optional(1) is not None or not x.type.is_static:
            return None
        axes = tuple(axis for axis, dim in enumerate(x.shape) if dim == 1)
    axes = normal_axes(axes, x.type.rank)
    if any(isinstance(x.shape[axis], int) and x.shape[axis] != 1 for axis in axes):
        raise ValueError(f"axes {axes} of {x.type} are not all 1")
    return node.build.reshape(x, tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes))


def _unsqueeze(node: OnnxNode) -> Value | None:
    x = node.input(0)
    axes = _axes_operand(node, 13)
    if axes is None:
        return None
    rank = x.type.rank + len(axes)
    axes = normal_axes(axes, rank)
    rest = iter(x.shape)
    return node.build.reshape(x, tuple(1 if axis in axes else next(rest) for axis in range(rank)))


def _transpose(node: OnnxNode) -> Value:
    x = node.input(0)
    permutation = node.ints("perm") or tuple(reversed(range(x.type.rank)))
    if sorted(permutation) != list(range(x.type.rank)):
        raise ValueError(f"{permutation} is not a permutation of {x.type.rank} axes")
    return node.build.transpose(x, permutation)


def _expand(node: OnnxNode) -> Value | None:
    x, wish = node.input(0), node.dims(1)
    if wish is None:
        return None
    if any(isinstance(dim, int) and dim < 0 for dim in wish):
        raise ValueError(f"{wish} is not a shape")
    return broadcast_to(node, x, broadcast_shapes(x.shape, wish))


def broadcast_to(node: OnnxNode, x: Value, shape: tuple[Dim, ...]) -> Value:
    return x if x.shape == shape else node.build.op("Broadcast", x, shape=shape)


def _tile(node: OnnxNode) -> Value | None:
    """Tile is a broadcast along a new axis before each tiled one.

    before: Tile(x[a, b], [2, 3])     after: Reshape(Broadcast(Reshape(x, [1, a, 1, b]), [2, a, 3, b]), [2a, 3b])
    """
    x, repeats = node.input(0), node.dims(1)
    if repeats is None:
        return None
    if len(repeats) != x.type.rank or any(isinstance(count, int) and count < 0 for count in repeats):
        raise ValueError(f"repeats {repeats} do not fit {x.type}")
    pairs = list(zip(repeats, x.shape, strict=True))
    split = tuple(part for _, dim in pairs for part in (1, dim))
    wide = tuple(part for count, dim in pairs for part in (count, dim))
    y = node.build.op("Broadcast", node.build.reshape(x, split), shape=wide)
    return node.build.reshape(y, tuple(count * dim for count, dim in pairs))


def _slice(node: OnnxNode) -> Value | None:
    x = node.input(0)
    if node.version < 10:
        starts, ends, axes = node.ints("starts"), node.ints("ends"), node.ints("axes")
        steps: tuple[Dim, ...] | None = None
    else:
        starts, ends, axes, steps = node.dims(1), node.dims(2), node.dims(3), node.dims(4)
        if (axes is None and node.optional(3) is not None) or (steps is None and node.optional(4) is not None):
            return None
    if starts is None or ends is None:
        return None
    positions = normal_axes(range(len(starts)) if axes is None else axes, x.type.rank)
    steps = steps or (1,) * len(starts)
    if not len(starts) == len(ends) == len(positions) == len(steps):
        raise ValueError("starts, ends, axes and steps differ in length")
    if not all(isinstance(step, int) for step in steps):
        return None
    return slice_axes(node, x, {a: (s, e, int(t)) for a, s, e, t in zip(positions, starts, ends, steps, strict=True)})  # pyright: ignore


def slice_axes(node: OnnxNode, x: Value, ranges: dict[int, tuple[Dim, Dim, int]]) -> Value:
    """Python's x[start:end:step] on some axes; bounds are clamped as Python clamps them."""
    starts: list[Dim] = [0] * x.type.rank
    steps = [1] * x.type.rank
    shape = list(x.shape)
    for axis, (start, end, step) in ranges.items():
        if step == 0:
            raise ValueError("a slice needs a step other than 0")
        first, length = _clamped(start, end, step, x.shape[axis])
        starts[axis], steps[axis], shape[axis] = first, step, length
    if tuple(shape) == x.shape and not any(starts) and all(step == 1 for step in steps):
        return x
    return node.build.op("Slice", x, starts=tuple(starts), steps=tuple(steps), shape=tuple(shape))


def _clamped(start: Dim, end: Dim, step: int, extent: Dim) -> tuple[Dim, Dim]:
    """(first index, number of elements) of a Python slice."""
    low, high = (0, extent) if step > 0 else (-1, extent - 1)

    def place(index: Dim) -> Dim:
        below, above = expr.bounds(index)
        if above is not None and above < 0:
            index = index + extent
        elif below is None or below < 0:
            raise ValueError(f"the sign of the slice bound {index} is not known")
        return expr.minimum(expr.maximum(index, low), high)

    first, last = place(start), place(end)
    length = (last - first + step - 1) // step if step > 0 else (first - last - step - 1) // -step
    return first, expr.maximum(length, 0)


def _split(node: OnnxNode) -> tuple[Value, ...] | None:
    x = node.input(0)
    axis = node.axis(x.type.rank, default=0)
    count = len(node.proto.output)
    sizes: tuple[Dim, ...] | None = node.ints("split") if node.version < 13 else node.dims(1)
    if sizes is None:
        if node.version >= 13 and node.optional(1) is not None:
            return None
        if node.has("num_outputs") and node.int("num_outputs") != count:
            raise ValueError(f"num_outputs={node.int('num_outputs')}, but {count} outputs are named")
        chunk = expr.ceildiv(x.shape[axis], count)
        sizes = (*((chunk,) * (count - 1)), x.shape[axis] - chunk * (count - 1))
    if len(sizes) != count:
        raise ValueError(f"{len(sizes)} sizes for {count} outputs")
    total: Dim = 0
    starts: list[Dim] = []
    for size in sizes:
        starts.append(total)
        total = total + size
    if total != x.shape[axis] and isinstance(total, int) and isinstance(x.shape[axis], int):
        raise ValueError(f"sizes {sizes} do not add up to {x.shape[axis]}")
    return tuple(_part(node, x, axis, start, size) for start, size in zip(starts, sizes, strict=True))


def _part(node: OnnxNode, x: Value, axis: int, start: Dim, size: Dim) -> Value:
    if isinstance(size, int) and size < 0:
        raise ValueError(f"a part of size {size}")
    starts = tuple(start if k == axis else 0 for k in range(x.type.rank))
    shape = tuple(size if k == axis else dim for k, dim in enumerate(x.shape))
    return node.build.op("Slice", x, starts=starts, steps=(1,) * x.type.rank, shape=shape)


def _concat(node: OnnxNode) -> Value:
    values = node.present_inputs
    axis = node.axis(values[0].type.rank)
    return values[0] if len(values) == 1 else node.build.op("Concat", *values, axis=axis)


def _pad(node: OnnxNode) -> Value | None:
    x = node.input(0)
    rank = x.type.rank
    amounts: tuple[Dim, ...] | None = node.ints("pads") if node.version < 11 else node.dims(1)
    axes: tuple[Dim, ...] | None = tuple(range(rank))
    if node.optional(3) is not None:
        axes = node.dims(3)
    if amounts is None or axes is None:
        return None
    positions = normal_axes(axes, rank)
    if len(amounts) != 2 * len(positions):
        raise ValueError(f"{len(amounts)} pads for {len(positions)} axes")
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for number, axis in enumerate(positions):
        before[axis], after[axis] = amounts[number], amounts[len(positions) + number]
    fill = node.optional(2) if node.version >= 11 else node.scalar(node.float("value", 0.0), x)
    mode = node.text("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise ValueError(f"unknown mode {mode!r}")
    return node.build.op("Pad", x, fill, before=tuple(before), after=tuple(after), mode=mode)


def _gather(node: OnnxNode) -> Value:
    x = node.input(0)
    return node.build.op("Gather", x, node.input(1), axis=node.axis(x.type.rank, default=0))


def _gather_elements(node: OnnxNode) -> Value:
    x = node.input(0)
    return node.build.op("GatherElements", x, node.input(1), axis=node.axis(x.type.rank, default=0))


def _gather_nd(node: OnnxNode) -> Value | None:
    if node.input(1).type.rank and not isinstance(node.input(1).shape[-1], int):
        return None
    return node.build.op("GatherND", node.input(0), node.input(1), batch_dims=node.int("batch_dims", 0))


def _range(node: OnnxNode) -> Value | None:
    """start + i * delta. The number of elements must be known, be it as an expression."""
    dtype = node.input(0).dtype
    arrays = [node.array(number) for number in range(3)]
    count: Dim
    if all(array is not None for array in arrays):
        start, limit, delta = (array.reshape(-1)[0].item() for array in arrays if array is not None)
        if delta == 0:
            raise ValueError("delta is 0")
        ratio = -(-(limit - start) // delta) if dtype.is_integer else np.ceil((limit - start) / delta)
        if not np.isfinite(float(ratio)):
            raise ValueError("the number of elements is not finite")
        count = max(0, int(ratio))
    else:
        known = [node.dims(number) for number in range(3)]
        if any(dims is None for dims in known) or not dtype.is_integer:
            return None
        start, limit, delta = (dims[0] for dims in known if dims is not None)
        if not isinstance(delta, int) or delta <= 0:
            return None
        count = expr.maximum(expr.ceildiv(limit - start, delta), 0)
    steps = node.build.op("Iota", shape=(count,), axis=0, dtype=dtype)
    scaled = node.build.op("Mul", steps, node.build.reshape(node.input(2), ()))
    return node.build.op("Add", scaled, node.build.reshape(node.input(0), ()))


def _constant_of_shape(node: OnnxNode) -> Value | None:
    shape, array = node.dims(0), node.tensor("value")
    if array is not None and array.size != 1:
        raise ValueError(f"value must have one element, not {array.size}")
    if shape is None:
        return None
    if any(isinstance(dim, int) and dim < 0 for dim in shape):
        raise ValueError(f"{shape} is not a shape")
    fill = node.build.scalar(0.0, F32) if array is None else node.build.constant(array.reshape(()))
    return broadcast_to(node, fill, shape)


def _eye_like(node: OnnxNode) -> Value:
    x = node.input(0)
    if x.type.rank != 2:
        raise ValueError(f"EyeLike needs a matrix, not {x.type}")
    dtype = DTYPE_OF_ONNX[node.int("dtype")] if node.has("dtype") else x.dtype
    rows, columns = (node.build.op("Iota", shape=x.shape, axis=axis, dtype=I64) for axis in (0, 1))
    shifted = node.build.op("Add", rows, node.build.scalar(node.int("k", 0), I64))
    return node.build.op("Cast", node.build.op("Equal", shifted, columns), to=dtype)


def _trilu(node: OnnxNode) -> Value:
    x = node.input(0)
    if x.type.rank < 2:
        raise ValueError(f"Trilu needs a matrix, not {x.type}")
    k = node.optional(1)
    offset = node.build.scalar(0, I64) if k is None else node.build.reshape(k, ())
    rows, columns = (node.build.op("Iota", shape=x.shape[-2:], axis=axis, dtype=I64) for axis in (0, 1))
    edge = node.build.op("Add", rows, offset)
    keep = node.build.op("GreaterOrEqual" if node.int("upper", 1) else "LessOrEqual", columns, edge)
    return node.build.op("Where", keep, x, node.scalar(0, x))


def _one_hot(node: OnnxNode) -> Value | None:
    """y[..., d, ...] = on where d is the index (counted from the end if negative), else off."""
    indices, depth = node.input(0), node.dims(1)
    if depth is None:
        array = node.array(1)
        if array is None:
            return None
        depth = (int(array.reshape(-1)[0]),)
    values = node.input(2)
    rank = indices.type.rank + 1
    axis = normal_axis(node.int("axis", -1), rank)
    build = node.build
    shape = (*indices.shape[:axis], depth[0], *indices.shape[axis:])
    if isinstance(depth[0], int) and depth[0] < 0:
        raise ValueError(f"depth {depth[0]} is negative")
    wide = build.cast(indices, I64)
    extent = build.op("Dims", values=(depth[0],), shape=(), dtype=I64)
    wrapped = build.op("Where", build.op("Less", wide, build.scalar(0, I64)), build.op("Add", wide, extent), wide)
    place = build.reshape(wrapped, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    hit = build.op("Equal", build.op("Iota", shape=shape, axis=axis, dtype=I64), place)
    off, on = (build.reshape(build.op("Slice", values, starts=(k,), steps=(1,), shape=(1,)), ()) for k in (0, 1))
    return build.op("Where", hit, on, off)


def _depth_to_space(node: OnnxNode) -> Value:
    x, block = node.input(0), node.int("blocksize")
    n, c, h, w = _image(x, block)
    build = node.build
    depth = _exact(c, block * block)
    if node.text("mode", "DCR") == "DCR":
        y = build.transpose(build.reshape(x, (n, block, block, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = build.transpose(build.reshape(x, (n, depth, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return build.reshape(y, (n, depth, h * block, w * block))


def _space_to_depth(node: OnnxNode) -> Value:
    x, block = node.input(0), node.int("blocksize")
    n, c, h, w = _image(x, block)
    build = node.build
    rows, columns = _exact(h, block), _exact(w, block)
    y = build.reshape(x, (n, c, rows, block, columns, block))
    if node.text("mode", "DCR") == "DCR":
        y = build.transpose(y, (0, 3, 5, 1, 2, 4))
    else:
        y = build.transpose(y, (0, 1, 3, 5, 2, 4))
    return build.reshape(y, (n, c * block * block, rows, columns))


def _image(x: Value, block: int) -> tuple[Dim, Dim, Dim, Dim]:
    if x.type.rank != 4 or block < 1:
        raise ValueError(f"{x.type} with blocks of {block}: needs rank 4 and a positive block size")
    n, c, h, w = x.shape
    return n, c, h, w


def _exact(dim: Dim, divisor: int) -> Dim:
    if isinstance(dim, int) and dim % divisor:
        raise ValueError(f"{dim} does not divide by {divisor}")
    return dim // divisor


MOVEMENT_IMPORTERS: dict[str, Importer] = {
    "Constant": _constant,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "Pad": _pad,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Trilu": _trilu,
    "OneHot": _one_hot,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
