"""Operators that ONNX itself defines by a function body."""

from __future__ import annotations

from functools import cache
from typing import Any

from onnx import FunctionProto, NodeProto, TypeProto, defs
from onnx.defs import OpSchema

from foretell.frontend.guard_onnx import check_before_onnx
from foretell.frontend.onnx_node import OnnxNode
from foretell.frontend.onnx_types import to_type_proto
from foretell.ir.expr import Dim


def try_function_body(node: OnnxNode) -> FunctionProto | None:
    """The body of the node's operator, at the operator set the model uses.

    Many operators got their body in a later version whose meaning is the same; such a body serves the older node if
    its operator takes the same inputs and attributes.
    """
    check_before_onnx(node)
    for schema in (node.schema, *_later_versions(node.schema)):
        body = _body(schema, node)
        if body is not None:
            return body
    return None


def _later_versions(schema: OpSchema) -> list[OpSchema]:
    later = _versions()[schema.domain, schema.name]
    return [new for new in later if new.since_version > schema.since_version and _takes_the_same(schema, new)]


@cache
def _versions() -> dict[tuple[str, str], list[OpSchema]]:
    """All versions of every operator, oldest first."""
    versions: dict[tuple[str, str], list[OpSchema]] = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version):
        versions.setdefault((schema.domain, schema.name), []).append(schema)
    return versions


def _takes_the_same(old: OpSchema, new: OpSchema) -> bool:
    """Same inputs, and the same attributes with the same defaults (Softmax changed its meaning with its default)."""
    defaults = [{name: str(a.default_value) for name, a in schema.attributes.items()} for schema in (old, new)]
    return defaults[0] == defaults[1] and len(old.inputs) == len(new.inputs)


def _body(typed_schema: OpSchema, node: OnnxNode) -> FunctionProto | None:
    schema: Any = typed_schema  # onnx's stubs leave out what schemas say about functions
    wanted = max(node.scope.opsets.get(schema.domain, schema.since_version), schema.since_version)
    if schema.has_function:
        version = _nearest(schema.function_opset_versions, wanted)
        return FunctionProto.FromString(schema.get_function_with_opset_version(version))
    if schema.has_context_dependent_function:
        version = _nearest(schema.context_dependent_function_opset_versions, wanted)
        names: dict[Dim, str] = {}
        protos = [TypeProto() if value is None else to_type_proto(value.type, names) for value in node.inputs]
        types = [proto.SerializeToString() for proto in protos]
        call = _call(node).SerializeToString()
        try:
            blob = schema.get_context_dependent_function_with_opset_version(version, call, types)
        except RuntimeError as failure:  # what onnx's own code raises where it did not expect a thing
            raise ValueError(str(failure)) from failure
        body = FunctionProto.FromString(blob)
        return body if body.node else None
    return None


def _nearest(versions: list[int], wanted: int) -> int:
    """The newest version that is not newer than wanted, or the oldest."""
    return max((version for version in versions if version <= wanted), default=min(versions))


def _call(node: OnnxNode) -> NodeProto:
    """The node with its attributes bound, as context-dependent bodies look at them."""
    call = NodeProto(op_type=node.op_type, domain=node.schema.domain)
    call.input.extend(node.proto.input)
    call.output.extend(node.proto.output)
    for name, attribute in node.attributes.items():
        call.attribute.add().CopyFrom(attribute)
        call.attribute[-1].name = name
    return call
