"""Resize and Upsample against onnx's reference, and against onnxruntime where the reference has no say.

The reference knows neither operator set 10 nor a linear Upsample. For a result of one element it puts a coordinate of
pytorch_half_pixel at -0.5 and one of tf_crop_and_resize at the region's start; ONNX says 0 and the region's centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from foretell.frontend.import_onnx import import_onnx
from foretell.frontend.operators.resize_tables import Interpolation, ResizedAxis, coordinates_of
from foretell.graph.evaluate import evaluate
from foretell.support.errors import ForetellError, InvalidNode
from tests.frontend.operators.single_node import Numbers, SingleNode, assert_near, single_node

quick = settings(max_examples=80, deadline=None)
TRANSFORMS = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
SCALES = [0.33, 0.5, 0.6, 0.9, 1.0, 1.7, 2.0, 2.3, 3.0]


def numbers(*shape: int, dtype: Any = np.float32) -> Numbers:
    wide = np.random.default_rng(0).standard_normal(shape) * 30
    return wide.astype(dtype) if np.dtype(dtype).kind == "f" else np.clip(np.rint(wide), 0, 99).astype(dtype)


def floats(*values: float) -> Numbers:
    return np.array(values, np.float32)


def resize(x: Numbers, opset: int = 19, **given: Any) -> SingleNode:
    """A Resize whose roi, scales and sizes are constants; the rest are attributes."""
    arrays = [x, *(given.pop(name, None) for name in ("roi", "scales", "sizes"))]
    return single_node("Resize", arrays, opset=opset, constants=[1, 2, 3], **given)


def operators(node: SingleNode) -> list[str]:
    return [added.op for added in node.graph().nodes]


def is_noisy(axis: ResizedAxis, rule: Interpolation) -> bool:
    """Whether a coordinate is a rounding error away from a choice.

    The reference adds its padding before it looks for the neighbours, but not before it takes the distance from them;
    so it makes 1.0000000000000002 an element 0 of weight 1, as when it resizes three elements to one.
    """
    places = coordinates_of(axis, rule)
    error = np.abs(places - np.rint(2 * places) / 2)
    return bool(((error > 0) & (error < 1e-9)).any())


@st.composite
def resizes(draw: st.DrawFn) -> SingleNode:
    opset, mode = draw(st.sampled_from([13, 18, 19])), draw(st.sampled_from(["nearest", "linear", "cubic"]))
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    transform = draw(st.sampled_from([t for t in TRANSFORMS if opset >= 19 or t != "half_pixel_symmetric"]))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(NEAREST))
    else:
        attributes["exclude_outside"] = draw(st.integers(0, 1))
        attributes |= {"antialias": draw(st.integers(0, 1))} if opset >= 18 else {}
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
    axes = list(range(len(shape)))
    if opset >= 18 and draw(st.booleans()):
        axes = draw(st.permutations(axes))[: draw(st.integers(1, len(axes)))]
        attributes["axes"] = axes
    least = 2 if transform == "pytorch_half_pixel" else 1
    scales = [s for s in SCALES if all(s * extent >= least for extent in shape)]
    if scales and draw(st.booleans()):
        attributes["scales"] = floats(*(draw(st.sampled_from(scales)) for _ in axes))
        plans = [
            ResizedAxis(axis, shape[axis], int(shape[axis] * float(scale)), float(scale))
            for axis, scale in zip(axes, attributes["scales"], strict=True)
        ]
    else:
        attributes["sizes"] = np.array([draw(st.integers(least, 11)) for _ in axes])
        plans = [
            ResizedAxis(axis, shape[axis], int(size), int(size) / shape[axis])
            for axis, size in zip(axes, attributes["sizes"], strict=True)
        ]
    assume(not any(is_noisy(plan, Interpolation(mode, transform)) for plan in plans))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.float16, np.uint8]))
    return resize(numbers(*shape, dtype=dtype), opset, **attributes)


@quick
@given(node=resizes())
def test_resize(node: SingleNode) -> None:
    found, expected = node.run(), node.by_reference()
    if found[0].size == 0:
        assert found[0].shape == expected[0].shape
    elif found[0].dtype == np.uint8:
        # A tie may round either way.
        assert np.abs(found[0].astype(int) - expected[0]).max() <= 1
    else:
        # The reference computes coordinates in float32: its weights, and so its error, are of the scale of the data.
        scale = max(1.0, float(np.abs(expected[0]).max()))
        assert_near(found, expected, 5e-3 if found[0].dtype == np.float16 else 1e-4 * scale)


def test_the_middle_of_three() -> None:
    """A rounding error away from an integer; onnxruntime sees the middle, the reference the first."""
    node = resize(numbers(1, 1, 3, 3), 13, sizes=np.array([1, 1, 1, 1]), mode="linear")
    assert_near(node.run(), node.by_onnxruntime())
    assert node.run()[0].item() == numbers(1, 1, 3, 3)[0, 0, 1, 1]


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("sizes", [(7, 8), (1, 9), (3, 2)])
def test_aspect_ratios(policy: str, sizes: tuple[int, int]) -> None:
    for mode in ("nearest", "linear", "cubic"):
        node = resize(
            numbers(2, 4, 5), 18, sizes=np.array(sizes), axes=[1, 2], keep_aspect_ratio_policy=policy, mode=mode
        )
        assert_near(node.run(), node.by_reference(), 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("roi", [(0.1, 0.2, 0.75, 0.9), (-0.21, 0.3, 0.8, 1.33)])
def test_crop_and_resize(mode: str, roi: tuple[float, ...]) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
    node = resize(numbers(4, 5), 13, roi=floats(*roi), sizes=np.array([6, 3]), **attributes)
    assert_near(node.run(), node.by_reference(), 1e-4)
    assert ("Where" in operators(node)) == (roi[0] < 0)
    node = resize(numbers(2, 4, 5), 18, roi=floats(*roi), sizes=np.array([3, 6]), axes=[2, 1], **attributes)
    assert_near(node.run(), node.by_reference(), 1e-4)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transform", ["pytorch_half_pixel", "tf_crop_and_resize"])
def test_a_single_element(mode: str, transform: str) -> None:
    node = resize(
        numbers(1, 1, 5, 6),
        13,
        roi=floats(0, 0, 0, 0, 1, 1, 1, 1),
        sizes=np.array([1, 1, 1, 9]),
        mode=mode,
        coordinate_transformation_mode=transform,
    )
    assert_near(node.run(), node.by_onnxruntime(), 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 1.7, 2.5), (1, 1, 0.6, 0.5), (1, 1, 1, 2)])
@pytest.mark.parametrize("opset", [7, 9, 10])
def test_before_opset_11(mode: str, scales: tuple[float, ...], opset: int) -> None:
    x = numbers(1, 2, 5, 6)
    if opset == 10:
        node = single_node("Resize", [x, floats(*scales)], opset=10, constants=[1], mode=mode)
    elif min(scales) < 1:
        return
    elif opset == 7:
        node = single_node("Upsample", [x], opset=7, mode=mode, scales=list(map(float, scales)))
    else:
        node = single_node("Upsample", [x, floats(*scales)], opset=9, constants=[1], mode=mode)
    assert_near(node.run(), node.by_onnxruntime(), 1e-4)


def test_tf_half_pixel_for_nn() -> None:
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    empty = np.zeros(0, np.float32)
    node = resize(numbers(1, 1, 5, 6), 11, roi=empty, scales=floats(1, 1, 1.7, 0.6), **attributes)
    assert_near(node.run(), node.by_onnxruntime(), 0)


def test_what_becomes_of_it() -> None:
    x = numbers(1, 2, 4, 4)
    assert operators(resize(x, scales=floats(1, 1, 2, 1), mode="nearest")) == ["Gather"]
    assert operators(resize(x, scales=floats(1, 1, 2, 2), mode="linear")) == ["Resample", "Resample"]
    assert operators(resize(x, scales=floats(1, 1, 1, 1), mode="cubic")) == []
    half = resize(x.astype(np.float16), scales=floats(1, 1, 2, 1), mode="linear")
    assert operators(half) == ["Cast", "Resample", "Cast"]
    byte = resize(x.astype(np.uint8), scales=floats(1, 1, 2, 1), mode="linear")
    assert operators(byte) == ["Cast", "Resample", "Round", "Max", "Min", "Cast"]


@pytest.mark.parametrize("transform", ["asymmetric", "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"])
def test_an_axis_of_unknown_extent_can_be_repeated(transform: str) -> None:
    attributes: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": transform}
    attributes |= {"nearest_mode": "floor"} if transform == "asymmetric" else {}
    arrays = [numbers(1, 2, 2, 3), None, floats(1, 1, 2, 3)]
    graph = single_node("Resize", arrays, opset=19, constants=[2], symbolic=True, **attributes).native_graph()
    for shape in [(1, 2, 2, 3), (3, 1, 1, 1), (1, 1, 5, 7)]:
        expected = resize(numbers(*shape), scales=floats(1, 1, 2, 3), **attributes).by_reference()
        assert_near(list(evaluate(graph, {"x0": numbers(*shape)}).values()), expected, 0)


def test_sizes_computed_from_the_shape() -> None:
    """Twice the height and width of an image of unknown size, as exporters spell it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["factors"], value_ints=[1, 1, 2, 2]),
        helper.make_node("Mul", ["shape", "factors"], ["sizes"]),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 19)])
    graph = import_onnx(model).require_graph()
    assert "Onnx" not in [node.op for node in graph.nodes]
    image = numbers(2, 3, 4, 5)
    np.testing.assert_array_equal(evaluate(graph, {"x": image})["y"], image.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize(
    ("symbolic", "constants", "attributes"),
    [
        (True, [2], {"mode": "linear"}),
        (True, [2], {"mode": "nearest", "coordinate_transformation_mode": "align_corners"}),
        (True, [2], {"mode": "nearest", "nearest_mode": "ceil"}),
        (False, [], {"mode": "nearest"}),
    ],
)
def test_what_is_left_to_the_reference(symbolic: bool, constants: list[int], attributes: dict[str, Any]) -> None:
    arrays = [numbers(1, 1, 4, 4), None, floats(1, 1, 2, 2)]
    node = single_node("Resize", arrays, opset=19, symbolic=symbolic, constants=constants, **attributes)
    assert operators(node) == ["Onnx"]


def test_wide_integers_are_left_to_the_reference() -> None:
    assert operators(resize(np.ones((1, 4), np.int64), scales=floats(1, 2), mode="linear")) == ["Onnx"]
    assert operators(resize(np.ones((1, 4), np.int64), scales=floats(1, 2), mode="nearest")) == ["Gather"]


def test_large_tables_are_left_to_the_reference() -> None:
    x = helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 1 << 24])
    node = resize(numbers(1, 1), scales=floats(1, 0.5), mode="linear", antialias=1)
    node.model.graph.input[0].CopyFrom(x)
    assert operators(node) == ["Onnx"]


