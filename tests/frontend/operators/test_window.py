"""Pools, LRN, transposed convolution and their inverses against onnxruntime, or onnx's reference where that is right.

The reference counts LRN's channels by the batch, reduces a GlobalMaxPool over the wrong axes unless it has two, spreads
the overhang of ceil_mode over both ends, ignores storage_order without strides, and interleaves groups wrongly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.frontend.import_onnx import import_onnx
from foretell.graph.evaluate import evaluate
from foretell.support.errors import ForetellError, InvalidNode
from tests.frontend.operators.single_node import Numbers, assert_near, single_node

quick = settings(max_examples=40, deadline=None)


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Numbers:
    wide = np.random.default_rng(seed).standard_normal(shape) * 30
    return wide.astype(dtype) if np.dtype(dtype).kind == "f" else np.clip(np.rint(wide), 0, 99).astype(dtype)


@st.composite
def pools(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A shape and the attributes of a pool that onnxruntime accepts: padding is smaller than the kernel."""
    rank, extents, mode = draw(st.integers(1, 3)), [], draw(st.sampled_from(["NOTSET", "VALID", "SAME"]))
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    strides = [draw(st.integers(1, kernel[k] if mode == "SAME" else 4)) for k in range(rank)]
    # onnxruntime forgets the dilation where it computes SAME padding.
    dilations = [1 if mode == "SAME" else draw(st.integers(1, 2)) for _ in range(rank)]
    pads = [draw(st.integers(0, kernel[k % rank] - 1)) if mode == "NOTSET" else 0 for k in range(2 * rank)]
    for k in range(rank):
        reach = dilations[k] * (kernel[k] - 1) + 1
        # A window that sees padding alone has no result.
        least = max(1, reach - pads[k] - pads[k + rank], dilations[k])
        extents.append(draw(st.integers(1 if mode == "SAME" else least, 9)))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    if mode == "NOTSET":
        attributes["pads"] = pads
    else:
        attributes["auto_pad"] = "VALID" if mode == "VALID" else draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
    return (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *extents), {
        **attributes,
        "ceil_mode": draw(st.integers(0, 1)),
    }


@quick
@given(
    case=pools(),
    dtype=st.sampled_from([np.float32, np.float64, np.int8, np.uint8]),
    order=st.integers(0, 1),
    outputs=st.sampled_from([("y",), ("y", "i")]),
    symbolic=st.booleans(),
)
def test_max_pool(
    case: tuple[tuple[int, ...], dict[str, Any]], dtype: Any, order: int, outputs: tuple[str, ...], symbolic: bool
) -> None:
    shape, attributes = case
    node = single_node(
        "MaxPool",
        [numbers(*shape, dtype=dtype)],
        outputs=outputs,
        opset=12,
        symbolic=symbolic,
        storage_order=order,
        **attributes,
    )
    assert_near(node.run(), node.by_onnxruntime(), 0)


@quick
@given(case=pools(), include=st.integers(0, 1), symbolic=st.booleans())
def test_average_pool(case: tuple[tuple[int, ...], dict[str, Any]], include: int, symbolic: bool) -> None:
    shape, attributes = case
    node = single_node(
        "AveragePool", [numbers(*shape)], opset=22, symbolic=symbolic, count_include_pad=include, **attributes
    )
    assert_near(node.run(), node.by_onnxruntime())


@quick
@given(case=pools(), p=st.integers(1, 3), symbolic=st.booleans())
def test_lp_pool(case: tuple[tuple[int, ...], dict[str, Any]], p: int, symbolic: bool) -> None:
    shape, attributes = case
    node = single_node("LpPool", [numbers(*shape)], opset=18, symbolic=symbolic, p=p, **attributes)
    assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("opset", [7, 8, 10, 11, 12, 22])
