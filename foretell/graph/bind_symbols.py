"""Giving symbolic dimensions their values: types are inferred anew, as a dimension that is known says more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from foretell.graph.nodes import Attr, Graph, Node, Value
from foretell.graph.optable import OPS
from foretell.ir.expr import Dim, Expr, Sym, substitute
from foretell.ir.tensor_expr import TensorType


def bind_symbols(graph: Graph, bindings: Mapping[Sym, Dim]) -> Graph:
    """The graph with symbols replaced in all types and attributes, subgraphs included.

    Raises ValueError if an operator's operands cannot have the dimensions they get.
    """
    values: dict[Value, Value] = {value: value for value in graph.constants}
    inputs = tuple(values.setdefault(value, _bound_value(value, bindings)) for value in graph.inputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        bound = _bound_node(node, values, bindings)
        values.update(zip(node.outputs, bound.outputs, strict=True))
        nodes.append(bound)
    return replace(graph, inputs=inputs, outputs=tuple(values[value] for value in graph.outputs), nodes=tuple(nodes))


def _bound_node(node: Node, values: Mapping[Value, Value], bindings: Mapping[Sym, Dim]) -> Node:
    inputs = tuple(None if value is None else values[value] for value in node.inputs)
    attrs = {name: _bound_attr(attr, bindings) for name, attr in node.attrs.items()}
    definition = OPS[node.op]
    types = [_bound_type(value.type, bindings) for value in node.outputs]
    if definition.define is not None:
        types = definition.infer(tuple(None if value is None else value.type for value in inputs), attrs)
    outputs = tuple(replace(value, type=type) for value, type in zip(node.outputs, types, strict=True))
    return replace(node, inputs=inputs, outputs=outputs, attrs=MappingProxyType(attrs))


def _bound_value(value: Value, bindings: Mapping[Sym, Dim]) -> Value:
    return replace(value, type=_bound_type(value.type, bindings))


def _bound_type(type: TensorType, bindings: Mapping[Sym, Dim]) -> TensorType:
    return replace(type, shape=tuple(substitute(dim, bindings) for dim in type.shape))


def _bound_attr(attr: Attr, bindings: Mapping[Sym, Dim]) -> Attr:
    if isinstance(attr, Graph):
        return bind_symbols(attr, bindings)
    if isinstance(attr, tuple):
        return tuple(_bound_attr(item, bindings) for item in attr)
    return substitute(attr, bindings) if isinstance(attr, Expr) else attr
