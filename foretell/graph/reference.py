"""The slow path: one ONNX operator run by the reference evaluator of the onnx package.

The only module of this stage that imports onnx. Whatever the reference raises on data it does not like comes out
as an `EvaluationError` that names the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from foretell.graph.nodes import Array, Attr
from foretell.ir.dtypes import DType
from foretell.support.errors import EvaluationError

REFERENCE_FAILURES = (
    *(ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError, AssertionError),
    *(ArithmeticError, NotImplementedError, ImportError, MemoryError),
)
"""What `onnx.reference` raises: it has no error tree of its own."""


def run_reference(attrs: Mapping[str, Attr], inputs: Sequence[Array | None], dtypes: Sequence[DType]) -> list[Array]:
    """Run the operator an `Onnx` node holds; `dtypes` are those of its outputs."""
    blob, domain, version = attrs["node"], attrs["domain"], attrs["version"]
    assert isinstance(blob, bytes) and isinstance(domain, str) and isinstance(version, int)
    node = onnx.NodeProto.FromString(blob)
    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if name and array is not None}
    try:
        results: Any = _session(node, domain, version).run(None, feeds)  # pyright: ignore[reportUnknownMemberType]
    except REFERENCE_FAILURES as failure:
        raise EvaluationError(
            f"the ONNX reference could not run {node.op_type}: {_first_line(failure)}",
            where=node.name or node.op_type,
            expected="inputs the operator is defined on",
            got=", ".join(f"{array.dtype}{list(array.shape)}" for array in feeds.values()) or "no input",
            hint="check the data that reaches this node; `foretell check` shows which operators run on the reference",
        ) from failure
    return [_as_array(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]


def _session(node: onnx.NodeProto, domain: str, version: int) -> ReferenceEvaluator:
    """A model of just this node; value types are left open, as the reference does not look at them."""
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(node.input) if name],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    opsets = [helper.make_opsetid(domain, version)]
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))


def _as_array(result: object, dtype: DType) -> Array:
    array = numpy_helper.to_array(result) if isinstance(result, onnx.TensorProto) else np.asarray(result)
    return array if array.dtype == dtype.numpy else array.astype(dtype.numpy)


def _first_line(failure: BaseException) -> str:
    return (str(failure).splitlines() or [type(failure).__name__])[0][:200]
