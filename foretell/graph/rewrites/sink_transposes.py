from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from foretell.graph.nodes import Attr, Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, int_attr, ints_attr
from foretell.graph.ops.elementwise import ELEMENTWISE, is_scalar_shape
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.graph.rewrites.cancel_transposes import joined

Permutation: TypeAlias = tuple[int, ...]


def sink_transposes(graph: Graph) -> Graph:
    """Move transposes below operators that do not mind the order of axes, so that pairs meet and cancel.

    before: Relu(Transpose(x) + Transpose(y))      ReduceSum(Transpose(x){perm}){axes}
    after:  Transpose(Relu(x + y))                 Transpose(ReduceSum(x){perm[axes]})

    Works through elementwise operators, reductions, softmax, slices, pads and concatenations. There are never more
    transposes after than before: all operands come transposed alike, or hold one element, or are constant.
    declines when: a transpose has other readers, or the operator makes its operand larger.
    """
    return rewrite(graph, _sink)


def _sink(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op == "Transpose":
        # A pair that meets is joined before it can be parted again.
        x, joint = joined(node, rewriter)
        return None if x == node.inputs[0] else [rewriter.transpose(x, joint)]
    below = _BELOW.get(node.op)
    permutation = None if below is None else _permutation(node, rewriter)
    sources = None if permutation is None else _sources(node, permutation, rewriter)
    if below is None or permutation is None or sources is None:
        return None
    attrs, after = below(node, permutation)
    return [rewriter.transpose(rewriter.op(node.op, *sources, **{**node.attrs, **attrs}), after)]


def _transpose(value: Value, node: Node, rewriter: Rewriter) -> Node | None:
    """The Transpose that makes an operand, if this node alone reads it."""
    reads = node.inputs.count(value)
    return rewriter.producer(value, "Transpose") if rewriter.use_count(value) == reads else None


def _permutation(node: Node, rewriter: Rewriter) -> Permutation | None:
    """The permutation that the transposed operands have in common."""
    for value in node.present_inputs:
        transpose = _transpose(value, node, rewriter)
        if transpose is not None and (node.op not in ELEMENTWISE or value.shape == node.output.shape):
            return ints_attr(transpose.attrs, "perm")
    return None


def _sources(node: Node, permutation: Permutation, rewriter: Rewriter) -> list[Value] | None:
    """The operands as they were before the transpose, or None if one of them was not transposed."""
    sources = [_source(value, node, permutation, rewriter) for value in node.present_inputs]
    present = [value for value in sources if value is not None]
    return present if len(present) == len(sources) else None


def _source(value: Value, node: Node, permutation: Permutation, rewriter: Rewriter) -> Value | None:
    transpose = _transpose(value, node, rewriter)
    if transpose is not None and ints_attr(transpose.attrs, "perm") == permutation:
        return transpose.present_inputs[0]
    if is_scalar_shape(value.shape) and value.type.rank <= len(permutation) and node.op != "Concat":
        return value
    return _transposed_back(value, permutation, rewriter)


def _transposed_back(value: Value, permutation: Permutation, rewriter: Rewriter) -> Value | None:
    """A constant in the order of axes before the transpose."""
    array, rank = rewriter.array(value), len(permutation)
    if array is None or array.ndim > rank or not rewriter.may_copy(value):
        return None
    aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return rewriter.constant(np.ascontiguousarray(aligned.transpose(_inverse(permutation))), value.name)


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


# --- what becomes of an operator's attributes, and the permutation that is left ------------------------------------

Below: TypeAlias = Callable[[Node, Permutation], tuple[dict[str, Attr], Permutation]]


def _unchanged(node: Node, permutation: Permutation) -> tuple[dict[str, Attr], Permutation]:
    return {}, permutation


def _axis(node: Node, permutation: Permutation) -> tuple[dict[str, Attr], Permutation]:
    return {"axis": permutation[int_attr(node.attrs, "axis")]}, permutation


def _per_axis(*names: str) -> Below:
    """Attributes that hold one entry per axis."""

    def below(node: Node, permutation: Permutation) -> tuple[dict[str, Attr], Permutation]:
        order = _inverse(permutation)
        return {name: tuple(dims_attr(node.attrs, name)[axis] for axis in order) for name in names}, permutation

    return below


def _reduction(node: Node, permutation: Permutation) -> tuple[dict[str, Attr], Permutation]:
    axes = ints_attr(node.attrs, "axes")
    inner: tuple[Attr, ...] = tuple(sorted(permutation[axis] for axis in axes))
    return {"axes": inner}, _kept(permutation, axes, bool(node.attrs["keepdims"]))


def _arg_extreme(node: Node, permutation: Permutation) -> tuple[dict[str, Attr], Permutation]:
    axis = int_attr(node.attrs, "axis")
    return {"axis": permutation[axis]}, _kept(permutation, (axis,), bool(node.attrs["keepdims"]))


def _kept(permutation: Permutation, axes: Sequence[int], keepdims: bool) -> Permutation:
    """The order of the axes that a reduction leaves.

    before: permutation (2, 0, 1), axis 1 reduced     after: (1, 0), as axes 2 and 1 are left in this order
    """
    if keepdims:
        return permutation
    left = [source for axis, source in enumerate(permutation) if axis not in axes]
    return tuple(sorted(left).index(source) for source in left)


_BELOW: dict[str, Below] = {
    **{name: _unchanged for name in ELEMENTWISE},
    **{name: _axis for name in ("Softmax", "LogSoftmax", "Concat")},
    **{f"Reduce{name}": _reduction for name in ("Sum", "Mean", "Prod", "Max", "Min")},
    **{name: _arg_extreme for name in ("ArgMax", "ArgMin")},
    "Slice": _per_axis("starts", "steps", "shape"),
    "Pad": _per_axis("before", "after"),
}
