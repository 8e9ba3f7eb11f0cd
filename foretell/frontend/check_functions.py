"""Model-local functions, judged before any of them is expanded: a few that call one another twice would fill memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from foretell.support.errors import CyclicGraph, DuplicateName, NestingTooDeep, TooManyNodes
from foretell.support.limits import Limits

FEW_OPERANDS, MANY_ELEMENTS = 8, 64
FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""


def functions_of(model: ModelProto) -> dict[FunctionKey, FunctionProto]:
    """The model's functions; no two may have the same name."""
    functions: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise DuplicateName(
                f"the function {function.name[:80]!r} is defined twice",
                where=f"domain {function.domain[:80]!r}",
                expected="every function defined once",
                got="a second definition",
                hint="the exporter that wrote this file is at fault; rename one of them",
            )
        functions[key] = function
    return functions


def function_called(node: NodeProto) -> FunctionKey:
    """The function that a node would call, if the model has it."""
    return (node.domain, node.op_type, node.overload)


def node_weight(node: NodeProto, is_inner: bool) -> int:
    """How many nodes a node counts for: one, unless it has so many operands that it becomes a node for each.

    An inner one, of a function or a subgraph, may be imported many times, so that long attributes count too.
    """
    operands = max(len(node.input), len(node.output), len(node.attribute))
    elements = sum(len(a.ints) + len(a.floats) + len(a.strings) for a in node.attribute) if is_inner else 0
    return max(1, operands - FEW_OPERANDS) + elements // MANY_ELEMENTS


def body_weight(body: GraphProto | FunctionProto) -> int:
    """How many nodes the rest of a function or subgraph counts for; nothing, if its lists are short."""
    lists = len(body.input) + len(body.output) + len(body.value_info)
    if isinstance(body, GraphProto):
        lists += len(body.initializer)
    else:
        lists += len(body.attribute) + len(body.attribute_proto) + len(body.opset_import)
    return lists // FEW_OPERANDS


def check_functions(model: ModelProto, functions: Mapping[FunctionKey, FunctionProto], limits: Limits) -> int:
    """The nodes of the model with its functions expanded; refuses too many of them, and functions without end."""
    counter = _Counter(functions, limits)
    for key in functions:
        counter.count_function(key, depth=0)
    return counter.count(model.graph.node, depth=0).nodes


@dataclass(slots=True)
class _Size:
    """Nodes of a function with all that it calls, and how deep it calls."""

    nodes: int = 0
    height: int = 0


@dataclass(slots=True)
class _Counter:
    functions: Mapping[FunctionKey, FunctionProto]
    limits: Limits
    sizes: dict[FunctionKey, _Size] = field(default_factory=dict[FunctionKey, _Size])
    open: set[FunctionKey] = field(default_factory=set[FunctionKey])

    def count(self, nodes: Iterable[NodeProto], depth: int) -> _Size:
        """The size of some nodes that stand `depth` functions and subgraphs deep."""
        self._check_depth(depth)
        total = _Size()
        for node in nodes:
            total.nodes += node_weight(node, depth > 0)
            self._add(total, self.count_function(function_called(node), depth))
            for attribute in node.attribute:
                for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                    total.nodes += body_weight(graph)
                    self._add(total, self.count(graph.node, depth + 1))
        return total

    def _add(self, total: _Size, inner: _Size) -> None:
        total.nodes += inner.nodes
        if inner.nodes:
            total.height = max(total.height, inner.height + 1)
        if total.nodes > self.limits.nodes:
            raise TooManyNodes(
                "the model has too many nodes",
                expected=f"at most {self.limits.nodes}, expanded functions included",
                got=f"{total.nodes} or more",
                hint="raise Limits.nodes if you trust the file",
            )

    def count_function(self, key: FunctionKey, depth: int) -> _Size:
        """The size of a function, counted once however often it is called; nothing if there is no such function."""
        if key not in self.functions:
            return _Size()
        if key in self.open:
            raise CyclicGraph(
                f"the function {key[1][:80]!r} calls itself",
                where=f"domain {key[0][:80]!r}",
                expected="functions that end",
                got="a call of itself, directly or through another",
                hint="ONNX has no recursion: the file is damaged, or was made to do harm",
            )
        if key not in self.sizes:
            self.open.add(key)
            self.sizes[key] = self.count(self.functions[key].node, depth + 1)
            self.sizes[key].nodes += body_weight(self.functions[key])
            self.open.discard(key)
        self._check_depth(depth + 1 + self.sizes[key].height)
        return self.sizes[key]

    def _check_depth(self, depth: int) -> None:
        if depth > self.limits.depth:
            raise NestingTooDeep(
                "subgraphs or functions are nested too deeply",
                expected=f"at most {self.limits.depth} levels",
                got="more",
                hint="raise Limits.depth if you trust the file",
            )