def test_empty_results() -> None:
    for mode in ("nearest", "linear"):
        for transform in TRANSFORMS:
            attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
            assert resize(numbers(2, 3), sizes=np.array([2, 0]), **attributes).run()[0].shape == (2, 0)
    assert resize(numbers(0, 3), scales=floats(2, 2), mode="linear").run()[0].shape == (0, 6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scales": floats(1, 2), "sizes": np.array([1, 2])}, "exactly one"),
        ({}, r"exactly one|required"),
        ({"scales": floats(1, 2, 3)}, "scales"),
        ({"scales": floats(1, -2)}, "scales"),
        ({"scales": floats(1, np.nan)}, "scales"),
        ({"scales": floats(1, np.inf)}, "scales"),
        ({"sizes": np.array([1, -2])}, "sizes"),
        ({"sizes": np.array([1, 2, 3])}, "sizes"),
        ({"scales": floats(1, 2), "mode": "area"}, "mode"),
        ({"scales": floats(1, 2), "coordinate_transformation_mode": "none"}, "coordinate_transformation_mode"),
        ({"scales": floats(1, 2), "nearest_mode": "none"}, "nearest_mode"),
        ({"scales": floats(1, 2), "antialias": 1}, "antialias"),
        ({"scales": floats(2), "axes": [2]}, "axis 2"),
        ({"scales": floats(2, 2), "axes": [1, -1]}, "repeat"),
        ({"sizes": np.array([3, 3]), "keep_aspect_ratio_policy": "none"}, "keep_aspect_ratio_policy"),
        ({"sizes": np.array([3, 3]), "coordinate_transformation_mode": "tf_crop_and_resize"}, "roi"),
        (
            {"sizes": np.array([3, 3]), "coordinate_transformation_mode": "tf_crop_and_resize", "roi": floats(0, 1)},
            "roi",
        ),
    ],
)
def test_broken_nodes(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidNode, match=message):
        resize(numbers(3, 4), 19, **attributes).graph()


def test_broken_upsamples() -> None:
    with pytest.raises(InvalidNode, match="1 or more"):
        single_node("Upsample", [numbers(3, 4), floats(1, 0.5)], opset=9, constants=[1]).graph()
    with pytest.raises(InvalidNode, match="mode"):
        single_node("Upsample", [numbers(3, 4), floats(1, 2)], opset=9, constants=[1], mode="cubic").graph()
    with pytest.raises(InvalidNode, match="empty"):
        resize(numbers(3, 0), sizes=np.array([3, 2])).graph()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"scales": floats(1e9, 1e9)},
        {"scales": floats(3e38, 1)},
        {"sizes": np.array([1 << 20, 1 << 20])},
        {"sizes": np.array([1 << 62, 1 << 62])},
    ],
)
def test_bombs_are_refused(mode: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(ForetellError, match=r"too large|overflows"):
        resize(numbers(3, 4), mode=mode, **attributes).graph()