def test_opsets_of_pools(opset: int) -> None:
    x = numbers(1, 2, 7, 5)
    for op in ("MaxPool", "AveragePool"):
        node = single_node(op, [x], opset=opset, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
        assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("upper", [True, False])
def test_same_pads_of_a_symbolic_dimension(upper: bool) -> None:
    """The padding depends on the extent: one import serves all."""
    mode = "SAME_UPPER" if upper else "SAME_LOWER"
    first = single_node("MaxPool", [numbers(1, 1, 1)], symbolic=True, kernel_shape=[3], strides=[2], auto_pad=mode)
    graph = first.native_graph()
    conv = single_node("Conv", [numbers(1, 1, 1), numbers(1, 1, 3)], symbolic=True, constants=[1], strides=[2],
                       auto_pad=mode)  # fmt: skip
    for extent in range(1, 8):
        x = numbers(1, 1, extent)
        node = single_node("MaxPool", [x], opset=12, kernel_shape=[3], strides=[2], auto_pad=mode)
        assert_near(list(evaluate(graph, {"x0": x}).values()), node.by_onnxruntime(), 0)
        node = single_node("Conv", [x, numbers(1, 1, 3)], constants=[1], opset=11, strides=[2], auto_pad=mode)
        assert_near(list(evaluate(conv.native_graph(), {"x0": x}).values()), node.by_onnxruntime(), 1e-3)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (1, 2, 3, 4), (2, 1, 2, 3, 2)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_global_pools(op: str, shape: tuple[int, ...], symbolic: bool) -> None:
    attributes: dict[str, Any] = {"p": 3} if "Lp" in op else {}
    node = single_node(op, [numbers(*shape)], opset=11, symbolic=symbolic, **attributes)
    assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_lrn(size: int) -> None:
    node = single_node("LRN", [numbers(2, 4, 3, 2)], opset=13, symbolic=True, size=size, alpha=0.01, bias=2.0)
    assert_near(node.run(), node.by_onnxruntime())


@st.composite
def transposed(draw: st.DrawFn) -> tuple[list[Numbers], dict[str, Any]]:
    rank, group, channels = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    axes = st.lists(st.integers(1, 4), min_size=rank, max_size=rank)
    extents, kernel, strides, dilations = draw(axes), draw(axes), draw(axes), draw(axes)
    extra = [draw(st.integers(0, strides[k] - 1)) for k in range(rank)]
    full = [strides[k] * (extents[k] - 1) + extra[k] + dilations[k] * (kernel[k] - 1) + 1 for k in range(rank)]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "output_padding": extra, "group": group}
    how = draw(st.sampled_from(["pads", "auto_pad", "output_shape"]))
    if how == "pads":
        attributes["pads"] = [draw(st.integers(0, (full[k % rank] - 1) // 2)) for k in range(2 * rank)]
    else:
        attributes["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    if how == "output_shape":
        attributes["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "NOTSET"]))
        attributes["output_shape"] = [draw(st.integers(max(1, full[k] - 3), full[k])) for k in range(rank)]
    x, w = numbers(2, channels * group, *extents), numbers(channels * group, 2, *kernel, seed=1)
    return [x, w, numbers(2 * group, seed=2)][: draw(st.integers(2, 3))], attributes


@quick
@given(case=transposed(), symbolic=st.booleans())
def test_conv_transpose(case: tuple[list[Numbers], dict[str, Any]], symbolic: bool) -> None:
    arrays, attributes = case
    weights = range(1, len(arrays))
    node = single_node("ConvTranspose", arrays, opset=11, constants=weights, symbolic=symbolic, **attributes)
    assert_near(node.run(), node.by_onnxruntime(), 1e-3)


@pytest.mark.parametrize("opset", [8, 11, 22])
def test_same_never_widens_a_transposed_convolution(opset: int) -> None:
    """The reference would make nine elements of three by a kernel of one with stride three."""
    node = single_node(
        "ConvTranspose", [numbers(1, 1, 3), numbers(1, 1, 1)], opset=opset, strides=[3], auto_pad="SAME_UPPER"
    )
    assert node.run()[0].shape == (1, 1, 7)
    assert_near(node.run(), node.by_onnxruntime())


@quick
@given(
    image=st.tuples(st.integers(3, 6), st.integers(3, 6)),
    block=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)),
)
def test_col2im(image: Any, block: Any, strides: Any, dilations: Any, pads: Any) -> None:
    blocks = [(image[k] + pads[k] + pads[k + 2] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1 for k in (0, 1)]
    arrays = [numbers(2, 2 * block[0] * block[1], blocks[0] * blocks[1]), np.array(image), np.array(block)]
    node = single_node("Col2Im", arrays, opset=18, constants=[1, 2], strides=strides, dilations=dilations, pads=pads)
    assert_near(node.run(), node.by_reference())


def test_a_col2im_of_unknown_shape_is_left_to_the_reference() -> None:
    graph = single_node("Col2Im", [numbers(1, 4, 4), np.array([3, 3]), np.array([2, 2])], opset=18).graph()
    assert [node.op for node in graph.nodes] == ["Onnx"]


@pytest.mark.parametrize("more", [None, (0, 0), (2, 1)])
def test_max_unpool(more: tuple[int, int] | None) -> None:
    pooled = single_node(
        "MaxPool", [numbers(2, 2, 4, 6)], outputs=("y", "i"), opset=12, kernel_shape=[2, 2], strides=[2, 2]
    )
    y, indices = pooled.by_onnxruntime()
    shape = None if more is None else np.array([2, 2, 4 + more[0], 6 + more[1]])
    node = single_node("MaxUnpool", [y, indices, shape], opset=11, constants=[2], kernel_shape=[2, 2], strides=[2, 2])
    assert_near(node.run(), node.by_reference(), 0)


IMAGE = numbers(1, 1, 4, 4)


@pytest.mark.parametrize(
    ("op", "arrays", "attributes", "message"),
    [
        ("MaxPool", [numbers(2, 3)], {"kernel_shape": [2]}, "spatial axis"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2]}, "does not fit"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 0]}, "does not fit"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [0, 1]}, "strides"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "pads": [0, 1]}, "pads"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "pads": [0, 0, -1, 0]}, "pads"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "auto_pad": "SAME"}, "auto_pad"),
        ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "storage_order": 2}, "storage_order"),
        ("MaxPool", [IMAGE], {"kernel_shape": [9, 9]}, "does not fit into"),
        ("LpPool", [IMAGE], {"kernel_shape": [2, 2], "p": 0}, "p must be positive"),
        ("GlobalLpPool", [IMAGE], {"p": -1}, "p must be positive"),
        ("GlobalMaxPool", [numbers(2, 3)], {}, "spatial axis"),
        ("LRN", [IMAGE], {"size": 0}, "LRN over 0"),
        ("ConvTranspose", [IMAGE, numbers(2, 1, 2, 2)], {}, "channels"),
        ("ConvTranspose", [IMAGE, numbers(1, 1, 2, 2)], {"kernel_shape": [3, 3]}, "kernel_shape"),
        ("ConvTranspose", [IMAGE, numbers(1, 1, 2, 2)], {"pads": [9, 9, 9, 9]}, "nothing is left"),
        ("ConvTranspose", [IMAGE, numbers(1, 1, 2, 2)], {"output_shape": [5]}, "output_shape"),
        ("ConvTranspose", [IMAGE, numbers(1, 1, 2, 2)], {"output_padding": [-1, 0]}, "output_padding"),
        ("ConvTranspose", [IMAGE, numbers(1, 1, 2, 2)], {"group": 0}, "group"),
        ("Col2Im", [numbers(1, 4, 4), np.array([3, 3]), np.array([2, 0])], {}, "blocks"),
        ("Col2Im", [numbers(1, 4, 5), np.array([3, 3]), np.array([2, 2])], {}, "4 blocks"),
        ("MaxUnpool", [IMAGE, np.zeros((1, 1, 2, 2), np.int64)], {"kernel_shape": [2, 2]}, "do not fit"),
    ],
)
def test_broken_nodes(op: str, arrays: list[Numbers], attributes: dict[str, Any], message: str) -> None:
    node = single_node(op, arrays, opset=18, constants=[1, 2] if op == "Col2Im" else [], **attributes)
    with pytest.raises(ForetellError, match=message):
        node.graph()


