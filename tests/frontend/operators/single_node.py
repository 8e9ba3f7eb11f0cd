"""Models of one node: import and evaluate them, and ask onnx's reference or onnxruntime for the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from foretell.frontend.import_onnx import import_onnx
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.graph.verify import verify

Numbers = npt.NDArray[Any]
# The oldest format that holds every dtype used here; onnxruntime reads no newer one than 10 or so.
IR_VERSION = 10


@dataclass(frozen=True)
class SingleNode:
    """A model of one node, and data for those of its inputs that are not constants."""

    model: ModelProto
    feeds: dict[str, Numbers]

    def graph(self) -> Graph:
        graph = import_onnx(self.model).require_graph()
        verify(graph)
        return graph

    def native_graph(self) -> Graph:
        """The graph, which must not fall back to the reference."""
        graph = self.graph()
        assert all(node.op != "Onnx" for node in graph.walk()), str(graph)
        return graph

    def run(self) -> list[Numbers]:
        return list(evaluate(self.native_graph(), self.feeds).values())

    def by_reference(self) -> list[Numbers]:
        with np.errstate(all="ignore"):
            return [np.asarray(array) for array in ReferenceEvaluator(self.model).run(None, self.feeds)]

    def by_onnxruntime(self) -> list[Numbers]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(self.model.SerializeToString(), options, ["CPUExecutionProvider"])
        return [np.asarray(array) for array in session.run(None, self.feeds)]


def single_node(
    op_type: str,
    inputs: Sequence[Numbers | None],
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 23,
    constants: Sequence[int] = (),
    symbolic: bool = False,
    **attributes: Any,
) -> SingleNode:
    """Inputs that are None are absent, those in `constants` are initializers; dimensions may be symbolic."""
    names = ["" if array is None else f"x{number}" for number, array in enumerate(inputs)]
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    fixed = {f"x{number}" for number in constants}
    infos = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}_{axis}" for axis in range(array.ndim)] if symbolic else array.shape,
        )
        for name, array in given.items()
        if name not in fixed
    ]
    results = [ValueInfoProto(name=name) for name in outputs if name]
    stored = [numpy_helper.from_array(array, name) for name, array in given.items() if name in fixed]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(op_type, names, list(outputs), **attributes)
    graph = helper.make_graph([node], "single", infos, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    return SingleNode(model, {name: array for name, array in given.items() if name not in fixed})


def assert_near(found: Sequence[Numbers], expected: Sequence[Numbers], tolerance: float = 1e-5) -> None:
    """The same number of arrays with the same types, and equal up to rounding."""
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert left.shape == right.shape and left.dtype == right.dtype, f"{left.dtype}{left.shape} {right.shape}"
        np.testing.assert_allclose(
            left.astype(np.float64), right.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True
        )
