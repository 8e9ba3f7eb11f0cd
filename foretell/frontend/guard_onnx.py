"""What must not reach the shape inference and the function bodies of the onnx package.

They are C++ that trusts a node: an axis out of range reads beyond an array, a large number of outputs is allocated, an
equation with an unknown character is read forever (all seen in onnx 1.23). So a node is judged here first.
"""

from __future__ import annotations

import re

from onnx import AttributeProto

from foretell.frontend.onnx_node import OnnxNode, normal_axis

LARGEST_NUMBER = 1 << 31
"""No operator means an attribute beyond this, but for those below, which hold data."""
LARGEST_AXIS = 64
"""More than any rank, and than the axes a node may add."""
HOLD_DATA = frozenset({"Constant", "TfIdfVectorizer"})


def check_before_onnx(node: OnnxNode) -> None:
    """Raise ValueError for attributes that no operator can mean."""
    if node.schema.domain or node.op_type in HOLD_DATA:
        return
    for name, attribute in node.attributes.items():
        if attribute.type == AttributeProto.STRING and not attribute.s.isascii():
            raise ValueError(f"attribute {name!r} is not plain text")
        limit = LARGEST_AXIS if "axis" in name or "axes" in name else LARGEST_NUMBER
        numbers = attribute.ints if attribute.type == AttributeProto.INTS else (attribute.i,)
        if any(not -limit <= number < limit for number in numbers):
            raise ValueError(f"attribute {name!r} is out of range")
    _check_operator(node)


def _check_operator(node: OnnxNode) -> None:
    match node.op_type:
        case "LayerNormalization" | "RMSNormalization":
            normal_axis(node.int("axis", -1), node.input(0).type.rank)
        case "GatherND":
            batch = node.int("batch_dims", 0)
            if not 0 <= batch < max(1, min(node.input(0).type.rank, node.input(1).type.rank)):
                raise ValueError(f"batch_dims {batch} is out of range")
        case "Einsum":
            if not re.fullmatch(r"[A-Za-z,. ]*(->[A-Za-z. ]*)?", node.text("equation")):
                raise ValueError(f"{node.text('equation')!r} is not an einsum equation")
        case "Split":
            count = len(node.proto.output)
            if node.has("num_outputs") and node.int("num_outputs") != count:
                raise ValueError(f"num_outputs={node.int('num_outputs')}, but {count} outputs are named")
        case _:
            pass
