"""Dimensions that operators take for equal although their symbols do not say so: what a caller must not break."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.graph.nodes import Node
from foretell.graph.ops.contraction import CONTRACTION
from foretell.graph.ops.elementwise import ELEMENTWISE
from foretell.graph.ops.normalisation import NORMALISATION
from foretell.graph.optable import OPS
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import Load, Operand, scalars

BROADCASTING = ELEMENTWISE.keys() | CONTRACTION.keys() | NORMALISATION.keys()
"""Operators that read an operand along whole axes."""


def equal_dims(node: Node) -> list[tuple[Dim, Dim]]:
    """Pairs of dimensions of a node that must turn out equal.

    Add(x[n], y[m]) computes x[i] + y[i] for i < n     ->  (n, m)
    """
    if node.op == "Reshape":
        pairs = [(node.output.type.elements, node.present_inputs[0].type.elements)]
    elif node.op == "Concat":
        axis = node.attrs["axis"]
        shapes = [value.shape for value in (*node.present_inputs, node.output)]
        pairs = [
            (a, b) for shape in shapes for k, (a, b) in enumerate(zip(shape, shapes[-1], strict=True)) if k != axis
        ]
    elif node.op in BROADCASTING:
        pairs = list(_whole_axes(node))
    else:
        pairs = []
    return list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))


def _whole_axes(node: Node) -> Iterator[tuple[Dim, Dim]]:
    """(extent of the axis, dimension of the operand) of every load that runs along both."""
    define = OPS[node.op].define
    assert define is not None
    definition = define(tuple(None if value is None else value.type for value in node.inputs), node.attrs)
    for stage in definition.stages:
        extents: dict[object, Dim] = {axis.sym: axis.extent for axis in stage.axes + stage.reduction_axes}
        for load in scalars(stage.body):
            if isinstance(load, Load) and isinstance(load.source, Operand):
                value = node.inputs[load.source.index]
                assert value is not None
                for index, dim in zip(load.indices, value.shape, strict=True):
                    if index in extents:
                        yield extents[index], dim
