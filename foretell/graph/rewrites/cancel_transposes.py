from __future__ import annotations

from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, ints_attr
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.expr import Dim


def cancel_transposes(graph: Graph) -> Graph:
    """Join chains of transposes and of reshapes, and drop what is left if it does nothing.

    before: Transpose(Transpose(x){p}){q}       Reshape(Reshape(x))       Transpose that only moves axes of extent 1
    after:  Transpose(x){p[q]}, or x            Reshape(x), or x          Reshape

    declines when: a symbolic dimension moves, even one that may turn out to be 1.
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
    return None if before is None else [rewriter.reshape(before.present_inputs[0], shape)]


def _moves_nothing(shape: tuple[Dim, ...], permutation: tuple[int, ...]) -> bool:
    """Whether a transpose keeps the order of all axes but those of extent 1, so that memory stays as it is."""
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved == sorted(moved)
