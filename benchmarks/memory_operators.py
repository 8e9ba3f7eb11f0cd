"""The suite `memory`: operators that move memory, on tensors of 1, 8 and 32 megabytes of float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.cases import Case
from benchmarks.network import Network, Value

MEGABYTES = (1, 8, 32)
ROW = 1024
TABLE_ROWS = 8192
"""Of the table that `gather` picks rows of 256 from."""


def memory_cases() -> list[Case]:
    return [
        Case(
            f"{name}_{megabytes}mb", partial(_network, f"{name}_{megabytes}mb", build, megabytes << 18), megabytes == 1
        )
        for megabytes in MEGABYTES
        for name, build in BUILDERS.items()
    ]


def _network(name: str, build: Callable[[Network, int], list[Value]], count: int) -> Network:
    net = Network(name)
    return net.output(*build(net, count))


def _rows(net: Network, count: int) -> Value:
    return net.input("x", count // ROW, ROW)


def _chain(net: Network, count: int) -> list[Value]:
    """(relu(x * y + x) - y) squared"""
    x, y = net.input("x", count), net.input("y", count)
    inner = net.map("Relu", net.combine("Add", net.combine("Mul", x, y), x))
    inner = net.combine("Sub", inner, y)
    return [net.combine("Mul", inner, inner)]


def _gate(net: Network, count: int) -> list[Value]:
    return [net.map("Tanh", net.silu(net.input("x", count)))]


def _exp(net: Network, count: int) -> list[Value]:
    return [net.map("Exp", net.input("x", count))]


def _softmax(net: Network, count: int) -> list[Value]:
    return [net.softmax(_rows(net, count))]


def _layer_norm(net: Network, count: int) -> list[Value]:
    return [net.layer_norm(_rows(net, count))]


def _sum(axis: int, net: Network, count: int) -> list[Value]:
    x = _rows(net, count)
    return [net.node("ReduceSum", [x, net.constant([axis])], (x.shape[1 - axis],), keepdims=0)]


def _max(net: Network, count: int) -> list[Value]:
    return [net.node("ReduceMax", [_rows(net, count)], (), keepdims=0)]


def _transpose(net: Network, count: int) -> list[Value]:
    return [net.transpose(_rows(net, count), 1, 0)]


def _transpose_heads(net: Network, count: int) -> list[Value]:
    return [net.transpose(net.input("x", count // (128 * ROW), 128, 16, 64), 0, 2, 1, 3)]


def _channels_last(net: Network, count: int) -> list[Value]:
    return [net.transpose(net.input("x", 1, 64, count // (64 * 64), 64), 0, 2, 3, 1)]


def _concat_channels(net: Network, count: int) -> list[Value]:
    halves = [net.input(name, 8, count // (16 * ROW), ROW) for name in ("x", "y")]
    return [net.concat(halves, 1)]


def _concat_columns(net: Network, count: int) -> list[Value]:
    halves = [net.input(name, count // ROW, ROW // 2) for name in ("x", "y")]
    return [net.concat(halves, 1)]


def _split(net: Network, count: int) -> list[Value]:
    return net.split(_rows(net, count), 2, 1)


def _gather(net: Network, count: int) -> list[Value]:
    return [net.gather(net.input("x", TABLE_ROWS, 256), net.input("indices", count // 256, below=TABLE_ROWS))]


def _add_bias(net: Network, count: int) -> list[Value]:
    return [net.combine("Add", net.input("x", 1, 64, count // 64), net.input("y", 64, 1))]


BUILDERS: dict[str, Callable[[Network, int], list[Value]]] = {
    "elementwise_chain": _chain,
    "sigmoid_mul_tanh": _gate,
    "exp": _exp,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "sum_of_rows": partial(_sum, 1),
    "sum_of_columns": partial(_sum, 0),
    "max_of_all": _max,
    "transpose_2d": _transpose,
    "transpose_0213": _transpose_heads,
    "transpose_0231": _channels_last,
    "concat_channels": _concat_channels,
    "concat_columns": _concat_columns,
    "split": _split,
    "gather": _gather,
    "add_bias": _add_bias,
}
