"""If, Loop and Scan: subgraphs become closed graphs that receive what they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretell.frontend.onnx_node import OnnxNode, Unsupported, normal_axis
from foretell.frontend.operators.importer import Importer
from foretell.graph.nodes import Graph, Value
from foretell.ir import expr
from foretell.ir.dtypes import BOOL, I64
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import TensorType


def _joined(node: OnnxNode, left: TensorType, right: TensorType) -> TensorType:
    """The type of a value that is one or the other: a dimension that differs is only known at run time."""
    if left.dtype != right.dtype or left.rank != right.rank:
        raise Unsupported(f"its result is {left} or {right}, which differ in more than dimensions")
    dims = (a if a == b else node.scope.model.fresh_dim() for a, b in zip(left.shape, right.shape, strict=True))
    return TensorType(left.dtype, tuple(dims))


def _if(node: OnnxNode) -> tuple[Value, ...]:
    condition = node.array(0)
    if condition is not None:
        chosen = node.scope.import_inline(node.graph("then_branch" if condition.reshape(-1)[0] else "else_branch"))
        if len(chosen) != len(node.proto.output):
            raise ValueError(f"the branch has {len(chosen)} outputs, the node {len(node.proto.output)}")
        return chosen
    branches = [node.scope.import_subgraph(node.graph(name), (), name) for name in ("then_branch", "else_branch")]
    captured = list(dict.fromkeys(value for _, outer in branches for value in outer))
    graphs = [_with_inputs(graph, outer, captured) for graph, outer in branches]
    if len({len(graph.outputs) for graph in graphs} | {len(node.proto.output)}) != 1:
        raise ValueError("the branches and the node differ in their number of outputs")
    pairs = zip(graphs[0].outputs, graphs[1].outputs, strict=True)
    types = [_joined(node, then.type, otherwise.type) for then, otherwise in pairs]
    attrs = {"then_branch": graphs[0], "else_branch": graphs[1]}
    return node.build.typed("If", (node.input(0), *captured), attrs, types)


def _with_inputs(graph: Graph, outer: Sequence[Value], captured: Sequence[Value]) -> Graph:
    """The branch as a graph that takes all captured values, whether it reads them or not."""
    own = dict(zip(outer, graph.inputs, strict=True))
    inputs = tuple(
        own.get(value) or Value(f"unused_{number}_{value.name}", value.type) for number, value in enumerate(captured)
    )
    return replace(graph, inputs=inputs)


def _loop(node: OnnxNode) -> tuple[Value, ...]:
    proto = node.graph("body")
    states = [node.input(number) for number in range(2, len(node.inputs))]
    if len(proto.output) < 1 + len(states) or len(proto.output) - 1 != len(node.proto.output):
        raise ValueError(f"a body with {len(proto.output)} outputs does not fit {len(states)} loop-carried values")
    body, captured = _stable_body(node, [value.type for value in states])
    count = len(states)
    trips = None if node.optional(0) is None else node.dims(0)
    length: Dim = node.scope.model.fresh_dim()
    if trips is not None and node.optional(1) is None and _always_true(body):
        length = expr.maximum(trips[0], 0)
    results = [_joined(node, body.outputs[1 + k].type, value.type) for k, value in enumerate(states)]
    scanned = [TensorType(value.dtype, (length, *value.shape)) for value in body.outputs[1 + count :]]
    scanned = [_without_inner_symbols(node, type) for type in scanned]
    inputs = (node.optional(0), node.optional(1), *states, *captured)
    return node.build.typed("Loop", inputs, {"body": body, "states": count}, [*results, *scanned])


def _always_true(body: Graph) -> bool:
    """Whether the loop goes on whatever happens: its condition is passed through or constant."""
    condition = body.outputs[0]
    array = body.constants.get(condition)
    return condition == body.inputs[1] or (array is not None and bool(array.reshape(())))


def _stable_body(node: OnnxNode, types: list[TensorType]) -> tuple[Graph, list[Value]]:
    """The body of a Loop, with types that loop-carried values keep: a dimension that it changes is unknown.

    Found by importing the body until nothing changes; each round can only make more dimensions unknown.
    """
    model = node.scope.model
    while True:
        uses, nodes = len(model.operators), model.node_count
        given = (TensorType(I64, ()), TensorType(BOOL, ()), *types)
        body, captured = node.scope.import_subgraph(node.graph("body"), given, "body")
        after = [value.type for value in body.outputs[1 : 1 + len(types)]]
        joined = [type if type == new else _joined(node, type, new) for type, new in zip(types, after, strict=True)]
        if all(_same_but_unknown(a, b) for a, b in zip(types, joined, strict=True)):
            return body, captured
        del model.operators[uses:]
        model.forget_nodes(nodes)
        types = joined


def _same_but_unknown(before: TensorType, after: TensorType) -> bool:
    """Whether only dimensions differ that were unknown already."""
    pairs = zip(before.shape, after.shape, strict=True)
    return all(a == b or _is_unknown(a) for a, b in pairs)


def _is_unknown(dim: Dim) -> bool:
    """Whether a dimension depends on data; dimensions that the model names are at least 1."""
    return any(symbol.lo == 0 for symbol in expr.symbols(dim))


def _without_inner_symbols(node: OnnxNode, type: TensorType) -> TensorType:
    """Dimensions known only inside the body get a name of their own outside."""
    dims = (
        node.scope.model.fresh_dim() if number and _is_unknown(dim) else dim for number, dim in enumerate(type.shape)
    )
    return TensorType(type.dtype, tuple(dims))


def _scan(node: OnnxNode) -> tuple[Value, ...] | None:
    if node.version < 9:
        raise Unsupported("the batched Scan of opset 8")
    proto = node.graph("body")
    sequences_count = node.int("num_scan_inputs")
    states_count = len(node.inputs) - sequences_count
    outputs_count = len(proto.output) - states_count
    if states_count < 0 or sequences_count < 1 or outputs_count < 0 or len(proto.output) != len(node.proto.output):
        raise ValueError("the body does not fit the inputs and outputs")
    values = [node.input(number) for number in range(len(node.inputs))]
    states, sequences = values[:states_count], values[states_count:]
    zeros = (0,) * sequences_count
    axes = tuple(
        normal_axis(axis, value.type.rank)
        for axis, value in zip(node.ints("scan_input_axes") or zeros, sequences, strict=True)
    )
    slices = [
        TensorType(value.dtype, (*value.shape[:axis], *value.shape[axis + 1 :]))
        for value, axis in zip(sequences, axes, strict=True)
    ]
    body, captured = node.scope.import_subgraph(proto, (*(value.type for value in states), *slices), "body")
    length = sequences[0].shape[axes[0]]
    scanned = body.outputs[states_count:]
    output_axes = tuple(
        normal_axis(axis, value.type.rank + 1)
        for axis, value in zip(node.ints("scan_output_axes") or (0,) * outputs_count, scanned, strict=True)
    )
    types = [value.type for value in body.outputs[:states_count]]
    for value, axis in zip(scanned, output_axes, strict=True):
        types.append(TensorType(value.dtype, (*value.shape[:axis], length, *value.shape[axis:])))
    attrs = {
        "body": body,
        "states": states_count,
        "axes": axes,
        "directions": node.ints("scan_input_directions") or zeros,
        "output_axes": output_axes,
        "output_directions": node.ints("scan_output_directions") or (0,) * outputs_count,
    }
    return node.build.typed("Scan", (*states, *sequences, *captured), attrs, types)


CONTROL_IMPORTERS: dict[str, Importer] = {"If": _if, "Loop": _loop, "Scan": _scan}