@pytest.mark.parametrize(
    ("op", "arrays", "attributes"),
    [
        ("MaxPool", [IMAGE], {"kernel_shape": [1 << 30, 1 << 30], "pads": [1 << 30] * 4, "strides": [1 << 30] * 2}),
        ("AveragePool", [IMAGE], {"kernel_shape": [1, 1], "pads": [1 << 30] * 4}),
        ("LRN", [IMAGE], {"size": (1 << 31) - 1}),
        ("ConvTranspose", [IMAGE, numbers(1, 1, 2, 2)], {"strides": [1 << 30, 1 << 30]}),
        ("ConvTranspose", [IMAGE, numbers(1, 1, 2, 2)], {"output_shape": [1 << 30, 1 << 30]}),
        ("Col2Im", [numbers(1, 1, 1), np.array([1 << 40, 1 << 40]), np.array([1, 1])], {"strides": [1 << 30] * 2}),
        ("MaxUnpool", [IMAGE, np.zeros((1, 1, 4, 4), np.int64)], {"kernel_shape": [1 << 30, 1 << 30]}),
    ],
)
def test_bombs_are_refused(op: str, arrays: list[Numbers], attributes: dict[str, Any]) -> None:
    node = single_node(op, arrays, opset=18, constants=range(len(arrays)), **attributes)
    with pytest.raises(ForetellError) as caught:
        import_onnx(node.model)
    assert not isinstance(caught.value, InvalidNode) or op == "Col2Im", str(caught.value)
