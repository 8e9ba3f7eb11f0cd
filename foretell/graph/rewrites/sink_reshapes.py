from __future__ import annotations

from foretell.graph.match import interior
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.ops.elementwise import ELEMENTWISE, is_scalar_shape
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.expr import Dim


def sink_reshapes(graph: Graph) -> Graph:
    """Move reshapes below elementwise operators, so that pairs meet and cancel.

    before: Gelu(Reshape(x))      Reshape(x) + Reshape(y)
    after:  Reshape(Gelu(x))      Reshape(x + y)

    declines when: an operand of more than one element is not reshaped from the same shape, or its reshape has other
    readers.
    """
    return rewrite(graph, _sink)


def _sink(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op not in ELEMENTWISE:
        return None
    shapes = {x.shape for value in node.present_inputs if (x := _before(value, node, rewriter)) is not None}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    sources = [_source(value, node, shape, rewriter) for value in node.present_inputs]
    present = [value for value in sources if value is not None]
    if len(present) < len(sources):
        return None
    return [rewriter.op("Reshape", rewriter.op(node.op, *present, **node.attrs), shape=node.output.shape)]


def _before(value: Value, node: Node, rewriter: Rewriter) -> Value | None:
    """What an operand was before a reshape that is for this node alone, and that has the shape of the result."""
    reshape = interior(value, rewriter, "Reshape", uses=node.inputs.count(value))
    return reshape.present_inputs[0] if reshape is not None and value.shape == node.output.shape else None


def _source(value: Value, node: Node, shape: tuple[Dim, ...], rewriter: Rewriter) -> Value | None:
    source = _before(value, node, rewriter)
    if source is None and is_scalar_shape(value.shape) and value.type.rank <= len(shape):
        return value
    return source
