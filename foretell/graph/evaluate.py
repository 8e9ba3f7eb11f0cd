"""A plain evaluator of graphs: the oracle, the engine of constant folding, and the slow path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foretell.graph.control_flow import is_control_flow, run_control_flow
from foretell.graph.interpret import evaluate_dim, interpret
from foretell.graph.nodes import Array, Attr, Graph, Node, Value
from foretell.graph.optable import OPS
from foretell.graph.reference import run_reference
from foretell.ir import dtypes
from foretell.ir.expr import Dim, Expr, Sym
from foretell.ir.tensor_expr import TensorType
from foretell.support.errors import InputError


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
    if is_control_flow(node):
        return run_control_flow(node, inputs, lambda graph, arrays: evaluate_values(graph, arrays, symbols))
    if node.op == "Onnx":
        return run_reference(node.attrs, inputs, [value.dtype for value in node.outputs])
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
    try:
        definition = define(operands, attrs)
    except ValueError as failure:
        raise _misfit(node, operands, failure) from failure
    return interpret(definition, inputs, symbols)


def _misfit(node: Node, operands: Sequence[TensorType | None], failure: ValueError) -> InputError:
    """Dimensions that were symbolic turned out to be ones that an operator cannot have."""
    return InputError(
        f"{node.op} cannot run on these shapes: {failure}",
        where=node.location,
        expected="operands that fit the operator",
        got=", ".join(str(operand) for operand in operands),
        hint="the inputs may be too small for the model",
    )


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
