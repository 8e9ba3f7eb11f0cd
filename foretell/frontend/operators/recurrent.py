"""RNN, GRU and LSTM as scans.

What does not depend on the state, x W^T + bias for all gates, is one matrix product over all steps in front of the
loop; a step adds h R^T, applies the gates and passes on its state. A bidirectional operator is two scans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from foretell.frontend.onnx_node import OnnxNode
from foretell.frontend.operators.importer import Importer
from foretell.frontend.operators.scan import Step, scan
from foretell.graph.build import Builder
from foretell.graph.nodes import Value
from foretell.ir.dtypes import I32
from foretell.ir.expr import Dim

# --- activations ---------------------------------------------------------------------------------------------

Activate: TypeAlias = Callable[[Builder, Value], Value]


@dataclass(frozen=True, slots=True)
class _Activation:
    """A function of x, and of alpha and beta where their defaults are given."""

    apply: Callable[[Builder, Value, float, float], Value]
    alpha: float | None = None
    beta: float | None = None


def _canonical(op: str) -> _Activation:
    return _Activation(lambda build, x, alpha, beta: build.op(op, x))


def _affine(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    scaled = build.op("Mul", x, build.scalar(alpha, x.dtype))
    return build.op("Add", scaled, build.scalar(beta, x.dtype))


def _leaky_relu(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    return build.op("LeakyRelu", x, alpha=alpha)


def _thresholded_relu(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    kept = build.op("GreaterOrEqual", x, build.scalar(alpha, x.dtype))
    return build.op("Where", kept, x, build.scalar(0, x.dtype))


def _scaled_tanh(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    inner = build.op("Tanh", build.op("Mul", x, build.scalar(beta, x.dtype)))
    return build.op("Mul", inner, build.scalar(alpha, x.dtype))


def _hard_sigmoid(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    return _bounded(build, _affine(build, x, alpha, beta), 0, 1)


def _elu(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    rise = build.op("Sub", build.op("Exp", x), build.scalar(1, x.dtype))
    below = build.op("Mul", rise, build.scalar(alpha, x.dtype))
    return build.op("Where", build.op("Less", x, build.scalar(0, x.dtype)), below, x)


def _softsign(build: Builder, x: Value, alpha: float, beta: float) -> Value:
    return build.op("Div", x, build.op("Add", build.op("Abs", x), build.scalar(1, x.dtype)))


def _bounded(build: Builder, x: Value, low: float, high: float) -> Value:
    return build.op("Min", build.op("Max", x, build.scalar(low, x.dtype)), build.scalar(high, x.dtype))


_ACTIVATIONS: dict[str, _Activation] = {
    "relu": _canonical("Relu"),
    "tanh": _canonical("Tanh"),
    "sigmoid": _canonical("Sigmoid"),
    "softplus": _canonical("Softplus"),
    "softsign": _Activation(_softsign),
    "affine": _Activation(_affine, 1.0, 0.0),
    "leakyrelu": _Activation(_leaky_relu, 0.01),
    "thresholdedrelu": _Activation(_thresholded_relu, 1.0),
    "scaledtanh": _Activation(_scaled_tanh, 1.0, 1.0),
    "hardsigmoid": _Activation(_hard_sigmoid, 0.2, 0.5),
    "elu": _Activation(_elu, 1.0),
}


def _activations(node: OnnxNode, cell: _Cell, directions: int) -> list[tuple[Activate, ...]]:
    """The activations of each direction, their inputs clipped if the node says so.

    Each alpha and beta goes to the next activation that takes one, in order; what is left gets its default.
    """
    names = node.texts("activations") or cell.activations * directions
    count = len(cell.activations)
    if len(names) < count * directions:
        raise ValueError(f"{len(names)} activations, where {count * directions} are needed")
    alphas, betas = iter(node.floats("activation_alpha") or ()), iter(node.floats("activation_beta") or ())
    clip = node.float("clip", 0.0) if node.has("clip") else None
    found: list[Activate] = []
    for name in names[: count * directions]:
        activation = _ACTIVATIONS.get(name.lower())
        if activation is None:
            raise ValueError(f"unknown activation {name!r}")
        alpha = 0.0 if activation.alpha is None else next(alphas, activation.alpha)
        beta = 0.0 if activation.beta is None else next(betas, activation.beta)
        found.append(_clipped(activation, alpha, beta, clip))
    return [tuple(found[number * count : (number + 1) * count]) for number in range(directions)]


def _clipped(activation: _Activation, alpha: float, beta: float, clip: float | None) -> Activate:
    def activate(build: Builder, x: Value) -> Value:
        return activation.apply(build, x if clip is None else _bounded(build, x, -clip, clip), alpha, beta)

    return activate


# --- the operands --------------------------------------------------------------------------------------------

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each direction of the operator whether it runs backward."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """The operands of one node with time first, and their sizes."""

    node: OnnxNode
    x: Value
    steps: Dim
    batch: Dim
    hidden: Dim
    directions: tuple[bool, ...]

    @property
    def build(self) -> Builder:
        return self.node.build

    def parameter(self, number: int, direction: int, shape: tuple[Dim, ...]) -> Value | None:
        """One direction of an optional input whose first axis is the direction."""
        value = self.node.optional(number)
        if value is None:
            return None
        if value.shape[:1] != (len(self.directions),):
            raise ValueError(f"input {number} is {value.type}, where {len(self.directions)} directions are needed")
        return self.build.reshape(self.part(value, 0, direction, 1), shape)

    def required(self, number: int, direction: int, shape: tuple[Dim, ...]) -> Value:
        value = self.parameter(number, direction, shape)
        if value is None:
            raise ValueError(f"input {number} is required")
        return value

    def recurrent(self, direction: int, gates: int) -> Value:
        """R, [gates * hidden, hidden]."""
        return self.required(2, direction, (self.hidden * gates, self.hidden))

    def bias(self, direction: int, gates: int) -> Value | None:
        """The biases of W and of R added up, [gates * hidden]."""
        both = self.parameter(3, direction, (2, self.hidden * gates))
        return None if both is None else self.build.op("ReduceSum", both, axes=(0,), keepdims=False)

    def part(self, value: Value, axis: int, start: Dim, length: Dim) -> Value:
        return _part(self.build, value, axis, start, length)


def _part(build: Builder, value: Value, axis: int, start: Dim, length: Dim) -> Value:
    """Elements start, start + 1, ... along one axis."""
    starts = tuple(start if number == axis else 0 for number in range(value.type.rank))
    shape = tuple(length if number == axis else dim for number, dim in enumerate(value.shape))
    if shape == value.shape:
        return value
    return build.op("Slice", value, starts=starts, steps=(1,) * value.type.rank, shape=shape)


# --- cells: one step of one direction ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gates:
    """What a cell sees in one step."""

    build: Builder
    node: OnnxNode
    hidden: Dim
    inputs: Value
    """x W^T + bias, [batch, gates * hidden]."""
    states: tuple[Value, ...]
    parameters: tuple[Value, ...]
    """What the cell prepared in front of the loop."""
    activations: tuple[Activate, ...]

    def part(self, value: Value, first: int, count: int = 1) -> Value:
        """Gates first, first + 1, ... of something that has all of them along its last axis."""
        return _part(self.build, value, value.type.rank - 1, self.hidden * first, self.hidden * count)

    def op(self, op: str, *inputs: Value) -> Value:
        return self.build.op(op, *inputs)

    def activate(self, number: int, value: Value) -> Value:
        return self.activations[number](self.build, value)

    def one_minus(self, value: Value) -> Value:
        return self.op("Sub", self.build.scalar(1, value.dtype), value)


Prepared: TypeAlias = tuple[Value | None, tuple[Value, ...]]
"""A bias to add in front of the loop, and the parameters of a step."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A kind of recurrent operator. `states` are the inputs that hold its initial states."""

    gates: int
    activations: tuple[str, ...]
    states: tuple[int, ...]
    prepare: Callable[[_Layer, int], Prepared]
    step: Callable[[_Gates], tuple[Value, ...]]


