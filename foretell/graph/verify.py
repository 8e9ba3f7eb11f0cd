"""The invariants of a graph, checked after every pass in tests and while tracing. A failure is our bug."""

from __future__ import annotations

from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.optable import OPS
from foretell.ir import dtypes


def verify(graph: Graph) -> None:
    """Assert that values are defined once and before use, types agree with the op table, and subgraphs are closed."""
    defined: dict[str, Value] = {}

    def define(value: Value) -> None:
        assert value.name not in defined, f"%{value.name} is defined twice in {graph.name}"
        defined[value.name] = value

    for value in graph.inputs:
        define(value)
    for value, array in graph.constants.items():
        define(value)
        assert dtypes.from_numpy(array.dtype) == value.dtype and array.shape == value.shape, f"{value} != its data"
        assert not array.flags.writeable, f"{value} can be written to"
    for node in graph.nodes:
        for value in node.present_inputs:
            assert defined.get(value.name) == value, f"{node.op} at {node.location} reads {value} before it exists"
        _verify_types(node)
        for value in node.outputs:
            define(value)
        for subgraph in node.subgraphs:
            verify(subgraph)
    for value in graph.outputs:
        assert defined.get(value.name) == value, f"output {value} does not exist"
    assert len(graph.outputs) == len(graph.output_names)


def _verify_types(node: Node) -> None:
    assert node.op in OPS, f"{node.op} is not a canonical operator"
    definition = OPS[node.op]
    if definition.define is None:
        return
    operands = tuple(None if value is None else value.type for value in node.inputs)
    expected = definition.infer(operands, node.attrs)
    assert expected == tuple(value.type for value in node.outputs), f"{node.op} at {node.location}: {expected}"
