"""ONNX pools and their inverse, LRN, transposed convolution and Col2Im."""

from __future__ import annotations

from foretell.frontend.onnx_node import OnnxNode
from foretell.frontend.operators.importer import Importer
from foretell.frontend.operators.placement import MOST_PAIRS
from foretell.frontend.operators.windows import LARGEST_WINDOW_NUMBER, Window, explicit_pads, numbers_of, window_of
from foretell.graph.nodes import Attr, Value
from foretell.graph.ops.window import pool_extent
from foretell.ir import expr
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import TensorType

# --- pools ---------------------------------------------------------------------------------------------------


def _image(node: OnnxNode) -> Value:
    x = node.input(0)
    if x.type.rank < 3:
        raise ValueError(f"{node.op_type} needs at least one spatial axis, got {x.type}")
    return x


def _pool_attrs(node: OnnxNode, x: Value) -> dict[str, Attr]:
    window = window_of(node, x, node.ints("kernel_shape") or ())
    shape = _pool_shape(node, x, window)
    if any(isinstance(count, int) and count < 0 for count in shape):
        raise ValueError(f"the window {window.kernel} does not fit into {x.type}")
    node.scope.check_type(TensorType(x.dtype, x.shape[:2] + shape), node.location)
    node.scope.check_type(TensorType(x.dtype, x.shape[:2] + _spans(window, shape)), node.location)
    return {
        "kernel": window.kernel,
        "strides": window.strides,
        "dilations": window.dilations,
        "before": window.before,
        "after": window.after,
        "shape": shape,
    }