def _prepare_rnn(layer: _Layer, direction: int) -> Prepared:
    return layer.bias(direction, 1), (layer.build.transpose(layer.recurrent(direction, 1), (1, 0)),)


def _rnn_step(gates: _Gates) -> tuple[Value, ...]:
    """h' = f(x W^T + h R^T + b)"""
    (h,), (recurrent,) = gates.states, gates.parameters
    return (gates.activate(0, gates.op("Add", gates.inputs, gates.op("MatMul", h, recurrent))),)


def _prepare_gru(layer: _Layer, direction: int) -> Prepared:
    """R of the update and reset gates, R of the new gate, and that gate's bias if the reset gate scales it too."""
    build, hidden, recurrent = layer.build, layer.hidden, layer.recurrent(direction, 3)
    parts = layer.part(recurrent, 0, 0, hidden * 2), layer.part(recurrent, 0, hidden * 2, hidden)
    parameters = tuple(build.transpose(part, (1, 0)) for part in parts)
    if not layer.node.int("linear_before_reset", 0):
        return layer.bias(direction, 3), parameters
    both = layer.parameter(3, direction, (6, hidden))
    if both is None:
        return None, (*parameters, build.op("Broadcast", build.scalar(0, layer.x.dtype), shape=(hidden,)))
    row = [build.reshape(layer.part(both, 0, number, 1), (hidden,)) for number in range(6)]
    outer = build.op("Concat", build.op("Add", row[0], row[3]), build.op("Add", row[1], row[4]), row[2], axis=0)
    return outer, (*parameters, row[5])


