"""ONNX reductions."""

from __future__ import annotations

from foretell.frontend.onnx_node import OnnxNode, normal_axes
from foretell.frontend.operators.importer import Importer
from foretell.frontend.reference_node import make_reference_node
from foretell.graph.nodes import Value

AXES_ARE_AN_INPUT_SINCE = {"ReduceSum": 13}
"""Operator set from which axes are an input; 18 for all others."""


def reduce_axes(node: OnnxNode) -> tuple[int, ...] | None:
    """The axes to reduce: given, or all; none at all for noop_with_empty_axes; None if they are data."""
    rank = node.input(0).type.rank
    if node.version < AXES_ARE_AN_INPUT_SINCE.get(node.op_type, 18):
        axes = node.ints("axes")
    else:
        dims = node.dims(1)
        if dims is None and node.optional(1) is not None:
            return None
        axes = None if dims is None else tuple(dim for dim in dims if isinstance(dim, int))
    if not axes:
        return () if node.int("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(normal_axes(axes, rank)))


def reduce_at_run_time(node: OnnxNode) -> tuple[Value | None, ...]:
    """Axes that are data: the reference runs it, and only the number of axes says what rank comes out."""
    rank, count = node.input(0).type.rank, node.input(1).type.elements
    if node.int("keepdims", 1):
        return make_reference_node(node, rank)
    if not isinstance(count, int):
        return make_reference_node(node)
    noop = node.int("noop_with_empty_axes", 0)
    return make_reference_node(node, rank - count if count or noop else 0)


def _reduce(op: str, before: str = "", after: str = "") -> Importer:
    """A reduction with an elementwise operator before or after it: ReduceL2 is Sqrt(ReduceSum(x * x))."""

    def apply(node: OnnxNode) -> Value | tuple[Value | None, ...]:
        x, axes = node.input(0), reduce_axes(node)
        if axes is None:
            return reduce_at_run_time(node)
        build = node.build
        if before == "Square":
            x = build.op("Mul", x, x)
        elif before:
            x = build.op(before, x)
        if axes:
            x = build.op(op, x, axes=axes, keepdims=bool(node.int("keepdims", 1)))
        return build.op(after, x) if after else x

    return apply


def _log_sum_exp(node: OnnxNode) -> Value | tuple[Value | None, ...]:
    """max + log(sum(exp(x - max))), which does not overflow; an infinite max stands for itself."""
    x, axes = node.input(0), reduce_axes(node)
    if axes is None:
        return reduce_at_run_time(node)
    build, keep = node.build, bool(node.int("keepdims", 1))
    if not axes:
        return x
    largest = build.op("ReduceMax", x, axes=axes, keepdims=True)
    finite = build.op(
        "Where", build.op("IsInf", largest, detect_negative=True, detect_positive=True), node.scalar(0, x), largest
    )
    total = build.op("ReduceSum", build.op("Exp", build.op("Sub", x, finite)), axes=axes, keepdims=True)
    result = build.op("Add", build.op("Log", total), finite)
    shape = tuple(dim for axis, dim in enumerate(result.shape) if keep or axis not in axes)
    return build.reshape(result, shape)


def _arg(op: str) -> Importer:
    def apply(node: OnnxNode) -> Value:
        x = node.input(0)
        return node.build.op(
            op,
            x,
            axis=node.axis(x.type.rank, default=0),
            keepdims=bool(node.int("keepdims", 1)),
            select_last_index=bool(node.int("select_last_index", 0)),
        )

    return apply


REDUCTION_IMPORTERS: dict[str, Importer] = {
    **{name: _reduce(name) for name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin")},
    "ReduceL1": _reduce("ReduceSum", before="Abs"),
    "ReduceL2": _reduce("ReduceSum", before="Square", after="Sqrt"),
    "ReduceSumSquare": _reduce("ReduceSum", before="Square"),
    "ReduceLogSum": _reduce("ReduceSum", after="Log"),
    "ReduceLogSumExp": _log_sum_exp,
    "ArgMax": _arg("ArgMax"),
    "ArgMin": _arg("ArgMin"),
}
