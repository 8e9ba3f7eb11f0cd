"""Building graphs: nodes get their types from the op table, values their unique names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from foretell.graph.nodes import Array, Attr, Graph, Node, Value
from foretell.graph.optable import OPS
from foretell.ir import dtypes
from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim
from foretell.ir.tensor_expr import TensorType


class Builder:
    """A graph under construction. The only mutable thing in this package; `finish` freezes it.

    `location` is attached to every node that is added, and `hint`, if set, names its values: an importer or a pass
    sets them once per source node.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.location = ""
        self.hint = ""
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}
        self.producers: dict[Value, Node] = {}
        self._names: set[str] = set()
        self._next_number: dict[str, int] = {}
        self._value_of_array: dict[int, Value] = {}

    def input(self, name: str, type: TensorType) -> Value:
        value = Value(self.fresh_name(name), type)
        self.inputs.append(value)
        return value

    def constant(self, array: Array, name: str = "c") -> Value:
        """A constant; the array is kept as it is, not copied. One array is one value, so that who changes it knows."""
        known = self._value_of_array.get(id(array))
        if known is not None and self.constants.get(known) is array:
            return known
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        value = Value(self.fresh_name(name), TensorType(dtypes.from_numpy(array.dtype), array.shape))
        self.constants[value] = array
        self._value_of_array[id(array)] = value
        return value

    def scalar(self, number: float | int | bool, dtype: DType) -> Value:
        """A constant of rank 0."""
        return self.constant(np.array(number).astype(dtype.numpy))

    def op(self, op: str, *inputs: Value | None, **attrs: Attr) -> Value:
        """Add a node that has one output and return that."""
        (value,) = self.ops(op, *inputs, **attrs)
        return value

    def ops(self, op: str, *inputs: Value | None, **attrs: Attr) -> tuple[Value, ...]:
        """Add a node and return all its outputs, typed by the op table."""
        operands = tuple(None if value is None else value.type for value in inputs)
        return self.typed(op, inputs, attrs, OPS[op].infer(operands, attrs))

    def typed(
        self, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Attr], types: Sequence[TensorType]
    ) -> tuple[Value, ...]:
        """Add a node whose output types are known to the caller."""
        outputs = tuple(Value(self.fresh_name(self.hint or op.lower()), type) for type in types)
        self.add(Node(op, tuple(inputs), outputs, MappingProxyType(dict(attrs)), self.location))
        return outputs

    def add(self, node: Node) -> None:
        """Add a finished node whose values' names are already taken here."""
        self.nodes.append(node)
        for value in node.outputs:
            self._names.add(value.name)
            self.producers[value] = node

    def reshape(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        """A Reshape, unless the shape is that already."""
        return value if value.shape == shape else self.op("Reshape", value, shape=shape)

    def transpose(self, value: Value, permutation: tuple[int, ...]) -> Value:
        return value if permutation == tuple(range(len(permutation))) else self.op("Transpose", value, perm=permutation)

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype == dtype else self.op("Cast", value, to=dtype)

    def producer(self, value: Value | None, *ops: str) -> Node | None:
        """The node that makes `value`, if it applies one of `ops` (any, when none is named)."""
        node = None if value is None else self.producers.get(value)
        return node if node is not None and (not ops or node.op in ops) else None

    def fresh_name(self, wish: str) -> str:
        """A name that no other value here has: the wish itself, or the wish with a number."""
        name = wish
        while name in self._names:
            number = self._next_number[wish] = self._next_number.get(wish, 0) + 1
            name = f"{wish}_{number}"
        self._names.add(name)
        return name

    def finish(self, outputs: Sequence[Value], output_names: Sequence[str]) -> Graph:
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(outputs),
            tuple(self.nodes),
            MappingProxyType(dict(self.constants)),
            tuple(output_names),
        )
