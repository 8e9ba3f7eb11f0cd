"""How much data a model stores: counted from declared shapes, so that no weight is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from foretell.frontend.onnx_types import DTYPE_OF_ONNX

MAX_RANK = 64
"""More than any tensor has that could be used."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The elements of all stored tensors, and the bytes they take in the file."""

    count: int
    bytes: int


def count_parameters(model: ModelProto) -> Parameters:
    """Initializers and the tensors of `Constant` nodes, those of subgraphs and functions included."""
    nodes = (node for function in model.functions for node in function.node)
    sizes = [_size(tensor) for tensor in (*_tensors_of_graph(model.graph), *_tensors_of_nodes(nodes))]
    return Parameters(sum(count for count, _ in sizes), sum(size_bytes for _, size_bytes in sizes))


def _tensors_of_graph(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t"):
                yield attribute.t
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _tensors_of_graph(graph)


def _size(tensor: TensorProto) -> tuple[int, int]:
    dtype = DTYPE_OF_ONNX.get(tensor.data_type)
    # What is never imported was never checked: a million large dimensions would take minutes to multiply.
    is_sane = len(tensor.dims) <= MAX_RANK and min(tensor.dims, default=0) >= 0
    count = prod(tensor.dims) if dtype is not None and is_sane else 0
    return count, 0 if dtype is None else (count * dtype.bits + 7) // 8
