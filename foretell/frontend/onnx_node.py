"""One ONNX node as operator importers see it: typed inputs, checked attributes, and the graph to add to."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto
from onnx.defs import OpSchema

from foretell.frontend.onnx_types import type_string
from foretell.graph.build import Builder
from foretell.graph.nodes import Array, Value
from foretell.ir.expr import Dim

if TYPE_CHECKING:
    from foretell.frontend.import_onnx import Scope


class Unsupported(Exception):
    """Inside the front end only: this node cannot be imported, for a reason to report."""


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node whose operator and attribute types were checked against its schema."""

    proto: NodeProto
    schema: OpSchema
    inputs: tuple[Value | None, ...]
    attributes: dict[str, AttributeProto]
    scope: Scope
    location: str
    unknown: set[int] = field(default_factory=set[int])
    """Inputs that were asked for their elements when these were not known."""

    @property
    def op_type(self) -> str:
        return self.proto.op_type

    @property
    def version(self) -> int:
        """The operator set version that last changed this operator."""
        return self.schema.since_version

    @property
    def build(self) -> Builder:
        return self.scope.builder

    @property
    def output_count(self) -> int:
        """Outputs up to the last one that is used."""
        used = [number for number, name in enumerate(self.proto.output) if name]
        return used[-1] + 1 if used else 0

    def has_output(self, number: int) -> bool:
        return number < len(self.proto.output) and bool(self.proto.output[number])

    # --- inputs ---

    def input(self, number: int) -> Value:
        """A required input."""
        value = self.optional(number)
        if value is None:
            raise ValueError(f"input {number} is required")
        return value

    def optional(self, number: int) -> Value | None:
        return self.inputs[number] if number < len(self.inputs) else None

    @property
    def present_inputs(self) -> tuple[Value, ...]:
        return tuple(value for value in self.inputs if value is not None)

    def array(self, number: int) -> Array | None:
        """The data of an input that is constant."""
        value = self.optional(number)
        found = None if value is None else self.build.constants.get(value)
        return self._noted(number, found)

    def dims(self, number: int) -> tuple[Dim, ...] | None:
        """The elements of an integer input, where they are known numbers or expressions over dimensions."""
        value = self.optional(number)
        known = self._noted(number, None if value is None else self.scope.known_dims(value))
        return None if known is None else tuple(known.reshape(-1).tolist())

    def _noted(self, number: int, found: Array | None) -> Array | None:
        if found is None and self.optional(number) is not None:
            self.unknown.add(number)
        return found

    # --- attributes ---

    def has(self, name: str) -> bool:
        return name in self.attributes

    def _attribute(self, name: str) -> AttributeProto | None:
        found = self.attributes.get(name)
        if found is not None or name not in self.schema.attributes:
            return found
        default = self.schema.attributes[name].default_value
        return default if default.name else None

    @property
    def attributes_with_defaults(self) -> dict[str, AttributeProto]:
        """The attributes given, and the defaults of those that are not."""
        defaults = {name: attribute.default_value for name, attribute in self.schema.attributes.items()}
        return {name: value for name, value in defaults.items() if value.name} | self.attributes

    def int(self, name: str, default: int | None = None) -> int:
        found = self._attribute(name)
        if found is None:
            if default is None:
                raise ValueError(f"attribute {name} is required")
            return default
        return found.i

    def float(self, name: str, default: float | None = None) -> float:
        found = self._attribute(name)
        if found is None:
            if default is None:
                raise ValueError(f"attribute {name} is required")
            return default
        return found.f

    def text(self, name: str, default: str | None = None) -> str:
        found = self._attribute(name)
        if found is None:
            if default is None:
                raise ValueError(f"attribute {name} is required")
            return default
        return found.s.decode("utf-8", "replace")

    def ints(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...] | None:
        found = self._attribute(name)
        return (None if default is None else tuple(default)) if found is None else tuple(found.ints)

    def floats(self, name: str) -> tuple[float, ...] | None:
        found = self._attribute(name)
        return None if found is None else tuple(found.floats)

    def texts(self, name: str) -> tuple[str, ...] | None:
        found = self._attribute(name)
        return None if found is None else tuple(item.decode("utf-8", "replace") for item in found.strings)

    def tensor(self, name: str) -> Array | None:
        found = self._attribute(name)
        return None if found is None else self.scope.model.stored.array(found.t)

    def graph(self, name: str) -> onnx.GraphProto:
        found = self._attribute(name)
        if found is None:
            raise ValueError(f"attribute {name} is required")
        return found.g

    # --- shared by many operators ---

    def try_table(self, key: Hashable, size_bytes: int, make: Callable[[], Array]) -> Array | None:
        """An array that `make` computes from nothing but `key`, once for all nodes; None if there is no room for it."""
        return self.scope.model.try_table(key, size_bytes, make)

    def axis(self, rank: int, name: str = "axis", default: int | None = None) -> int:
        """An axis attribute, counted from the front."""
        return normal_axis(self.int(name, default), rank)

    def scalar(self, number: float | int | bool, like: Value) -> Value:
        """A constant of rank 0 with the dtype of another value."""
        return self.build.scalar(number, like.dtype)


def normal_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def normal_axes(axes: Sequence[Any], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order, without repeats."""
    found = tuple(normal_axis(int(axis), rank) for axis in axes)
    if len(set(found)) != len(found):
        raise ValueError(f"axes {tuple(axes)} repeat")
    return found


def check_against_schema(proto: NodeProto, schema: OpSchema, attributes: dict[str, AttributeProto]) -> None:
    """Raise ValueError unless counts and attributes fit the operator's schema."""
    if not schema.min_input <= len(proto.input) <= schema.max_input:
        raise ValueError(f"{len(proto.input)} inputs, where {schema.min_input} to {schema.max_input} are allowed")
    if not schema.min_output <= len(proto.output) <= schema.max_output:
        raise ValueError(f"{len(proto.output)} outputs, where {schema.min_output} to {schema.max_output} are allowed")
    for name, attribute in attributes.items():
        expected = schema.attributes.get(name)
        if expected is None:
            raise ValueError(f"unknown attribute {name!r}")
        if int(getattr(expected.type, "value")) != attribute.type:  # noqa: B009 (onnx's stubs lack it)
            raise ValueError(f"attribute {name!r} has the wrong type")
    for name, expected in schema.attributes.items():
        if expected.required and name not in attributes:
            raise ValueError(f"attribute {name!r} is required")


def check_input_types(schema: OpSchema, inputs: Sequence[Value | None]) -> None:
    """Raise ValueError unless the inputs' element types satisfy the schema's constraints."""
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    chosen: dict[str, str] = {}
    formals = schema.inputs
    for number, value in enumerate(inputs):
        formal = formals[min(number, len(formals) - 1)]
        if value is None:
            if formal.option == OpSchema.FormalParameterOption.Single:
                raise ValueError(f"input {number} ({formal.name}) is required")
            continue
        spelled, parameter = type_string(value.dtype), formal.type_str
        choices = allowed.get(parameter, [parameter])
        if spelled not in choices:
            raise ValueError(f"input {number} ({formal.name}) must not be {spelled}")
        if parameter in allowed and formal.is_homogeneous and chosen.setdefault(parameter, spelled) != spelled:
            raise ValueError(f"inputs of type {parameter} must agree: {chosen[parameter]} and {spelled}")


def object_array(values: Sequence[Dim], shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[Any]]:
    """An array of Python objects (numbers and expressions) with the given shape."""
    array = np.empty(len(values), dtype=object)
    for number, value in enumerate(values):
        array[number] = value
    return array.reshape(shape)
