from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from examples.demo import build_model
from foretell.integrations import onnx_backend
from foretell.support.errors import InputError, NotNative, UnsupportedOperators, UsageError

LEFT, RIGHT = np.array([[5.0, 7.0]], np.float32), np.array([[1.0, 2.0]], np.float32)


def difference(op_type: str = "Sub") -> onnx.ModelProto:
    """out = left - right"""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in ("left", "right", "out")]
    graph = helper.make_graph([helper.make_node(op_type, ["left", "right"], ["out"])], "g", types[:2], types[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_the_interface_is_that_of_onnx() -> None:
    assert issubclass(onnx_backend.ForetellBackend, Backend)
    assert isinstance(onnx_backend.prepare(difference()), BackendRep)


def test_inputs_in_order_or_by_name() -> None:
    prepared = onnx_backend.prepare(difference())
    for inputs in ([LEFT, RIGHT], (LEFT, RIGHT), {"right": RIGHT, "left": LEFT}):
        results = prepared.run(inputs)
        assert np.array_equal(results[0], LEFT - RIGHT)


def test_outputs_by_place_and_by_name() -> None:
    results: Any = onnx_backend.run_model(difference(), [LEFT, RIGHT])
    assert np.array_equal(results[0], results["out"]) and np.array_equal(results[0], results.out)


def test_one_array_is_the_only_input() -> None:
    image = np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)
    (probabilities,) = onnx_backend.run_model(build_model(), image)
    assert probabilities.shape == (2, 10)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)


def test_tensors_of_onnx_are_inputs_too() -> None:
    tensors = [numpy_helper.from_array(array) for array in (LEFT, RIGHT)]
    assert np.array_equal(onnx_backend.run_model(difference(), tensors)[0], LEFT - RIGHT)
    by_name = dict(zip(("left", "right"), tensors, strict=True))
    assert np.array_equal(onnx_backend.run_model(difference(), by_name)[0], LEFT - RIGHT)


def test_wrong_number_of_inputs() -> None:
    with pytest.raises(InputError) as caught:
        onnx_backend.run_model(difference(), [LEFT])
    assert str(caught.value).splitlines() == [
        "FT401: the model takes another number of inputs",
        "  expected 2: left, right; got 1",
        "  hint: pass one array for every input, in the model's order or by name",
    ]


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ({"left": LEFT}, "input 'right' is missing"),
        ({"left": LEFT, "right": RIGHT, "middle": RIGHT}, "the model has no input 'middle'"),
        ([LEFT.astype(np.float64), RIGHT], "input 'left' has the wrong type"),
        ([LEFT, RIGHT[0]], "input 'right' has the wrong type"),
        ([LEFT, np.ones((3, 2), np.float32)], "the shape of 'right' disagrees with the model"),
    ],
)
def test_wrong_inputs(inputs: object, what: str) -> None:
    with pytest.raises(InputError, match=what):
        onnx_backend.run_model(difference(), inputs)


def test_unsupported_model() -> None:
    with pytest.raises(UnsupportedOperators, match="Voodoo"):
        onnx_backend.prepare(difference("Voodoo"))


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU") and onnx_backend.supports_device("cpu:0")
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(UsageError, match="the device is not supported"):
        onnx_backend.prepare(difference(), "CUDA:1")


def test_compatible_is_what_can_run() -> None:
    assert onnx_backend.is_compatible(difference())
    assert not onnx_backend.is_compatible(difference(), "CUDA")
    assert not onnx_backend.is_compatible(difference("Voodoo"))


def test_run_node() -> None:
    (out,) = onnx_backend.run_node(helper.make_node("Sub", ["a", "b"], ["y"]), [LEFT, RIGHT])
    assert np.array_equal(out, LEFT - RIGHT)


def test_run_node_skips_absent_inputs() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    assert onnx_backend.run_node(node, [LEFT, np.float32(6)])[0].tolist() == [[5, 6]]


def test_run_node_reads_one_value_twice() -> None:
    assert onnx_backend.run_node(helper.make_node("Mul", ["x", "x"], ["y"]), [LEFT, LEFT])[0].tolist() == [[25, 49]]


def test_run_node_of_another_domain_and_dtype() -> None:
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=6.0)
    assert onnx_backend.run_node(node, [LEFT])[0].tolist() == [[0, 1]]
    narrow = LEFT.astype(ml_dtypes.bfloat16)
    (out,) = onnx_backend.run_node(helper.make_node("Neg", ["x"], ["y"]), [narrow])
    assert out.dtype == narrow.dtype and out.tolist() == [[-5, -7]]


def test_run_node_in_an_old_opset() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"])
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    old, new = (onnx_backend.run_node(node, [x], opset_version=version)[0] for version in (11, 13))
    np.testing.assert_allclose(old.reshape(2, 4).sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(new.sum(axis=2), 1, rtol=1e-6)


def test_run_node_with_the_wrong_number_of_inputs() -> None:
    with pytest.raises(InputError, match="Sub takes another number of inputs"):
        onnx_backend.run_node(helper.make_node("Sub", ["a", "b"], ["y"]), [LEFT])


@pytest.mark.parametrize("options", [{"engine": "evaluator"}, {"engine": "compiler"}, {"native_only": True}])
def test_engines_agree(options: dict[str, Any]) -> None:
    results = onnx_backend.run_model(difference(), [LEFT, RIGHT], **options)
    assert np.array_equal(results[0], LEFT - RIGHT)
    node = helper.make_node("Sub", ["a", "b"], ["y"])
    assert np.array_equal(onnx_backend.run_node(node, [LEFT, RIGHT], **options)[0], LEFT - RIGHT)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"engine": "magic"}, "there is no such engine"),
        ({"engine": "evaluator", "native_only": True}, "the evaluator has no native code"),
    ],
)
def test_wrong_engines(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        onnx_backend.prepare(difference(), **options)


def binarizer() -> onnx.ModelProto:
    """out = 1 where x > 6, an operator without a definition of ours"""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("x", "out")]
    node = helper.make_node("Binarizer", ["x"], ["out"], domain="ai.onnx.ml", threshold=6.0)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "g", types[:1], types[1:]), opset_imports=opsets)


def test_what_has_no_native_code_runs_with_a_warning_or_is_refused() -> None:
    with pytest.warns(UserWarning, match="slow reference path: Binarizer"):
        prepared = onnx_backend.prepare(binarizer())
    assert prepared.run([LEFT])[0].tolist() == [[0, 1]]
    with pytest.raises(NotNative) as caught:
        onnx_backend.prepare(binarizer(), native_only=True)
    assert str(caught.value).splitlines() == [
        "FT114: the model needs operators that have no native code",
        "  expected operators that foretell compiles; got Binarizer",
        "  hint: leave native_only out to run them on the slow reference path",
    ]


def test_values_of_inputs_may_decide_what_is_native() -> None:
    dropout = helper.make_node("Dropout", ["x", "ratio", "training"], ["y"], seed=0)
    arrays = [LEFT, np.float32(0), np.bool_(True)]
    assert np.array_equal(onnx_backend.run_node(dropout, arrays, native_only=True)[0], LEFT)
    with pytest.raises(NotNative):
        onnx_backend.run_node(dropout, [LEFT, np.float32(0.5), np.bool_(True)], native_only=True)
