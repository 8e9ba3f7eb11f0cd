"""The graph IR: tensor operators over values, immutable and in topological order.

Semantics, once for all
- A `Value` is an SSA name with a type; inside one graph names are unique. Every value is an input, a constant,
  or the output of exactly one node.
- A `Node` applies a canonical operator (`graph/ops`) to values. An absent optional input is None. Everything that
  must be known to compile (axes, shapes, strides) is an attribute; everything that is data is an input.
- A graph is closed: subgraphs of control flow (`If`, `Loop`, `Scan`) receive what they use of the outer graph as
  explicit inputs.
- Constants are read-only arrays, usually mapped from the model file; no pass writes to them.
- Location is the ONNX node a node came from; passes keep it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim, Expr, Sym, symbols
from foretell.ir.tensor_expr import TensorType

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    type: TensorType

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    def __hash__(self) -> int:
        return hash(self.name)  # unique within a graph; a string keeps its hash, a type would be hashed every time

    def __str__(self) -> str:
        return f"%{self.name}"


Attr: TypeAlias = "bool | int | float | str | bytes | DType | Dim | Graph | tuple[Attr, ...] | None"


@dataclass(frozen=True, slots=True)
class Node:
    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Attr] = field(default_factory=lambda: MappingProxyType({}))
    location: str = ""

    @property
    def output(self) -> Value:
        """The only output."""
        assert len(self.outputs) == 1, f"{self.op} has {len(self.outputs)} outputs"
        return self.outputs[0]

    @property
    def present_inputs(self) -> tuple[Value, ...]:
        return tuple(value for value in self.inputs if value is not None)

    @property
    def symbols(self) -> frozenset[Sym]:
        """Symbols in the node's attributes: dimensions that it needs to know to run."""
        return _attr_symbols(tuple(self.attrs.values()))

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        return tuple(value for value in self.attrs.values() if isinstance(value, Graph))


@dataclass(frozen=True)
class Graph:
    """Inputs, constants and nodes in topological order; outputs may name any value, more than once."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array]
    output_names: tuple[str, ...]
    """What the caller knows the outputs by; values may be renamed and shared, these stay."""

    @cached_property
    def producers(self) -> Mapping[Value, Node]:
        """The node that makes each value."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def use_counts(self) -> Mapping[Value, int]:
        """How often each value is read, graph outputs included."""
        counts: dict[Value, int] = {}
        for node in self.nodes:
            for value in node.present_inputs:
                counts[value] = counts.get(value, 0) + 1
        for value in self.outputs:
            counts[value] = counts.get(value, 0) + 1
        return counts

    def walk(self) -> Iterator[Node]:
        """Every node, those of subgraphs included."""
        for node in self.nodes:
            yield node
            for subgraph in node.subgraphs:
                yield from subgraph.walk()

    @property
    def constant_bytes(self) -> int:
        return sum(array.nbytes for array in self.constants.values())

    def __str__(self) -> str:
        return _graph_text(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _attr_symbols(value: Attr) -> frozenset[Sym]:
    if isinstance(value, tuple):
        return frozenset(sym for item in value for sym in _attr_symbols(item))
    return symbols(value) if isinstance(value, Expr) else frozenset()


def _graph_text(graph: Graph) -> str:
    """The whole graph as text: deterministic, a line per value, large constants by shape only."""
    inputs = ", ".join(f"{value}: {value.type}" for value in graph.inputs)
    lines = [f"graph {graph.name}({inputs}) {{"]
    lines += [f"  {value}: {value.type} = {_array_text(array)}" for value, array in graph.constants.items()]
    for node in graph.nodes:
        lines += ["  " + line for line in _node_lines(node)]
    outputs = ", ".join(f"{name}={value}" for name, value in zip(graph.output_names, graph.outputs, strict=True))
    return "\n".join([*lines, f"  return {outputs}", "}"])


def _node_lines(node: Node) -> list[str]:
    outputs = ", ".join(f"{value}: {value.type}" for value in node.outputs)
    inputs = ", ".join("none" if value is None else str(value) for value in node.inputs)
    plain = [f"{key}={_attr_text(value)}" for key, value in node.attrs.items() if not isinstance(value, Graph)]
    lines = [f"{outputs} = {node.op}({inputs})" + (f" {{{', '.join(plain)}}}" if plain else "")]
    for key, value in node.attrs.items():
        if isinstance(value, Graph):
            first, *rest = _graph_text(value).splitlines()
            lines += [f"  {key}: {first}", *("  " + line for line in rest)]
    return lines


def _attr_text(value: Attr) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_attr_text(item) for item in value)})"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return str(value)


def _array_text(array: Array) -> str:
    if array.size <= 8:
        return f"constant {np.asarray(array).tolist()}"
    return f"constant <{array.nbytes} bytes>"
