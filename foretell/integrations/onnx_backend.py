"""foretell as an ONNX backend: `prepare`, `run_model`, `run_node`, `supports_device`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from foretell.compiler import import_model, simplify
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.support.errors import InputError


@dataclass(frozen=True, slots=True)
class ForetellRep(BackendRep):
    """A model ready to run, on the evaluator."""

    graph: Graph

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs for inputs given in order, or by name."""
        names = [value.name for value in self.graph.inputs]
        if isinstance(inputs, Mapping):
            feeds = {str(name): _as_array(array) for name, array in inputs.items()}
        else:
            arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(arrays) != len(names):
                raise InputError(
                    "wrong number of inputs",
                    expected=f"{len(names)}: {', '.join(names)}",
                    got=str(len(arrays)),
                    hint="pass one array for every input of the model",
                )
            feeds = dict(zip(names, (_as_array(array) for array in arrays), strict=True))
        outputs = evaluate(self.graph, feeds)
        return namedtupledict("Outputs", list(outputs))(*outputs.values())


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


class ForetellBackend(Backend):
    """The interface of onnx.backend.base."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> ForetellRep:
        return ForetellRep(simplify(import_model(model)))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node on arrays; `opset_version` chooses the operator set."""
        arrays = [_as_array(array) for array in inputs]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip((name for name in node.input if name), arrays, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", infos, outputs)
        version = kwargs.get("opset_version", 28)
        return cls.run_model(
            helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)]), arrays
        )

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0].upper() == "CPU"


is_compatible = ForetellBackend.is_compatible
prepare = ForetellBackend.prepare
run_model = ForetellBackend.run_model
run_node = ForetellBackend.run_node
supports_device = ForetellBackend.supports_device
