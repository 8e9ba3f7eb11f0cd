"""Fourier transforms against numpy and onnx's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretell.support.errors import InvalidNode
from tests.frontend.operators.single_node import Numbers, SingleNode, assert_near, single_node

AXIS = np.array(1, np.int64)


def numbers(*shape: int) -> Numbers:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def transform(x: Numbers, length: int | None = None, **attributes: Any) -> SingleNode:
    operands = [x, None if length is None else np.array(length, np.int64), AXIS]
    return single_node("DFT", operands, opset=20, constants=[1, 2], **attributes)


@pytest.mark.parametrize("extent", [1, 2, 7, 16])
@pytest.mark.parametrize("length", [None, 5])
@pytest.mark.parametrize(
    ("parts", "attributes"), [(1, {}), (2, {}), (1, {"onesided": 1}), (2, {"onesided": 1, "inverse": 1})], ids=str
)
def test_dft(extent: int, length: int | None, parts: int, attributes: dict[str, Any]) -> None:
    if attributes.get("inverse") and extent == 1 and length is None:
        return  # a signal of no samples
    node = transform(numbers(2, extent, 3, parts), length, **attributes)
    assert_near(node.run(), node.by_reference())


def test_dft_of_opset_17_has_its_axis_as_an_attribute() -> None:
    node = single_node("DFT", [numbers(3, 6, 1)], opset=17, axis=0)
    assert_near(node.run(), node.by_reference())


def test_a_vector() -> None:
    x = numbers(8, 1)
    (found,) = single_node("DFT", [x], opset=20).run()
    expected = np.fft.fft(x[:, 0])
    assert_near([found], [np.stack([expected.real, expected.imag], -1).astype(np.float32)])


@pytest.mark.parametrize("node", [transform(numbers(1, 4096, 1)), transform(numbers(1, 4, 2), inverse=1)], ids=str)
def test_what_is_left_to_the_reference(node: SingleNode) -> None:
    assert [operator.op for operator in node.graph().nodes] == ["Onnx"]


@pytest.mark.parametrize(("parts", "onesided"), [(1, 1), (1, 0), (2, 0)])
@pytest.mark.parametrize("windowed", [True, False])
def test_stft(parts: int, onesided: int, windowed: bool) -> None:
    window = np.hanning(9).astype(np.float32) if windowed else None
    operands = [numbers(2, 40, parts), np.array(4, np.int64), window, np.array(9, np.int64)]
    node = single_node("STFT", operands, opset=17, constants=[1, 3], onesided=onesided)
    assert_near(node.run(), node.by_reference())
    assert "Conv" in [operator.op for operator in node.graph().nodes]


def test_stft_of_a_symbolic_signal() -> None:
    window = np.hanning(8).astype(np.float32)
    node = single_node("STFT", [numbers(1, 30, 1), np.array(3, np.int64), window], opset=17, constants=[1, 2])
    node.model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "samples"
    assert_near(node.run(), node.by_reference())


def test_what_makes_no_sense_is_refused() -> None:
    step, window = np.array(0, np.int64), np.ones(4, np.float32)
    with pytest.raises(InvalidNode, match="frame_step is 0"):
        single_node("STFT", [numbers(1, 30, 1), step, window], opset=17, constants=[1]).graph()
    with pytest.raises(InvalidNode, match="the last axis holds"):
        single_node("DFT", [numbers(4, 1)], opset=17, axis=-1).graph()
    with pytest.raises(InvalidNode, match="must hold a real part"):
        transform(numbers(2, 4, 3)).graph()
