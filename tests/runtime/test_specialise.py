"""Models that are compiled for the values of small inputs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from foretell.compiler import compile
from foretell.frontend.import_onnx import import_onnx
from foretell.ir.dtypes import F32, I64
from foretell.runtime.check_inputs import Array
from foretell.runtime.program import Slot
from foretell.runtime.specialise import KEPT_MODELS, Specialiser
from foretell.support.errors import InputError, InvalidNode, NotNative, UsageError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
SLOTS = (Slot("x", F32, (3, 4), "input"), Slot("n", I64, (1,), "input"))


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, tuple[int, Sequence[int | str]]], output: Sequence[str | int]
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    return helper.make_model(
        helper.make_graph(nodes, "g", infos, [result]), opset_imports=[helper.make_opsetid("", 18)]
    )


def reduce_model() -> onnx.ModelProto:
    """y = sum of x over axes"""
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    return model_of([node], {"x": (TensorProto.FLOAT, (3, 4)), "axes": (TensorProto.INT64, (1,))}, ("a",))


def axes(number: int) -> Array:
    return np.array([number], np.int64)


# --- the cache ---


class Recorded:
    """Stands for a compiled model: adds the value it was compiled for."""

    input_names = ("x",)

    def __init__(self, values: Mapping[str, Array]) -> None:
        self.number = int(values["n"][0])

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        assert tuple(feeds) == ("x",)
        return {"y": feeds["x"] + self.number}


def recorder() -> tuple[Specialiser, list[int]]:
    compiled: list[int] = []

    def compile_for(values: Mapping[str, Array]) -> Recorded:
        compiled.append(int(values["n"][0]))
        return Recorded(values)

    return Specialiser(SLOTS, ["n"], compile_for), compiled


def test_a_value_is_compiled_for_once() -> None:
    specialiser, compiled = recorder()
    for number in (1, 2, 1, 2):
        assert np.array_equal(specialiser.run({"x": X, "n": axes(number)})["y"], X + number)
    assert compiled == [1, 2]


def test_what_was_not_used_for_longest_is_dropped() -> None:
    specialiser, compiled = recorder()
    for number in (*range(KEPT_MODELS), 0, KEPT_MODELS, 0, 1):
        specialiser.run({"x": X, "n": axes(number)})
    assert compiled == [*range(KEPT_MODELS + 1), 1]


def test_many_threads_compile_once() -> None:
    specialiser, compiled = recorder()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: specialiser.run({"x": X, "n": axes(number % 2)}), range(64)))
    assert sorted(compiled) == [0, 1]


@pytest.mark.parametrize(
    ("feeds", "what"),
    [
        ({"x": X}, "input 'n' is missing"),
        ({"x": X, "n": axes(1), "m": X}, "the model has no input 'm'"),
        ({"x": X, "n": X}, "input 'n' has the wrong type"),
        ({"x": X, "n": np.ones(2, np.int64)}, "the shape of 'n' disagrees with the model"),
    ],
)
def test_wrong_inputs(feeds: Mapping[str, Array], what: str) -> None:
    with pytest.raises(InputError, match=what):
        recorder()[0].run(feeds)


# --- compiled models ---


def test_axes_that_are_an_input_give_native_code() -> None:
    model = compile(reduce_model(), native_only=True, threads=1)
    assert model.input_names == ("x", "axes") and model.output_names == ("y",)
    for axis in (0, 1, -1, 0):
        assert np.array_equal(model(X, axes(axis)), X.sum(axis))
        assert np.array_equal(model(axes=axes(axis), x=X), X.sum(axis))


def test_values_computed_from_small_inputs_count_too() -> None:
    nodes = [helper.make_node("Neg", ["axes"], ["minus"]), helper.make_node("ReduceSum", ["x", "minus"], ["y"])]
    inputs = {"x": (TensorProto.FLOAT, (3, 4)), "axes": (TensorProto.INT64, (1,))}
    model = compile(model_of(nodes, inputs, ("a", "b")), native_only=True, threads=1)
    assert np.array_equal(model(X, axes(2)), X.sum(0, keepdims=True))


def test_one_value_may_ask_for_another() -> None:
    """The importer of Resize asks for the region only when it knows the sizes."""
    node = helper.make_node(
        "Resize", ["x", "roi", "", "sizes"], ["y"], coordinate_transformation_mode="tf_crop_and_resize"
    )
    inputs = {"x": (TensorProto.FLOAT, (3, 4)), "roi": (TensorProto.FLOAT, (4,)), "sizes": (TensorProto.INT64, (2,))}
    model = compile(model_of([node], inputs, ("a", "b")), native_only=True, threads=1)
    whole, half = np.array([0, 0, 1, 1], np.float32), np.array([0, 0, 1, 0], np.float32)
    assert np.array_equal(model(X, whole, np.array([3, 4])), X)
    assert np.array_equal(model(X, half, np.array([3, 1])), X[:, :1])


def test_a_value_that_makes_the_model_invalid() -> None:
    model = compile(reduce_model(), threads=1)
    with pytest.raises(InvalidNode, match="axis 2 is out of range"):
        model(X, axes(2))
    assert np.array_equal(model(X, axes(1)), X.sum(1))


def test_a_model_that_needs_no_values_is_not_specialised() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, (3, 4)), "b": (TensorProto.FLOAT, (4,))}
    assert compile(model_of([node], inputs, (3, 4)), threads=1).specialiser is None


def test_data_of_an_operator_on_the_reference_is_no_reason_to_specialise() -> None:
    node = helper.make_node("Unique", ["x"], ["y"])
    model = model_of([node], {"x": (TensorProto.FLOAT, (4,))}, ("a",))
    with pytest.warns(UserWarning, match="slow reference path: Unique"):
        assert compile(model, threads=1).specialiser is None
    with pytest.raises(NotNative, match="no native code"):
        compile(model, threads=1, native_only=True)


def test_large_inputs_do_not_specialise() -> None:
    node = helper.make_node("Expand", ["x", "shape"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, (1,)), "shape": (TensorProto.INT64, ("rank",))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imported = import_onnx(model_of([node], inputs, ("a", "b")))
    assert imported.specialising == ()


# --- values given while importing ---


def test_values_become_constants() -> None:
    imported = import_onnx(reduce_model(), values={"axes": axes(1)})
    assert [value.name for value in imported.inputs] == ["x"]
    assert [node.op for node in imported.require_graph().nodes] == ["ReduceSum"]
    assert np.array_equal(compile(reduce_model(), values={"axes": axes(1)}, threads=1)(X), X.sum(1))


def test_values_bind_dimensions_that_other_inputs_share() -> None:
    node = helper.make_node("Add", ["x", "b"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, ("m", "n")), "b": (TensorProto.FLOAT, ("n",))}
    imported = import_onnx(model_of([node], inputs, ("m", "n")), values={"b": np.ones(4, np.float32)})
    assert str(imported.inputs[0].type) == "f32[m, 4]"


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"axis": axes(1)}, "values names an input 'axis' that the model does not have"),
        ({"axes": np.array([1.0])}, "values gives the input 'axes' something of another type"),
        ({"axes": np.array([0, 1])}, "values gives the input 'axes' something of another type"),
        ({"axes": np.array(1)}, "values gives the input 'axes' something of another type"),
    ],
)
def test_wrong_values(values: Mapping[str, Array], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        import_onnx(reduce_model(), values=values)