def _gru_step(gates: _Gates) -> tuple[Value, ...]:
    """z, r = f(x W^T + h R^T + b);  n = g(x Wn^T + (r * h) Rn^T + b);  h' = (1 - z) * n + z * h

    With linear_before_reset, r multiplies the product and its bias: n = g(x Wn^T + r * (h Rn^T + c) + b).
    """
    (h,), (recurrent, recurrent_new, *bias) = gates.states, gates.parameters
    both = gates.op("Add", gates.part(gates.inputs, 0, 2), gates.op("MatMul", h, recurrent))
    update, reset = gates.activate(0, gates.part(both, 0)), gates.activate(0, gates.part(both, 1))
    if bias:
        memory = gates.op("Mul", reset, gates.op("MatMul", h, recurrent_new, *bias))
    else:
        memory = gates.op("MatMul", gates.op("Mul", reset, h), recurrent_new)
    new = gates.activate(1, gates.op("Add", gates.part(gates.inputs, 2), memory))
    return (gates.op("Add", gates.op("Mul", gates.one_minus(update), new), gates.op("Mul", update, h)),)


def _prepare_lstm(layer: _Layer, direction: int) -> Prepared:
    """R of all gates, and a peephole for each of i, o and f if there are any."""
    recurrent = layer.build.transpose(layer.recurrent(direction, 4), (1, 0))
    peepholes, hidden = layer.parameter(7, direction, (layer.hidden * 3,)), layer.hidden
    parts = () if peepholes is None else tuple(layer.part(peepholes, 0, hidden * k, hidden) for k in range(3))
    return layer.bias(direction, 4), (recurrent, *parts)


def _lstm_step(gates: _Gates) -> tuple[Value, ...]:
    """i, f = F(... + p * c);  c' = f * c + i * G(...);  o = F(... + p * c');  h' = o * H(c')

    With input_forget, f is 1 - i. The gates come in the order i, o, f, c, the peepholes p in the order i, o, f.
    """
    (h, c), (recurrent, *peepholes) = gates.states, gates.parameters
    total = gates.op("Add", gates.inputs, gates.op("MatMul", h, recurrent))

    def gate(number: int, cell: Value) -> Value:
        value = gates.part(total, number)
        if peepholes:
            value = gates.op("Add", value, gates.op("Mul", peepholes[number], cell))
        return gates.activate(0, value)

    enter = gate(0, c)
    forget = gates.one_minus(enter) if gates.node.int("input_forget", 0) else gate(2, c)
    proposal = gates.activate(1, gates.part(total, 3))
    cell = gates.op("Add", gates.op("Mul", forget, c), gates.op("Mul", enter, proposal))
    return gates.op("Mul", gate(1, cell), gates.activate(2, cell)), cell


_RNN = _Cell(1, ("Tanh",), (5,), _prepare_rnn, _rnn_step)
_GRU = _Cell(3, ("Sigmoid", "Tanh"), (5,), _prepare_gru, _gru_step)
_LSTM = _Cell(4, ("Sigmoid", "Tanh", "Tanh"), (5, 6), _prepare_lstm, _lstm_step)


# --- the operator --------------------------------------------------------------------------------------------


def _recurrent(cell: _Cell) -> Importer:
    def apply(node: OnnxNode) -> tuple[Value, ...]:
        layer = _layer(node)
        activations = _activations(node, cell, len(layer.directions))
        runs = [_run(layer, cell, number, activations[number]) for number in range(len(layer.directions))]
        return _joined(layer, [rows for *_, rows in runs], [run[:-1] for run in runs])

    return apply


def _layer(node: OnnxNode) -> _Layer:
    x, weights, recurrent = node.input(0), node.input(1), node.input(2)
    if not x.type.rank == weights.type.rank == recurrent.type.rank == 3:
        raise ValueError(f"x, W and R must have three axes, got {x.type}, {weights.type} and {recurrent.type}")
    direction, hidden = node.text("direction", "forward"), recurrent.shape[2]
    if direction not in _DIRECTIONS:
        raise ValueError(f"unknown direction {direction!r}")
    if node.has("hidden_size") and isinstance(hidden, int) and hidden != node.int("hidden_size"):
        raise ValueError(f"hidden_size is {node.int('hidden_size')}, but R is {recurrent.type}")
    if node.int("layout", 0):
        x = node.build.transpose(x, (1, 0, 2))
    return _Layer(node, x, x.shape[0], x.shape[1], hidden, _DIRECTIONS[direction])


