"""RNN, GRU and LSTM against onnxruntime, and against the equations where that differs from the standard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.frontend.import_onnx import import_onnx
from foretell.support.errors import InvalidNode
from tests.frontend.operators.single_node import Numbers, SingleNode, assert_near, single_node

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
FUNCTIONS = (
    *("Relu", "Tanh", "Sigmoid", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu", "Softsign", "Softplus"),
    *("Affine", "ScaledTanh"),
)
OWN_DEFAULTS = ("Affine", "ScaledTanh", "ThresholdedRelu")


@dataclass(frozen=True)
class Case:
    """The sizes and options of a recurrent node."""

    op_type: str
    steps: int = 3
    batch: int = 2
    depth: int = 4
    hidden: int = 3
    direction: str = "forward"
    bias: bool = True
    lengths: tuple[int, ...] | None = None
    initial: bool = True
    peepholes: bool = False
    layout: int = 0
    dtype: str = "float32"

    def node(self, *, symbolic: bool = False, opset: int = 14, **attributes: Any) -> SingleNode:
        random, count = np.random.default_rng(0), 2 if self.direction == "bidirectional" else 1
        width = GATES[self.op_type] * self.hidden

        def numbers(*shape: int) -> Numbers:
            return random.standard_normal(shape).astype(self.dtype)

        x, w, r = (
            numbers(self.steps, self.batch, self.depth),
            numbers(count, width, self.depth),
            numbers(count, width, self.hidden),
        )
        bias = numbers(count, 2 * width)
        states = [numbers(count, self.batch, self.hidden) for _ in range(2 if self.op_type == "LSTM" else 1)]
        peepholes = numbers(count, 3 * self.hidden)
        if self.layout:
            x, states = x.swapaxes(0, 1), [state.swapaxes(0, 1) for state in states]
        inputs: list[Numbers | None] = [x, w, r, bias if self.bias else None]
        inputs.append(None if self.lengths is None else np.array(self.lengths, np.int32))
        inputs += [state if self.initial else None for state in states]
        if self.op_type == "LSTM":
            inputs.append(peepholes if self.peepholes else None)
        outputs = ("y", "y_h", "y_c") if self.op_type == "LSTM" else ("y", "y_h")
        if self.layout:
            attributes["layout"] = self.layout
        return single_node(
            self.op_type,
            inputs,
            outputs=outputs,
            opset=opset,
            symbolic=symbolic,
            direction=self.direction,
            hidden_size=self.hidden,
            **attributes,
        )


DIRECTIONS = st.sampled_from(["forward", "reverse", "bidirectional"])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps, batch = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 3]))
    lengths = st.tuples(*[st.integers(1, steps)] * batch)
    return Case(
        op_type=draw(st.sampled_from(["RNN", "GRU", "LSTM"])),
        steps=steps,
        batch=batch,
        depth=draw(st.sampled_from([1, 4])),
        hidden=draw(st.sampled_from([1, 3])),
        direction=draw(DIRECTIONS),
        bias=draw(st.booleans()),
        lengths=draw(st.none() | lengths),
        initial=draw(st.booleans()),
        peepholes=draw(st.booleans()),
    )


@settings(max_examples=40, deadline=None)
@given(cases())
def test_as_onnxruntime(case: Case) -> None:
    node = case.node()
    assert_near(node.run(), node.by_onnxruntime())


@settings(max_examples=25, deadline=None)
@given(cases(), st.data())
def test_activations_take_alphas_and_betas_in_order(case: Case, data: st.DataObject) -> None:
    count = ACTIVATIONS[case.op_type] * (2 if case.direction == "bidirectional" else 1)
    names = data.draw(st.lists(st.sampled_from(FUNCTIONS), min_size=count, max_size=count))
    # Short sequences: some of these functions grow without bound.
    case = replace(case, steps=1, lengths=None)
    numbers = [0.25 + number / 8 for number in range(count)]
    node = case.node(activations=names, activation_alpha=numbers, activation_beta=numbers[::-1])
    assert_near(node.run(), node.by_onnxruntime(), 1e-4)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in OWN_DEFAULTS])
def test_activations_have_the_defaults_of_onnxruntime(name: str) -> None:
    node = Case("RNN").node(activations=[name])
    assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("name", OWN_DEFAULTS)
def test_activations_have_the_defaults_of_their_operators(name: str) -> None:
    """As the standard says; onnxruntime takes 0 for each alpha."""
    node = Case("RNN", steps=1).node(activations=[name])
    x, w, r, b, h = (node.feeds[f"x{number}"] for number in (0, 1, 2, 3, 5))
    total = x[0] @ w[0].T + h[0] @ r[0].T + b[0, :3] + b[0, 3:]
    expected = {"Affine": total, "ScaledTanh": np.tanh(total), "ThresholdedRelu": np.where(total >= 1, total, 0)}
    assert_near(node.run()[1:], [expected[name][None]])


@pytest.mark.parametrize("case", [Case("GRU", direction="bidirectional"), Case("GRU", bias=False)], ids=str)
def test_linear_before_reset(case: Case) -> None:
    node = case.node(linear_before_reset=1)
    assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("peepholes", [False, True])
def test_input_and_forget_gates_may_be_coupled(peepholes: bool) -> None:
    node = Case("LSTM", peepholes=peepholes, direction="reverse").node(input_forget=1)
    assert_near(node.run(), node.by_onnxruntime())


@pytest.mark.parametrize("op_type", ["RNN", "GRU"])
def test_clip(op_type: str) -> None:
    node = Case(op_type, direction="bidirectional").node(clip=0.3)
    assert_near(node.run(), node.by_onnxruntime())


def test_clip_holds_for_every_activation() -> None:
    """The standard bounds the input of activations, h(c) included, which onnxruntime leaves out."""
    node = Case("LSTM", steps=1).node(clip=0.3, activations=["Sigmoid", "Tanh", "Affine"])
    y, _, c = node.run()
    assert np.abs(c).max() > 0.3, "no case at all"
    x, w, r, b, h = (node.feeds[f"x{number}"] for number in (0, 1, 2, 3, 5))
    gate = (x[0] @ w[0].T + h[0] @ r[0].T + b[0, :12] + b[0, 12:])[:, 3:6]
    expected = 1 / (1 + np.exp(-gate.clip(-0.3, 0.3))) * c[0].clip(-0.3, 0.3)
    assert_near([y[0, 0]], [expected])


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_layout_only_moves_axes(op_type: str, direction: str) -> None:
    case = Case(op_type, direction=direction, lengths=(3, 1))
    y, *states = case.node().run()
    moved = replace(case, layout=1).node().run()
    assert_near(moved, [y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in states)], 0)


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
def test_a_sequence_without_steps_keeps_its_state(op_type: str) -> None:
    none = Case(op_type, steps=0).node()
    y, *states = none.run()
    assert y.shape == (0, 1, 2, 3)
    assert_near(states, [none.feeds[f"x{5 + number}"] for number in range(len(states))], 0)
    one = Case(op_type, lengths=(0, 2)).node()
    y, *states = one.run()
    assert not y[:, :, 0].any() and not y[2:].any()
    assert_near([state[:, 0] for state in states], [one.feeds[f"x{5 + k}"][:, 0] for k in range(len(states))], 0)


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_symbolic_dimensions(op_type: str, direction: str) -> None:
    """Weights have known directions; time, batch and widths may all be symbols."""
    case = Case(op_type, direction=direction, lengths=(3, 2))
    node = case.node()
    for info in node.model.graph.input:
        first = 1 if info.name not in ("x0", "x4") else 0
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if axis >= first:
                dim.dim_param = f"{info.name}_{axis}"
    assert_near(node.run(), case.node().run(), 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-2), ("float64", 1e-6)])
def test_other_floats(dtype: str, tolerance: float) -> None:
    found = Case("LSTM", dtype=dtype).node(opset=22).run()
    assert all(array.dtype == dtype for array in found)
    wide = Case("LSTM").node(opset=22).run()
    assert_near([array.astype(np.float32) for array in found], wide, tolerance)


@pytest.mark.parametrize("opset", [7, 14, 22])
def test_every_opset(opset: int) -> None:
    node = Case("GRU").node(opset=opset)
    assert_near(node.run(), node.by_onnxruntime())


def test_weights_meet_the_input_once() -> None:
    """x W^T + b for all steps is one product in front of the loop; the body holds the one with the state."""
    graph = Case("LSTM").node().native_graph()
    assert [node.op for node in graph.nodes].count("MatMul") == 1
    (scan,) = (node for node in graph.nodes if node.op == "Scan")
    (body,) = scan.subgraphs
    assert [node.op for node in body.nodes].count("MatMul") == 1


def test_the_body_reads_like_the_equations() -> None:
    graph = Case("RNN", lengths=(1, 2)).node().native_graph()
    (body,) = next(node for node in graph.nodes if node.op == "Scan").subgraphs
    inputs = "%state: f32[2, 3], %slice: f32[2, 3], %slice_1: i32[], %captured: f32[3, 3], %captured_1: i32[2, 1]"
    assert str(body).splitlines() == [
        f"graph body({inputs}) {{",
        "  %c: f32[] = constant 0.0",
        "  %matmul: f32[2, 3] = MatMul(%state, %captured)",
        "  %add: f32[2, 3] = Add(%slice, %matmul)",
        "  %tanh: f32[2, 3] = Tanh(%add)",
        "  %less: bool[2, 1] = Less(%slice_1, %captured_1)",
        "  %where: f32[2, 3] = Where(%less, %tanh, %state)",
        "  %where_1: f32[2, 3] = Where(%less, %tanh, %c)",
        "  return output_0=%where, output_1=%where_1",
        "}",
    ]


@pytest.mark.parametrize(
    ("case", "attributes", "message"),
    [
        (Case("RNN", direction="sideways"), {}, "unknown direction"),
        (Case("RNN"), {"activations": ["Gelu"]}, "unknown activation"),
        (Case("LSTM"), {"activations": ["Tanh"]}, "1 activations, where 3"),
        (Case("GRU", direction="bidirectional"), {"activations": ["Tanh"] * 3}, "3 activations, where 4"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(case: Case, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidNode, match=message):
        case.node(**attributes).graph()


def test_sizes_that_disagree_are_refused() -> None:
    model = Case("RNN").node().model
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "hidden_size":
            attribute.i = 5
    with pytest.raises(InvalidNode, match="hidden_size is 5"):
        import_onnx(model)
    model = Case("RNN").node().model
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "direction":
            attribute.s = b"bidirectional"
    with pytest.raises(InvalidNode, match="2 directions are needed"):
        import_onnx(model)
    x, w, r = np.zeros((2, 3), np.float32), np.zeros((1, 4, 3), np.float32), np.zeros((1, 4, 4), np.float32)
    with pytest.raises(InvalidNode, match="three axes"):
        single_node("RNN", [x, w, r], opset=14, hidden_size=4).graph()
    with pytest.raises(InvalidNode, match="cannot reshape"):
        single_node("RNN", [x[None], w, r[:, :3]], opset=14, hidden_size=4).graph()