def _pool_shape(node: OnnxNode, x: Value, window: Window) -> tuple[Dim, ...]:
    if node.text("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(expr.ceildiv(extent, stride) for extent, stride in zip(x.shape[2:], window.strides, strict=True))
    ceil = bool(node.int("ceil_mode", 0))
    return tuple(
        pool_extent(extent, kernel, stride, dilation, (before, after), ceil)
        for extent, kernel, stride, dilation, before, after in zip(
            x.shape[2:], window.kernel, window.strides, window.dilations, window.before, window.after, strict=True
        )
    )


def _spans(window: Window, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Extents of the padded input, which is a tensor too: a kernel needs no data behind it to be large."""
    return tuple(
        expr.maximum(0, (count - 1) * stride) + dilation * (kernel - 1) + 1
        for count, stride, dilation, kernel in zip(shape, window.strides, window.dilations, window.kernel, strict=True)
    )


def _max_pool(node: OnnxNode) -> tuple[Value, ...]:
    x, order = _image(node), node.int("storage_order", 0)
    if order not in (0, 1):
        raise ValueError(f"storage_order must be 0 or 1, not {order}")
    indices = "" if not node.has_output(1) else "columns" if order else "rows"
    return node.build.ops("MaxPool", x, **_pool_attrs(node, x), indices=indices)


def _average_pool(node: OnnxNode) -> Value:
    x, padding = _image(node), bool(node.int("count_include_pad", 0))
    return node.build.op("AveragePool", x, **_pool_attrs(node, x), count_include_pad=padding)


def _norm_order(node: OnnxNode) -> int:
    p = node.int("p", 2)
    if p < 1:
        raise ValueError(f"p must be positive, not {p}")
    return p


def _lp_pool(node: OnnxNode) -> Value:
    x = _image(node)
    return node.build.op("LpPool", x, **_pool_attrs(node, x), p=_norm_order(node))


def _global_pool(op: str) -> Importer:
    """A reduction over all spatial axes."""

    def apply(node: OnnxNode) -> Value:
        x = _image(node)
        return node.build.op(op, x, axes=tuple(range(2, x.type.rank)), keepdims=True)

    return apply


def _global_lp_pool(node: OnnxNode) -> Value:
    """One window as large as the image."""
    x = _image(node)
    ones, zeros = (1,) * (x.type.rank - 2), (0,) * (x.type.rank - 2)
    window: dict[str, Attr] = {"kernel": x.shape[2:], "strides": ones, "dilations": ones, "shape": ones}
    return node.build.op("LpPool", x, **window, before=zeros, after=zeros, p=_norm_order(node))


def _lrn(node: OnnxNode) -> Value:
    x, size = node.input(0), node.int("size")
    if x.type.rank < 2 or not 1 <= size < LARGEST_WINDOW_NUMBER:
        raise ValueError(f"LRN over {size} channels of {x.type}")
    padded = (x.shape[0], x.shape[1] + size - 1, *x.shape[2:])
    node.scope.check_type(TensorType(x.dtype, padded), node.location)
    alpha, beta, bias = node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1.0)
    return node.build.op("LRN", x, size=size, alpha=alpha, beta=beta, bias=bias)


# --- transposed convolution ----------------------------------------------------------------------------------


def _conv_transpose(node: OnnxNode) -> Value | None:
    x, w, bias = _image(node), node.input(1), node.optional(2)
    count = x.type.rank - 2
    kernel = tuple(dim for dim in w.shape[2:] if isinstance(dim, int))
    if len(kernel) != len(w.shape[2:]):
        return None
    group, strides = node.int("group", 1), numbers_of(node, "strides", count, least=1)
    dilations, extra = numbers_of(node, "dilations", count, least=1), numbers_of(node, "output_padding", count, least=0)
    if len(kernel) != count or 0 in kernel or group < 1 or node.ints("kernel_shape", kernel) != kernel:
        raise ValueError(f"weights {w.type} in {group} group(s) do not fit {x.type} or kernel_shape")
    # The result without any padding cut off.
    full = tuple(
        stride * (extent - 1) + more + dilation * (size - 1) + 1
        for extent, size, stride, dilation, more in zip(x.shape[2:], kernel, strides, dilations, extra, strict=True)
    )
    before, shape = _cut(node, x, full, strides)
    if any(isinstance(extent, int) and extent <= 0 for extent in shape):
        raise ValueError(f"nothing is left of {full} elements after padding is cut off")
    node.scope.check_type(TensorType(x.dtype, (x.shape[0], w.shape[1] * group, *shape)), node.location)
    operands = (x, w) if bias is None else (x, w, bias)
    return node.build.op(
        "ConvTranspose", *operands, strides=strides, dilations=dilations, before=before, shape=shape, group=group
    )


def _cut(
    node: OnnxNode, x: Value, full: tuple[Dim, ...], strides: tuple[int, ...]
) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """(elements to cut off in front, spatial shape of the result).

    The reference ignores output_shape unless auto_pad is SAME, and lets SAME widen a result whose kernel is smaller
    than its stride; ONNX's shape inference and onnxruntime do neither, and neither do we.
    """
    mode = node.text("auto_pad", "NOTSET")
    same, wanted = mode in ("SAME_UPPER", "SAME_LOWER"), node.ints("output_shape")
    if not same and not wanted:
        before, after = explicit_pads(node, len(full))
        return before, tuple(extent - left - right for extent, left, right in zip(full, before, after, strict=True))
    shape: tuple[Dim, ...] = wanted or tuple(
        expr.minimum(extent * stride, longest)
        for extent, stride, longest in zip(x.shape[2:], strides, full, strict=True)
    )
    if len(shape) != len(full) or any(isinstance(dim, int) and not 0 < dim < LARGEST_WINDOW_NUMBER for dim in shape):
        raise ValueError(f"output_shape {shape} does not fit {x.type}")
    totals = [expr.maximum(0, longest - extent) for longest, extent in zip(full, shape, strict=True)]
    return tuple(total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals), shape


def _col2im(node: OnnxNode) -> Value | None:
    x, image, block = node.input(0), node.dims(1), node.dims(2)
    if image is None or block is None:
        return None
    kernel = tuple(dim for dim in block if isinstance(dim, int) and 1 <= dim < LARGEST_WINDOW_NUMBER)
    count = len(image)
    if not len(kernel) == len(block) == count or any(isinstance(dim, int) and dim < 1 for dim in image):
        raise ValueError(f"blocks {block} do not fit the image {image}")
    strides, dilations = numbers_of(node, "strides", count, least=1), numbers_of(node, "dilations", count, least=1)
    before, after = explicit_pads(node, count)
    return node.build.op(
        "Col2Im",
        x,
        image=image,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        before=before,
        after=after,
    )


def _max_unpool(node: OnnxNode) -> Value | None:
    """Zeros, with each element of x where its index says; an output_shape adds zeros behind.

    Indices count in the tensor that was pooled, as kernel, strides and pads give it back.
    """
    x, indices, wanted = _image(node), node.input(1), node.dims(2)
    if wanted is None and node.optional(2) is not None:
        return None
    count = x.type.rank - 2
    kernel, strides = numbers_of(node, "kernel_shape", count, least=1), numbers_of(node, "strides", count, least=1)
    before, after = explicit_pads(node, count)
    space = tuple(
        (extent - 1) * stride + size - left - right
        for extent, size, stride, left, right in zip(x.shape[2:], kernel, strides, before, after, strict=True)
    )
    pooled = (*x.shape[:2], *space)
    shape = pooled if wanted is None else wanted
    if indices.shape != x.shape or len(shape) != x.type.rank:
        raise ValueError(f"indices {indices.type} or output_shape {shape} do not fit {x.type}")
    node.scope.check_type(TensorType(x.dtype, pooled), node.location)
    build, total = node.build, expr.product(pooled)
    pairs = expr.bounds(total * x.type.elements)[1]
    if pairs is None or pairs > MOST_PAIRS:
        return None
    zeros = build.op("Broadcast", node.scalar(0, x), shape=(total,))
    places, updates = build.reshape(indices, (x.type.elements,)), build.reshape(x, (x.type.elements,))
    y = build.reshape(build.op("ScatterElements", zeros, places, updates, axis=0, reduction="none"), pooled)
    if shape == pooled:
        return y
    more = tuple(extent - part for extent, part in zip(shape, pooled, strict=True))
    return build.op("Pad", y, None, before=(0,) * x.type.rank, after=more, mode="constant")


WINDOW_IMPORTERS: dict[str, Importer] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": _global_pool("ReduceMean"),
    "GlobalMaxPool": _global_pool("ReduceMax"),
    "GlobalLpPool": _global_lp_pool,
    "LRN": _lrn,
    "ConvTranspose": _conv_transpose,
    "Col2Im": _col2im,
    "MaxUnpool": _max_unpool,
}
