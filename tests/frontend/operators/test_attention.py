"""Attention against onnx's reference and onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from foretell.support.errors import InvalidNode
from tests.frontend.operators.single_node import Numbers, SingleNode, assert_near, single_node


@dataclass(frozen=True)
class Case:
    """The sizes and options of an Attention node; `mask` is its shape with letters for sizes, and its kind."""

    batch: int = 2
    groups: int = 2
    members: int = 1
    queries: int = 3
    keys: int = 5
    depth: int = 4
    width: int = 3
    past: int = 0
    mask: str = ""
    joined: bool = False
    dtype: str = "float32"

    def node(self, *, opset: int = 23, outputs: tuple[str, ...] = (), **attributes: Any) -> SingleNode:
        random, heads, total = np.random.default_rng(0), self.groups * self.members, self.keys + self.past

        def numbers(*shape: int) -> Numbers:
            return random.standard_normal(shape).astype(self.dtype)

        operands: list[Numbers | None] = [
            numbers(self.batch, heads, self.queries, self.depth),
            numbers(self.batch, self.groups, self.keys, self.depth),
            numbers(self.batch, self.groups, self.keys, self.width),
        ]
        if self.joined:
            operands = [a.swapaxes(1, 2).reshape(self.batch, a.shape[2], -1) for a in operands if a is not None]
            attributes = {"q_num_heads": heads, "kv_num_heads": self.groups, **attributes}
        letters, _, kind = self.mask.partition(":")
        sizes = {"1": 1, "b": self.batch, "h": heads, "q": self.queries, "k": total, "s": total - 1}
        shape = tuple(sizes[letter] for letter in letters)
        operands.append(None if not letters else numbers(*shape) > -0.5 if kind == "bool" else numbers(*shape))
        if self.past:
            operands += [numbers(self.batch, self.groups, self.past, width) for width in (self.depth, self.width)]
        names = outputs or (("y", "key", "value") if self.past else ("y",))
        return single_node("Attention", operands, outputs=names, opset=opset, **attributes)


MASKS = ("", "qk:bool", "qk:float", "bhqk:bool", "b1qk:float", "1hqk:float", "hqk:bool", "qs:float", "b1qs:bool")


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Case,
        groups=st.sampled_from([1, 2]),
        members=st.sampled_from([1, 1, 3]),
        queries=st.sampled_from([1, 3]),
        keys=st.sampled_from([2, 5]),
        past=st.sampled_from([0, 0, 2]),
        mask=st.sampled_from(MASKS),
        joined=st.booleans(),
    ),
    st.fixed_dictionaries(
        {}, optional={"is_causal": st.just(1), "scale": st.just(0.3), "softcap": st.sampled_from([0.0, 2.0])}
    ),
)
def test_as_the_reference(case: Case, attributes: dict[str, Any]) -> None:
    node = case.node(**attributes)
    assert "Attention" in [operator.op for operator in node.native_graph().nodes]
    assert_near(node.run(), node.by_reference())


@pytest.mark.parametrize("case", [Case(members=2), Case(past=3), Case(mask="bhqk:float"), Case(joined=True)], ids=str)
@pytest.mark.parametrize("causal", [0, 1])
def test_as_onnxruntime(case: Case, causal: int) -> None:
    node = case.node(is_causal=causal)
    assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("case", [Case(mask="qk:bool", members=2), Case(mask="qk:float"), Case(past=2)], ids=str)
def test_scores(mode: int, case: Case) -> None:
    outputs = ("y", "key", "value", "scores") if case.past else ("y", "", "", "scores")
    node = case.node(outputs=outputs, qk_matmul_output_mode=mode, is_causal=1)
    assert_near(node.run(), node.by_reference())


def test_scores_of_mode_0_are_not_capped() -> None:
    """As the standard says; the reference caps them."""
    node = Case().node(outputs=("y", "", "", "scores"), softcap=0.5)
    q, k = node.feeds["x0"], node.feeds["x1"]
    assert_near(node.run()[1:], [q @ k.swapaxes(2, 3) / 2])


@pytest.mark.parametrize(
    "attributes",
    [
        {"is_causal": 1},
        {"left_window_size": 1},
        {"left_window_size": 0, "right_window_size": 1},
        {"is_causal": 1, "left_window_size": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("past", [0, 2])
def test_windows(attributes: dict[str, Any], past: int) -> None:
    node = Case(past=past, mask="qk:float").node(opset=25, **attributes)
    assert_near(node.run(), node.by_reference())


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("lengths", [[5, 3], [0, 1]])
def test_padding(causal: int, lengths: list[int]) -> None:
    case = Case(members=2)
    operands = list(case.node().feeds.values())
    padded = [*operands, None, None, None, np.array(lengths, np.int64)]
    node = single_node("Attention", padded, opset=24, is_causal=causal)
    assert_near(node.run(), node.by_reference())


def test_a_query_that_sees_nothing_gets_zeros() -> None:
    node = Case(mask="qk:bool").node()
    node.feeds["x3"][1] = False
    (y,) = node.run()
    assert not y[:, :, 1].any() and y[:, :, 0].all()
    assert_near([y], node.by_reference())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(dtype: str) -> None:
    wide = Case(mask="qk:float").node().run()[0]
    (narrow,) = Case(mask="qk:float", dtype=dtype).node().run()
    np.testing.assert_allclose(narrow.astype(np.float64), wide, rtol=3e-2, atol=3e-2)


def test_masks_of_integers_are_added() -> None:
    node = Case(mask="qk:float").node()
    operands = [*list(node.feeds.values())[:3], np.arange(15, dtype=np.int64).reshape(3, 5)]
    integers = single_node("Attention", operands)
    assert_near(integers.run(), integers.by_reference())


def test_symbolic_lengths() -> None:
    case = Case(past=2, mask="b1qk:float", members=2)
    node = case.node(is_causal=1)
    for info in node.model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if axis in (0, 2):
                dim.dim_param = f"{info.name}_{axis}"
    assert_near(node.run(), case.node(is_causal=1).run(), 0)


def test_keys_are_not_repeated_for_their_group() -> None:
    graph = Case(members=4).node().native_graph()
    assert [node.op for node in graph.nodes] == ["Reshape", "Reshape", "Reshape", "Attention", "Reshape"]
    assert all(node.op != "Broadcast" for node in graph.nodes)


def test_a_wider_softmax_is_left_to_the_function_body() -> None:
    node = Case().node(softmax_precision=TensorProto.DOUBLE)
    assert "Attention" not in [operator.op for operator in node.graph().nodes]
    assert_near(node.run(), node.by_reference())


@pytest.mark.parametrize(
    ("case", "attributes", "message"),
    [
        (Case(joined=True), {"q_num_heads": 3}, "does not divide into 3 heads"),
        (Case(joined=True), {"q_num_heads": 0}, "does not divide into 0 heads"),
        (Case(), {"left_window_size": -2}, "windows of -2"),
        (Case(), {"qk_matmul_output_mode": 4, "outputs": ("y", "", "", "s")}, "qk_matmul_output_mode 4"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(case: Case, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidNode, match=message):
        case.node(opset=25, **attributes).graph()


def test_operands_that_do_not_fit_are_refused() -> None:
    q, k, v = Case().node().feeds.values()
    for operands, message in (
        ([q, k, v[0]], "3 or 4 axes"),
        ([q[:, :1], k, v], "do not divide into 2 groups"),
        ([q, k, v, None, k], "come together"),
        ([q, k, v, np.zeros((3, 7), np.float32)], "longer than the keys"),
        ([q, k, v[:, :, :2]], "do not fit together"),
    ):
        with pytest.raises(InvalidNode, match=message):
            single_node("Attention", operands).graph()
