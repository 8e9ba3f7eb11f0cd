"""ONNX operators whose data says where an element goes: scatters, top-k, caches and reversed sequences."""

from __future__ import annotations

from foretell.frontend.onnx_node import OnnxNode, normal_axis
from foretell.frontend.operators.importer import Importer
from foretell.graph.nodes import Value
from foretell.ir import expr
from foretell.ir.dtypes import BOOL, I64
from foretell.ir.expr import Dim

MOST_PAIRS = 1 << 24
"""The canonical operators compare every element with every update; where that is more, the reference serves."""
LONGEST_RANKED = 1024
"""The canonical TopK compares all pairs of a row; longer rows are better sorted."""


def _affordable(pairs: Dim) -> bool:
    _, high = expr.bounds(pairs)
    return high is not None and high <= MOST_PAIRS


def _reduction(node: OnnxNode, data: Value) -> str:
    reduction = node.text("reduction", "none")
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise ValueError(f"unknown reduction {reduction!r}")
    if reduction != "none" and data.dtype == BOOL:
        raise ValueError("booleans have no arithmetic to reduce by")
    return reduction


def _scatter_elements(node: OnnxNode) -> Value | None:
    data, indices, updates = node.input(0), node.input(1), node.input(2)
    axis, reduction = node.axis(data.type.rank, default=0), _reduction(node, data)
    if indices.type.rank != data.type.rank:
        raise ValueError(f"indices {indices.type} need the rank of {data.type}")
    # For Scatter, the older name, onnx has no reference.
    if node.op_type == "ScatterElements" and not _affordable(data.type.elements * indices.shape[axis]):
        return None
    return node.build.op("ScatterElements", data, indices, updates, axis=axis, reduction=reduction)


def _scatter_nd(node: OnnxNode) -> Value | None:
    """before: indices [a, b, depth], updates [a, b, ...]     after: indices [a * b, depth], updates [a * b, ...]"""
    data, indices, updates = node.input(0), node.input(1), node.input(2)
    if not indices.type.rank:
        raise ValueError("the indices are a scalar")
    depth, lead, reduction = indices.shape[-1], indices.type.rank - 1, _reduction(node, data)
    if not isinstance(depth, int):
        return None
    if depth > data.type.rank or updates.type.rank != lead + data.type.rank - depth:
        raise ValueError(f"indices {indices.type} and updates {updates.type} do not fit {data.type}")
    count = expr.product(indices.shape[:-1])
    compared = data.shape[:depth] if reduction == "none" else data.shape
    if not _affordable(expr.product(compared) * count):
        return None
    build = node.build
    return build.op(
        "ScatterND",
        data,
        build.reshape(indices, (count, depth)),
        build.reshape(updates, (count, *data.shape[depth:])),
        reduction=reduction,
    )


def _tensor_scatter(node: OnnxNode) -> Value:
    """Element s of a cache is update s - start if there is such an update, and stays otherwise."""
    cache, update, starts, build = node.input(0), node.input(1), node.optional(2), node.build
    rank, mode = cache.type.rank, node.text("mode", "linear")
    axis = node.axis(rank, default=-2)
    if axis == 0 or update.type.rank != rank or mode not in ("linear", "circular"):
        raise ValueError(f"cannot write {update.type} to {cache.type} along axis {axis}, mode {mode!r}")
    column = tuple(dim if number == axis else 1 for number, dim in enumerate(cache.shape))
    place = build.op("Iota", shape=column, axis=axis, dtype=I64)
    if starts is not None:
        place = build.op("Sub", place, build.reshape(starts, (*starts.shape, *(1,) * (rank - 1))))
    if mode == "circular":
        place = build.op("Mod", place, build.op("Dims", values=(cache.shape[axis],), shape=(), dtype=I64))
    zero, end = build.scalar(0, I64), build.op("Dims", values=(update.shape[axis],), shape=(), dtype=I64)
    written = build.op("And", build.op("GreaterOrEqual", place, zero), build.op("Less", place, end))
    index = build.op("Broadcast", build.op("Where", written, place, zero), shape=cache.shape)
    return build.op("Where", written, build.op("GatherElements", update, index, axis=axis), cache)


def _reverse_sequence(node: OnnxNode) -> Value:
    """Element t of a sequence of length n is n - 1 - t of the input, as long as t < n."""
    x, lengths, build = node.input(0), node.input(1), node.build
    time, batch, rank = node.int("time_axis", 0), node.int("batch_axis", 1), x.type.rank
    if rank < 2 or {time, batch} != {0, 1}:
        raise ValueError(f"time_axis {time} and batch_axis {batch} of {x.type} must be 0 and 1")
    place = build.op("Iota", shape=(*x.shape[:2], *(1,) * (rank - 2)), axis=time, dtype=I64)
    length = build.reshape(lengths, (*lengths.shape, *(1,) * (rank - 1 - batch)))
    mirrored = build.op("Sub", build.op("Sub", length, build.scalar(1, I64)), place)
    index = build.op("Where", build.op("Less", place, length), mirrored, place)
    return build.op("GatherElements", x, build.op("Broadcast", index, shape=x.shape), axis=time)


def _top_k(node: OnnxNode) -> tuple[Value, ...] | None:
    x = node.input(0)
    axis = normal_axis(node.int("axis", -1), x.type.rank)
    wish = (node.int("k"),) if node.version < 10 else node.dims(1)
    extent = x.shape[axis]
    if wish is None or not isinstance(wish[0], int) or not isinstance(extent, int) or extent > LONGEST_RANKED:
        return None
    return node.build.ops("TopK", x, axis=axis, k=wish[0], largest=bool(node.int("largest", 1)))


PLACEMENT_IMPORTERS: dict[str, Importer] = {
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "ReverseSequence": _reverse_sequence,
    "TopK": _top_k,
}
