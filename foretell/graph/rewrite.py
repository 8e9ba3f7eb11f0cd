"""The one driver of local rewrites: a rule looks at one node at a time and says what stands in its place.

A rule sees nodes in topological order, with their inputs already rewritten, and a `Rewriter`: the new graph so far,
in which it may look upstream and add nodes. It returns the values that replace the node's outputs, or None to keep
the node. What is no longer used is dropped at the end. If no rule fired, the same graph object comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from foretell.graph.build import Builder
from foretell.graph.nodes import Array, Graph, Node, Value

SMALL_BYTES = 64 << 10
"""Constants that others read too are copied for one of their readers only below this size,"""
COPIES_BYTES = 64 << 20
"""and until they are this much: a constant may have any number of readers."""


class Rewriter(Builder):
    """The graph being rebuilt. Upstream questions are about the new graph, use counts about the old one."""

    def __init__(self, graph: Graph, shared: frozenset[int] = frozenset()) -> None:
        """`shared` are the identities of arrays that are constants of several graphs of one model."""
        super().__init__(graph.name)
        self.inputs = list(graph.inputs)
        self.constants = dict(graph.constants)
        self._old = graph
        self._names = {value.name for value in (*graph.inputs, *graph.constants)}
        self._names |= {value.name for node in graph.nodes for value in node.outputs}
        self._uses = dict(graph.use_counts)
        self._shared = shared
        self._copies_left = COPIES_BYTES

    def use_count(self, value: Value) -> int:
        """How often a value is read. Exact before a pass changes anything near it; after that, never too small."""
        array = self.constants.get(value)
        return self._uses.get(value, 1) + (array is not None and id(array) in self._shared)

    def may_copy(self, value: Value) -> bool:
        """Whether to make another array of a constant, for one reader: if it has no other, or is small."""
        size = self.constants[value].nbytes
        if self.has_one_use(value):
            return True
        if size >= SMALL_BYTES or size > self._copies_left:
            return False
        self._copies_left -= size
        return True

    def has_one_use(self, value: Value) -> bool:
        """Whether only one reader exists, so that absorbing the producer leaves nothing to be computed twice."""
        return self.use_count(value) <= 1

    def array(self, value: Value | None) -> Array | None:
        """The data of a constant."""
        return None if value is None else self.constants.get(value)


Rule: TypeAlias = Callable[[Node, Rewriter], Sequence[Value] | None]


def rewrite(graph: Graph, rule: Rule, shared: frozenset[int] | None = None) -> Graph:
    """Apply a rule to every node once, subgraphs first; `shared` is for these, see `Rewriter`."""
    shared = _shared_arrays(graph) if shared is None else shared
    rewriter = Rewriter(graph, shared)
    mapping: dict[Value, Value] = {}
    changed = False
    for old in graph.nodes:
        node = _with_inputs(map_subgraphs(old, lambda inner: rewrite(inner, rule, shared)), mapping)
        rewriter.location = node.location
        result = rule(node, rewriter)
        if result is None:
            changed |= node is not old
            rewriter.add(node)
            continue
        changed = True
        for before, after in zip(node.outputs, result, strict=True):
            assert before.type == after.type, f"{node.op} at {node.location}: {before.type} became {after.type}"
            mapping[before] = after
            rewriter._uses[after] = rewriter._uses.get(after, 0) + rewriter._uses.get(before, 0)  # pyright: ignore
    if not changed:
        return graph
    outputs = [mapping.get(value, value) for value in graph.outputs]
    return drop_unused(rewriter.finish(outputs, graph.output_names))


def _with_inputs(node: Node, mapping: Mapping[Value, Value]) -> Node:
    if not mapping or not any(value in mapping for value in node.present_inputs):
        return node
    return replace(node, inputs=tuple(None if value is None else mapping.get(value, value) for value in node.inputs))


def _shared_arrays(graph: Graph) -> frozenset[int]:
    """Identities of arrays that are constants of more than one graph: a branch has its own value for each."""
    counts: Counter[int] = Counter(id(array) for array in graph.constants.values())
    for node in graph.walk():
        for subgraph in node.subgraphs:
            counts.update(id(array) for array in subgraph.constants.values())
    return frozenset(array for array, count in counts.items() if count > 1)


def map_subgraphs(node: Node, function: Callable[[Graph], Graph]) -> Node:
    """The node with a pass applied to each of its subgraphs; the same node if none changed."""
    if not node.subgraphs:
        return node
    attrs = {key: function(value) if isinstance(value, Graph) else value for key, value in node.attrs.items()}
    if all(attrs[key] is value for key, value in node.attrs.items()):
        return node
    return replace(node, attrs=MappingProxyType(attrs))


def drop_unused(graph: Graph) -> Graph:
    """The graph without nodes and constants that no output needs; inputs stay, they are the interface."""
    needed: set[Value] = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value in needed for value in node.outputs):
            kept.append(node)
            needed.update(node.present_inputs)
    constants = {value: array for value, array in graph.constants.items() if value in needed}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), constants=MappingProxyType(constants))


def with_outputs(graph: Graph, values: tuple[Value, ...]) -> Graph:
    """What computes these values, as outputs by their own names."""
    return drop_unused(replace(graph, outputs=values, output_names=tuple(value.name for value in values)))
