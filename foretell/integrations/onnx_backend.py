"""foretell as an ONNX backend: `prepare`, `run_model`, `run_node`, `supports_device`.

from foretell.integrations import onnx_backend

(y,) = onnx_backend.prepare(model).run([x])     # inputs in order, or by name: run({"x": x})
onnx_backend.prepare(model, native_only=True)   # refuses what would need the reference of the onnx package
onnx_backend.prepare(model, engine="evaluator") # definitions run by numpy: nothing is compiled
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, defs, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from foretell.compiler import compile, import_model, simplify
from foretell.frontend.opsets import NEWEST_OPSET
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array
from foretell.support.errors import InputError, ModelError, UsageError


@dataclass(frozen=True, slots=True)
class ForetellRep(BackendRep):
    """A model ready to run."""

    input_names: tuple[str, ...]
    run_feeds: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    """Outputs by name, for inputs by name."""

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs for inputs given in order, or by name; an input is an array or a TensorProto."""
        if isinstance(inputs, Mapping):
            feeds = {str(name): _as_array(array) for name, array in inputs.items()}
        else:
            arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            _check_count("the model", self.input_names, len(arrays))
            feeds = {name: _as_array(array) for name, array in zip(self.input_names, arrays, strict=True)}
        outputs = self.run_feeds(feeds)
        return namedtupledict("Outputs", list(outputs))(*outputs.values())


class ForetellBackend(Backend):
    """The interface of onnx.backend.base."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be run."""
        try:
            import_model(model)
        except ModelError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(
        cls,
        model: ModelProto,
        device: str = "CPU",
        *,
        engine: str = "compiler",
        native_only: bool = False,
        **kwargs: Any,
    ) -> ForetellRep:
        """Compile a model; what cannot be run is an error that names every such node.

        Operators without native code run on the reference, with a warning; `native_only` refuses them: here or, where
        that hangs on values of inputs, in `run`. The engine `evaluator` runs everything by numpy instead.
        """
        if not cls.supports_device(device):
            raise UsageError(
                "the device is not supported", expected="CPU", got=device, hint="leave it out, or ask supports_device"
            )
        if engine == "compiler":
            compiled = compile(model, native_only=native_only)
            return ForetellRep(compiled.input_names, compiled.run)
        if engine != "evaluator" or native_only:
            raise UsageError(
                "there is no such engine" if engine != "evaluator" else "the evaluator has no native code",
                expected="compiler, or evaluator without native_only",
                got=engine,
                hint="leave it out",
            )
        graph = simplify(import_model(model))
        return ForetellRep(tuple(value.name for value in graph.inputs), partial(evaluate, graph))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one node on one array per input it names; `opset_version` is that of its domain, else the newest."""
        names = [name for name in node.input if name]
        arrays = [_as_array(array) for array in inputs]
        _check_count(node.op_type, names, len(arrays))
        feeds = dict(zip(names, arrays, strict=True))
        version = kwargs.pop("opset_version", None)
        return cls.run_model(_model_of(node, feeds, version), feeds, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU, also spelled `CPU:0`."""
        return device.split(":")[0].upper() == "CPU"


def _check_count(what: str, names: Sequence[str], count: int) -> None:
    """Raise `InputError` unless there is one array per name."""
    if count != len(names):
        raise InputError(
            f"{what} takes another number of inputs",
            expected=f"{len(names)}: {', '.join(names)}" if names else "none",
            got=str(count),
            hint="pass one array for every input, in the model's order or by name",
        )


def _as_array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _model_of(node: NodeProto, feeds: Mapping[str, Array], version: int | None) -> ModelProto:
    """A model of just this node."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    newest = min(NEWEST_OPSET, defs.onnx_opset_version())  # the newest of other domains too: none counts higher
    opset = helper.make_opsetid(node.domain, newest if version is None else version)
    return helper.make_model(helper.make_graph([node], "node", inputs, outputs), opset_imports=[opset])


is_compatible = ForetellBackend.is_compatible
prepare = ForetellBackend.prepare
run_model = ForetellBackend.run_model
run_node = ForetellBackend.run_node
supports_device = ForetellBackend.supports_device
