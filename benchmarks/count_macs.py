"""Multiply-accumulates of a model's convolutions and matrix products: what percentages of the peak are of."""

from __future__ import annotations

from math import prod

from onnx import ModelProto, NodeProto, helper, shape_inference

Shapes = dict[str, tuple[int, ...]]


def count_macs(model: ModelProto) -> int:
    """Requires fixed shapes; other operators count nothing, as is usual where models are compared."""
    graph = shape_inference.infer_shapes(model).graph
    shapes: Shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shapes[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    return sum(_node_macs(node, shapes) for node in graph.node)


def _node_macs(node: NodeProto, shapes: Shapes) -> int:
    """Every element of the output takes as many as the reduction is long."""
    match node.op_type:
        case "Conv":
            return prod(shapes[node.output[0]]) * prod(shapes[node.input[1]][1:])
        case "MatMul":
            return prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
        case "Gemm":
            attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            first = shapes[node.input[0]]
            return prod(shapes[node.output[0]]) * first[0 if attributes.get("transA") else 1]
        case _:
            return 0
