"""Operators without a definition of ours: typed by onnx's shape inference, run by onnx's reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from onnx import NodeProto, TensorProto, TensorShapeProto, TypeProto, numpy_helper
from onnx.reference.ops import aionnx_preview, aionnx_preview_training, aionnxml
from onnx.reference.ops._op_list import load_op
from onnx.shape_inference import infer_node_outputs

from foretell.frontend.guard_onnx import check_before_onnx
from foretell.frontend.onnx_node import OnnxNode, Unsupported
from foretell.frontend.onnx_types import DTYPE_OF_ONNX, to_type_proto
from foretell.graph.nodes import Value
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import TensorType

NO_DEFINITION = "foretell has no definition and onnx has no reference for it"
LOADERS: dict[str, Callable[[str, str, int], object]] = {
    "": load_op,
    "ai.onnx.ml": aionnxml.load_op,
    "ai.onnx.preview": aionnx_preview.load_op,
    "ai.onnx.preview.training": aionnx_preview_training.load_op,
}
"""How the onnx package finds its reference for an operator of a domain."""
MAX_DATA_ELEMENTS = 1024
"""Constant inputs up to this size are shown to shape inference."""


def make_reference_node(node: OnnxNode, rank: int | None = None) -> tuple[Value | None, ...]:
    """An `Onnx` node for an operator that the reference can run on tensors, or `Unsupported`.

    `rank` is that of the outputs, where the importer knows more than onnx's inference.
    """
    domain = node.schema.domain
    node.scope.note_unknown(node)
    if not has_reference(domain, node.op_type, node.version):
        raise Unsupported(NO_DEFINITION)
    check_before_onnx(node)
    proto = _standalone(node)
    names: dict[Dim, str] = {}
    inferred = _infer(node, proto, names)
    own = {name: dim for dim, name in names.items()}
    models = {dim.name: dim for dim in names if isinstance(dim, Sym)}
    types = [
        _output_type(node, [(inferred.get(name), own), (node.scope.declared.get(declared), models)], rank)
        for name, declared in zip(proto.output, node.proto.output, strict=True)
        if name
    ]
    blob = proto.SerializeToString(deterministic=True)
    node.scope.model.count_copy(node.proto, len(blob))
    attrs = {
        "domain": domain,
        "op_type": node.op_type,
        "version": node.scope.opsets[domain],
        "node": blob,
    }
    values = iter(node.build.typed("Onnx", node.inputs, attrs, types))
    return tuple(next(values) if name else None for name in proto.output)


@cache
def has_reference(domain: str, op_type: str, version: int) -> bool:
    """Whether the onnx package can run the operator."""
    try:
        LOADERS[domain](domain, op_type, version)
    except (ValueError, KeyError, ImportError, NotImplementedError, RuntimeError, AttributeError, AssertionError):
        return False  # onnx has no error of its own for it
    return True


def _standalone(node: OnnxNode) -> NodeProto:
    """The node with attributes bound and names that cannot clash."""
    proto = NodeProto(op_type=node.op_type, domain=node.schema.domain, name=node.location)
    proto.input.extend("" if value is None else f"i{number}" for number, value in enumerate(node.inputs))
    proto.output.extend(f"o{number}" if name else "" for number, name in enumerate(node.proto.output))
    for name, attribute in node.attributes.items():
        if attribute.HasField("g") or attribute.graphs:
            raise Unsupported("a subgraph that foretell cannot run")
        proto.attribute.add().CopyFrom(attribute)
        proto.attribute[-1].name = name
        if attribute.HasField("t"):
            stored = node.scope.model.stored.array(attribute.t)
            node.scope.model.count_copy(node.proto, stored.nbytes)
            proto.attribute[-1].t.CopyFrom(numpy_helper.from_array(stored))
    return proto


def _infer(node: OnnxNode, proto: NodeProto, names: dict[Dim, str]) -> dict[str, TypeProto]:
    types: dict[str, TypeProto] = {}
    data: dict[str, TensorProto] = {}
    for number, value in enumerate(node.inputs):
        if value is None:
            continue
        types[f"i{number}"] = to_type_proto(value.type, names)
        array = node.array(number)
        if array is not None and array.size <= MAX_DATA_ELEMENTS:
            data[f"i{number}"] = numpy_helper.from_array(array)
    try:
        return infer_node_outputs(node.schema, proto, types, data)
    except RuntimeError as failure:  # what onnx's own code raises where it did not expect a thing
        raise ValueError(str(failure)) from failure


def _output_type(
    node: OnnxNode, found: Sequence[tuple[TypeProto | None, Mapping[str, Dim]]], rank: int | None
) -> TensorType:
    """What inference finds; where that depends on data, what the model declares (checked when it runs).

    `found` are these two, each with the dimensions that it has names for.
    """
    candidates = [(proto, names) for proto, names in found if proto is not None and proto.WhichOneof("value")]
    if not candidates:
        raise Unsupported("its output types cannot be inferred")
    if any(proto.WhichOneof("value") != "tensor_type" for proto, _ in candidates):
        raise Unsupported("it makes something that is not a tensor")
    tensors = [(proto.tensor_type, names) for proto, names in candidates]
    dtype = DTYPE_OF_ONNX.get(tensors[0][0].elem_type)
    shapes = [_dims(tensor.shape, names) for tensor, names in tensors if tensor.HasField("shape")]
    if dtype is None:
        raise Unsupported("it makes a tensor of something other than numbers")
    if not shapes and rank is not None:
        return TensorType(dtype, tuple(node.scope.model.fresh_dim() for _ in range(rank)))
    if not shapes:
        raise Unsupported("the rank of its output depends on data")
    first, last = shapes[0], shapes[-1]
    if len(first) != len(last):
        raise ValueError(f"an output of rank {len(first)} is declared with rank {len(last)}")
    chosen = (a if a is not None else b for a, b in zip(first, last, strict=True))
    return TensorType(dtype, tuple(node.scope.model.fresh_dim() if dim is None else dim for dim in chosen))


def _dims(shape: TensorShapeProto, names: Mapping[str, Dim]) -> list[Dim | None]:
    """Dimensions as far as they are known: numbers, or those of the inputs."""
    return [
        entry.dim_value if entry.WhichOneof("value") == "dim_value" else names.get(entry.dim_param)
        for entry in shape.dim
    ]
