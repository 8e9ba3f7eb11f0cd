"""What If, Loop and Scan do, given a way to run a graph: shared by the evaluator and by compiled models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from foretell.graph.nodes import Array, Graph, Node
from foretell.graph.ops.attrs import graph_attr, int_attr, ints_attr
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import EvaluationError

RunGraph: TypeAlias = Callable[[Graph, list[Array]], list[Array]]
MAX_LOOP_TRIPS = 1 << 24
"""A Loop without an end in the model is stopped here."""


def is_control_flow(node: Node) -> bool:
    return node.op in _RUNNERS


def run_control_flow(node: Node, inputs: Sequence[Array | None], run: RunGraph) -> list[Array]:
    """The outputs of a control-flow node, whose subgraphs `run` runs."""
    return _RUNNERS[node.op](node, inputs, run)


def _required(array: Array | None) -> Array:
    assert array is not None
    return array


def _run_if(node: Node, inputs: Sequence[Array | None], run: RunGraph) -> list[Array]:
    chosen = "then_branch" if bool(_required(inputs[0]).reshape(())) else "else_branch"
    return run(graph_attr(node.attrs, chosen), [_required(array) for array in inputs[1:]])


def _run_loop(node: Node, inputs: Sequence[Array | None], run: RunGraph) -> list[Array]:
    body, states = graph_attr(node.attrs, "body"), int_attr(node.attrs, "states")
    trips = MAX_LOOP_TRIPS if inputs[0] is None else int(inputs[0].reshape(()))
    condition = np.asarray(True) if inputs[1] is None else inputs[1].reshape(())
    state = [_required(array) for array in inputs[2 : 2 + states]]
    captured = [_required(array) for array in inputs[2 + states :]]
    scanned: list[list[Array]] = [[] for _ in body.outputs[1 + states :]]
    iteration = 0
    while iteration < trips and bool(condition):
        if iteration == MAX_LOOP_TRIPS:
            raise EvaluationError(
                "a Loop did not end",
                where=node.location,
                expected=f"at most {MAX_LOOP_TRIPS} iterations",
                got="more",
                hint="its condition never becomes false",
            )
        results = run(body, [np.asarray(iteration, np.int64), condition, *state, *captured])
        condition, state = results[0].reshape(()), results[1 : 1 + states]
        for rows, row in zip(scanned, results[1 + states :], strict=True):
            rows.append(row)
        iteration += 1
    stacked = zip(scanned, body.outputs[1 + states :], strict=True)
    return [*state, *(_stack(rows, value.type, 0) for rows, value in stacked)]


def _run_scan(node: Node, inputs: Sequence[Array | None], run: RunGraph) -> list[Array]:
    attrs = node.attrs
    body, states, axes = graph_attr(attrs, "body"), int_attr(attrs, "states"), ints_attr(attrs, "axes")
    arrays = [_required(array) for array in inputs]
    state, sequences = arrays[:states], arrays[states : states + len(axes)]
    captured = arrays[states + len(axes) :]
    directions, output_directions = ints_attr(attrs, "directions"), ints_attr(attrs, "output_directions")
    length = sequences[0].shape[axes[0]]
    scanned: list[list[Array]] = [[] for _ in body.outputs[states:]]
    for step in range(length):
        slices = [
            np.take(sequence, length - 1 - step if backward else step, axis)
            for sequence, axis, backward in zip(sequences, axes, directions, strict=True)
        ]
        results = run(body, [*state, *slices, *captured])
        state = results[:states]
        for rows, row in zip(scanned, results[states:], strict=True):
            rows.append(row)
    outputs = list(state)
    for number, (rows, value) in enumerate(zip(scanned, body.outputs[states:], strict=True)):
        ordered = rows[::-1] if output_directions[number] else rows
        outputs.append(_stack(ordered, value.type, ints_attr(attrs, "output_axes")[number]))
    return outputs


def _stack(rows: list[Array], type: TensorType, axis: int) -> Array:
    if rows:
        return np.stack(rows, axis)
    shape = [dim if isinstance(dim, int) else 0 for dim in type.shape]
    shape.insert(axis, 0)
    return np.empty(shape, type.dtype.numpy)


_RUNNERS = {"If": _run_if, "Loop": _run_loop, "Scan": _run_scan}
