"""Flops on closed forms."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from foretell.compiler import import_model
from foretell.ir.expr import Dim, Sym
from foretell.report.flops import count_flops, smallest, try_total


def model(
    nodes: list[onnx.NodeProto], shape: list[int | str], constants: dict[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """x -> y, both float32."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def flops_of(proto: onnx.ModelProto) -> Dim | None:
    return try_total([entry.flops or 0 for entry in count_flops(import_model(proto))])


def body(*, condition: str) -> onnx.GraphProto:
    """One trip: state -> state + state."""
    nodes = [helper.make_node("Add", ["state", "state"], ["next"]), helper.make_node("Identity", ["go"], ["on"])]
    if condition == "data":
        nodes += [
            helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "limit"], ["under"]),
        ]
    return helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("under" if condition == "data" else "on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [4]),
        ],
    )


def test_matmul_counts_two_per_multiply_accumulate() -> None:
    weight = np.ones((8, 16), np.float32)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [4, 8], {"w": weight})
    assert flops_of(proto) == 2 * 4 * 8 * 16


def test_conv_with_a_free_batch() -> None:
    weight = np.ones((6, 2, 3, 3), np.float32)
    proto = model([helper.make_node("Conv", ["x", "w"], ["y"], group=2)], ["n", 4, 10, 10], {"w": weight})
    assert flops_of(proto) == Sym("n", 1) * (2 * 6 * 8 * 8 * 2 * 9)


def test_movement_is_free() -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Flatten", ["t"], ["y"])]
    assert flops_of(model(nodes, [4, 8])) == 0


@pytest.mark.parametrize(("condition", "trips"), [("none", 5), ("data", None)])
def test_loop(condition: str, trips: int | None) -> None:
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body(condition=condition))
    constants = {"trips": np.array(5, np.int64), "limit": np.array(9, np.float32)}
    entries = list(count_flops(import_model(model([node], [4], constants))))
    assert entries[0].has_known_trips is (trips is not None)
    additions = [entry.flops for entry in entries if entry.node.op == "Add"]
    assert additions == [4 * (trips or 1)]
    assert all(entry.parents == (entries[0].node,) for entry in entries[1:])


def test_scan_runs_as_often_as_its_sequence_is_long() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["row", "row"], ["out"])],
        "body",
        [helper.make_tensor_value_info("row", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [4])],
    )
    node = helper.make_node("Scan", ["x"], ["y"], body=inner, num_scan_inputs=1)
    assert flops_of(model([node], ["time", 4])) == Sym("time", 1) * 4


def test_the_reference_is_not_counted() -> None:
    proto = model([helper.make_node("Unique", ["x"], ["y"])], [4])
    assert [entry.flops for entry in count_flops(import_model(proto))] == [None]


def test_sums_and_smallest_numbers() -> None:
    batch, length = Sym("batch", 1), Sym("length", 5, None, 8)
    assert try_total([]) == 0
    assert try_total([batch, 3, length, batch, 4]) == batch * 2 + length + 7
    assert try_total([Sym(f"u{number}") for number in range(10_000)]) is None
    assert smallest([batch * length, Sym("u", 0)]) == {batch: 1, length: 8, Sym("u", 0): 1}
