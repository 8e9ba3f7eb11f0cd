from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from foretell.graph.nodes import Array, Attr, Graph, Node, Value
from foretell.graph.ops.control import RANDOM_OPERATORS
from foretell.graph.rewrite import Rewriter, rewrite

SMALL_BYTES = 64 << 10
"""Constants below this size are compared by content; larger ones only by being the same memory."""


def merge_common_subexpressions(graph: Graph) -> Graph:
    """Compute once what is computed twice: nodes of one operator, inputs and attributes, and equal constants.

    before: a = Exp(x); b = Exp(x); return a + b
    after:  a = Exp(x); return a + a

    declines when: the operator draws random numbers, or runs subgraphs.
    """
    seen: dict[Rewriter, dict[Hashable, Node]] = {}

    def merge(node: Node, rewriter: Rewriter) -> tuple[Value, ...] | None:
        if node.subgraphs or node.attrs.get("op_type") in RANDOM_OPERATORS:
            return None
        first = seen.setdefault(rewriter, {}).setdefault(_node_key(node), node)
        return None if first is node else first.outputs

    return rewrite(_merge_constants(graph), merge)


def _node_key(node: Node) -> Hashable:
    attrs = frozenset((name, _attr_key(attr)) for name, attr in node.attrs.items())
    return node.op, node.inputs, attrs, tuple(value.type for value in node.outputs)


def _attr_key(attr: Attr) -> Hashable:
    """Equal for equal attributes only: 1 is not True, 0.0 is not -0.0, nan meets itself."""
    if isinstance(attr, tuple):
        return ("tuple", *(_attr_key(item) for item in attr))
    return type(attr).__name__, repr(attr)


def _merge_constants(graph: Graph) -> Graph:
    """Let readers of equal constants read the first of them; what is not read any more is dropped by the driver."""
    first: dict[Hashable, Value] = {}
    same: dict[Value, Value] = {}
    for value, array in graph.constants.items():
        kept = first.setdefault(_array_key(value, array), value)
        if kept is not value:
            same[value] = kept
    return _read_instead(graph, same) if same else graph


def _array_key(value: Value, array: Array) -> Hashable:
    if array.nbytes < SMALL_BYTES:
        return value.type, array.tobytes()
    return value.type, array.__array_interface__["data"], array.strides


def _read_instead(graph: Graph, same: Mapping[Value, Value]) -> Graph:
    def renamed(node: Node) -> Node:
        return replace(node, inputs=tuple(None if value is None else same.get(value, value) for value in node.inputs))

    return replace(
        graph,
        nodes=tuple(renamed(node) for node in graph.nodes),
        outputs=tuple(same.get(value, value) for value in graph.outputs),
        constants={value: array for value, array in graph.constants.items() if value not in same},
    )
