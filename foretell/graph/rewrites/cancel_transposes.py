from __future__ import annotations

from collections.abc import Iterable

from foretell.graph.match import interior
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, ints_attr
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir import expr
from foretell.ir.expr import Dim


def cancel_transposes(graph: Graph) -> Graph:
    """Join chains of transposes and of reshapes, and drop what is left if it does nothing.

    before: Transpose(Transpose(x){p}){q}       Reshape(Reshape(x))       Transpose that only moves axes of extent 1
    after:  Transpose(x){p[q]}, or x            Reshape(x), or x          Reshape

    before: x[a, b, c, d] as [a * b, c, d], transposed to [a * b, d, c], as [a, b, d, c]
    after:  x[a, b, c, d] transposed to [a, b, d, c]

    declines when: a symbolic dimension moves, even one that may turn out to be 1; a transpose between reshapes has
    other readers.
    """
    return rewrite(graph, _cancel)


def _cancel(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op == "Transpose":
        return _cancel_transpose(node, rewriter)
    return _cancel_reshape(node, rewriter) if node.op == "Reshape" else None


def _cancel_transpose(node: Node, rewriter: Rewriter) -> list[Value] | None:
    x, permutation = joined(node, rewriter)
    if _moves_nothing(x.shape, permutation):
        return [rewriter.reshape(x, node.output.shape)]
    return None if x == node.inputs[0] else [rewriter.transpose(x, permutation)]


def joined(transpose: Node, rewriter: Rewriter) -> tuple[Value, tuple[int, ...]]:
    """(x, permutation) of a transpose and the one before it, if there is one."""
    x, permutation = transpose.present_inputs[0], ints_attr(transpose.attrs, "perm")
    before = rewriter.producer(x, "Transpose")
    if before is None:
        return x, permutation
    inner = ints_attr(before.attrs, "perm")
    return before.present_inputs[0], tuple(inner[axis] for axis in permutation)


def _cancel_reshape(node: Node, rewriter: Rewriter) -> list[Value] | None:
    x, shape = node.present_inputs[0], dims_attr(node.attrs, "shape")
    if x.shape == shape:
        return [x]
    before = rewriter.producer(x, "Reshape")
    if before is not None:
        return [rewriter.reshape(before.present_inputs[0], shape)]
    return _cancel_around_transpose(node, rewriter)


def _cancel_around_transpose(node: Node, rewriter: Rewriter) -> list[Value] | None:
    """A transpose of whole groups of axes, which a reshape before it joins and one after it parts again."""
    transpose = interior(node.inputs[0], rewriter, "Transpose")
    join = None if transpose is None else rewriter.producer(transpose.inputs[0], "Reshape")
    if transpose is None or join is None:
        return None
    x = join.present_inputs[0]
    groups = _groups(x.shape, join.output.shape)
    if groups is None:
        return None
    permutation = tuple(axis for group in ints_attr(transpose.attrs, "perm") for axis in groups[group])
    parted = _wide(x.shape[axis] for axis in permutation) == _wide(node.output.shape)
    return [rewriter.reshape(rewriter.transpose(x, permutation), node.output.shape)] if parted else None


def _wide(shape: Iterable[Dim]) -> list[Dim]:
    """Dimensions without those of extent 1, which may stand anywhere."""
    return [dim for dim in shape if dim != 1]


def _groups(source: tuple[Dim, ...], target: tuple[Dim, ...]) -> list[range] | None:
    """The run of axes of `source` that each axis of `target` joins, or None if it does more than that.

    before: (2, 3, 5, 7), (6, 5, 7)     after: 0 1 | 2 | 3
    """
    groups: list[range] = []
    start = 0
    for dim in target:
        end = start + 1
        while end < len(source) and expr.product(source[start:end]) != dim:
            end += 1
        groups.append(range(start, end))
        start = end
    joined = [expr.product(source[group.start : group.stop]) for group in groups]
    return groups if start == len(source) and joined == list(target) else None


def _moves_nothing(shape: tuple[Dim, ...], permutation: tuple[int, ...]) -> bool:
    """Whether a transpose keeps the order of all axes but those of extent 1, so that memory stays as it is."""
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved == sorted(moved)