def _run(layer: _Layer, cell: _Cell, direction: int, activations: tuple[Activate, ...]) -> tuple[Value, ...]:
    """The last states and the stacked outputs [steps, batch, hidden] of one direction."""
    bias, parameters = cell.prepare(layer, direction)
    lengths, places = _lengths(layer)

    def advance(step: Step) -> tuple[Sequence[Value], Sequence[Value]]:
        own = step.captured[: len(parameters)]
        gates = _Gates(step.build, layer.node, layer.hidden, step.slices[0], step.states, own, activations)
        after = cell.step(gates)
        return _within_length(step, after) if lengths else (after, after[:1])

    return scan(
        layer.build,
        advance,
        states=[_initial_state(layer, number, direction) for number in cell.states],
        sequences=[_gate_inputs(layer, cell, direction, bias), *places],
        captured=[*parameters, *lengths],
        backward=layer.directions[direction],
    )


def _gate_inputs(layer: _Layer, cell: _Cell, direction: int, bias: Value | None) -> Value:
    """x W^T + bias for all steps, [steps, batch, gates * hidden]."""
    build, width, depth = layer.build, layer.hidden * cell.gates, layer.x.shape[2]
    weights = build.transpose(layer.required(1, direction, (width, depth)), (1, 0))
    rows = build.reshape(layer.x, (layer.steps * layer.batch, depth))
    product = build.op("MatMul", rows, weights, *(() if bias is None else (bias,)))
    return build.reshape(product, (layer.steps, layer.batch, width))


def _initial_state(layer: _Layer, number: int, direction: int) -> Value:
    """[batch, hidden]; zeros where the node gives none."""
    value, build, shape = layer.node.optional(number), layer.build, (layer.batch, layer.hidden)
    if value is None:
        return build.op("Broadcast", build.scalar(0, layer.x.dtype), shape=shape)
    if not layer.node.int("layout", 0):
        return layer.required(number, direction, shape)
    if value.type.rank != 3 or value.shape[1] != len(layer.directions):
        raise ValueError(f"input {number} is {value.type}, where {len(layer.directions)} directions are needed")
    return build.reshape(layer.part(value, 1, direction, 1), shape)


def _lengths(layer: _Layer) -> tuple[list[Value], list[Value]]:
    """The sequences' lengths as a column, and the place of every step; nothing if all have the full length."""
    lengths, build = layer.node.optional(4), layer.build
    if lengths is None:
        return [], []
    return [build.reshape(lengths, (layer.batch, 1))], [build.op("Iota", shape=(layer.steps,), axis=0, dtype=I32)]


def _within_length(step: Step, after: tuple[Value, ...]) -> tuple[Sequence[Value], Sequence[Value]]:
    """Beyond the end of a sequence states stay as they are and the output is 0; backward, that comes first."""
    build, place, lengths = step.build, step.slices[1], step.captured[-1]
    within = build.op("Less", place, lengths)
    states = [build.op("Where", within, new, old) for new, old in zip(after, step.states, strict=True)]
    return states, [build.op("Where", within, after[0], build.scalar(0, after[0].dtype))]


def _joined(layer: _Layer, rows: list[Value], states: list[tuple[Value, ...]]) -> tuple[Value, ...]:
    """The node's outputs: all directions side by side, batch first if the layout says so."""
    build, steps, batch, hidden = layer.build, layer.steps, layer.batch, layer.hidden
    y = _concatenated(build, [build.reshape(value, (steps, 1, batch, hidden)) for value in rows], 1)
    last = [
        _concatenated(build, [build.reshape(value, (1, batch, hidden)) for value in kind], 0)
        for kind in zip(*states, strict=True)
    ]
    if layer.node.int("layout", 0):
        y, last = build.transpose(y, (2, 0, 1, 3)), [build.transpose(value, (1, 0, 2)) for value in last]
    return y, *last


def _concatenated(build: Builder, values: list[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else build.op("Concat", *values, axis=axis)


RECURRENT_IMPORTERS: dict[str, Importer] = {"RNN": _recurrent(_RNN), "GRU": _recurrent(_GRU), "LSTM": _recurrent(_LSTM)}
