"""A plain evaluator of graphs: the oracle, the engine of constant folding, and the slow path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretell.graph.interpret import evaluate_dim, interpret
from foretell.graph.nodes import Array, Attr, Graph, Node, Value
from foretell.graph.ops.attrs import graph_attr, int_attr, ints_attr
from foretell.graph.optable import OPS
from foretell.graph.reference import run_reference
from foretell.ir import dtypes
from foretell.ir.expr import Dim, Expr, Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import EvaluationError, InputError

MAX_LOOP_TRIPS = 1 << 24
"""A Loop without an end in the model is stopped here."""


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The graph's outputs by name, for inputs by name; symbolic dimensions are taken from the inputs' shapes."""
    known = {value.name for value in graph.inputs}
    for name in feeds:
        if name not in known:
            raise InputError(
                f"the model has no input {name!r}", expected=", ".join(sorted(known)), got=name, hint="check the name"
            )
    arrays = [_checked_feed(value, feeds) for value in graph.inputs]
    return dict(zip(graph.output_names, evaluate_values(graph, arrays), strict=True))


def evaluate_values(graph: Graph, arrays: Sequence[Array], outer: Mapping[Sym, int] | None = None) -> list[Array]:
    """The graph's outputs in order, for inputs in order; `outer` binds symbols of an enclosing graph."""
    symbols: dict[Sym, int] = dict(outer or {})
    values: dict[Value, Array] = dict(graph.constants)
    for value, array in zip(graph.inputs, arrays, strict=True):
        _bind(value, array, symbols)
        values[value] = array
    last_use = _last_uses(graph)
    for number, node in enumerate(graph.nodes):
        inputs = [None if value is None else values[value] for value in node.inputs]
        for value, array in zip(node.outputs, evaluate_node(node, inputs, symbols), strict=True):
            _bind(value, array, symbols)
            values[value] = array
        for value in last_use.get(number, ()):
            values.pop(value, None)
    return [values[value] for value in graph.outputs]


def evaluate_node(node: Node, inputs: Sequence[Array | None], symbols: Mapping[Sym, int]) -> list[Array]:
    """One node on concrete arrays."""
    if node.op in _CONTROL:
        return _CONTROL[node.op](node, inputs, symbols)
    if node.op == "Reshape":
        # The definition says the same element by element; this is the one place where speed matters more.
        assert inputs[0] is not None
        shape = tuple(evaluate_dim(dim, symbols) for dim in node.output.shape)
        if np.prod(shape, dtype=object) != inputs[0].size:
            raise _disagreement(node.output, shape, inputs[0].shape)
        return [np.ascontiguousarray(inputs[0]).reshape(shape)]
    define = OPS[node.op].define
    assert define is not None, f"{node.op} has no definition"
    pairs = zip(node.inputs, inputs, strict=True)
    operands = tuple(None if value is None else _concrete(value, array) for value, array in pairs)
    attrs = {name: _bound(attr, symbols) for name, attr in node.attrs.items()}
    return interpret(define(operands, attrs), inputs, symbols)


def _concrete(value: Value, array: Array | None) -> TensorType:
    assert array is not None
    return TensorType(value.dtype, array.shape)


def _bound(attr: Attr, symbols: Mapping[Sym, int]) -> Attr:
    if isinstance(attr, tuple):
        return tuple(_bound(item, symbols) for item in attr)
    return evaluate_dim(attr, symbols) if isinstance(attr, Expr) else attr


def _checked_feed(value: Value, feeds: Mapping[str, Array]) -> Array:
    if value.name not in feeds:
        raise InputError(
            f"input {value.name!r} is missing",
            expected=f"{value.name}: {value.type}",
            got=", ".join(sorted(feeds)) or "nothing",
            hint="pass one array for every input of the model",
        )
    array = np.asarray(feeds[value.name])
    if dtypes.try_from_numpy(array.dtype) != value.dtype or array.ndim != value.type.rank:
        raise InputError(
            f"input {value.name!r} has the wrong type",
            expected=str(value.type),
            got=f"{array.dtype}{list(array.shape)}",
            hint=f"convert it, for example with .astype({value.dtype.numpy.name!r})",
        )
    return array


def _bind(value: Value, array: Array, symbols: dict[Sym, int]) -> None:
    """Give symbols of a value's shape their numbers; a shape that contradicts its type is an error."""
    for dim, extent in zip(value.shape, array.shape, strict=True):
        expected = symbols.setdefault(dim, extent) if isinstance(dim, Sym) else dim
        if (isinstance(expected, int) and expected != extent) or not _allows(dim, extent):
            raise _disagreement(value, value.shape, array.shape)


def _allows(dim: Dim, extent: int) -> bool:
    """Whether a symbol may stand for this number."""
    if not isinstance(dim, Sym):
        return True
    return dim.lo <= extent and (dim.hi is None or extent <= dim.hi) and extent % dim.multiple_of == 0


def _disagreement(value: Value, expected: tuple[Dim, ...], got: tuple[int, ...]) -> InputError:
    return InputError(
        f"the shape of {value.name!r} disagrees with the model",
        expected=str(list(expected)),
        got=str(list(got)),
        hint="dimensions of one name must be equal in all inputs",
    )


def _last_uses(graph: Graph) -> dict[int, list[Value]]:
    """The values that no node after number n reads, so that memory stays small."""
    last: dict[Value, int] = {}
    for number, node in enumerate(graph.nodes):
        for value in node.present_inputs:
            last[value] = number
    for value in graph.outputs:
        last.pop(value, None)
    uses: dict[int, list[Value]] = {}
    for value, number in last.items():
        if value not in graph.constants:
            uses.setdefault(number, []).append(value)
    return uses


# --- control flow --------------------------------------------------------------------------------------------


def _required(array: Array | None) -> Array:
    assert array is not None
    return array


def _run_if(node: Node, inputs: Sequence[Array | None], symbols: Mapping[Sym, int]) -> list[Array]:
    chosen = "then_branch" if bool(_required(inputs[0]).reshape(())) else "else_branch"
    return evaluate_values(graph_attr(node.attrs, chosen), [_required(array) for array in inputs[1:]], symbols)


def _run_loop(node: Node, inputs: Sequence[Array | None], symbols: Mapping[Sym, int]) -> list[Array]:
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
        results = evaluate_values(body, [np.asarray(iteration, np.int64), condition, *state, *captured], symbols)
        condition, state = results[0].reshape(()), results[1 : 1 + states]
        for rows, row in zip(scanned, results[1 + states :], strict=True):
            rows.append(row)
        iteration += 1
    stacked = zip(scanned, body.outputs[1 + states :], strict=True)
    return [*state, *(_stack(rows, value.type, 0) for rows, value in stacked)]


def _run_scan(node: Node, inputs: Sequence[Array | None], symbols: Mapping[Sym, int]) -> list[Array]:
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
        results = evaluate_values(body, [*state, *slices, *captured], symbols)
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


def _run_onnx(node: Node, inputs: Sequence[Array | None], symbols: Mapping[Sym, int]) -> list[Array]:
    return run_reference(node.attrs, inputs, [value.dtype for value in node.outputs])


_CONTROL: dict[str, Callable[[Node, Sequence[Array | None], Mapping[Sym, int]], list[Array]]] = {
    "If": _run_if,
    "Loop": _run_loop,
    "Scan": _run_scan,
    "Onnx": _run_onnx,
}
