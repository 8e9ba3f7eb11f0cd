"""Functions are counted without being expanded."""

from __future__ import annotations

import dataclasses

import onnx
import pytest
from onnx import ModelProto

from foretell.frontend.check_functions import check_functions, functions_of
from foretell.support.errors import CyclicGraph, DuplicateName, NestingTooDeep, TooManyNodes
from foretell.support.limits import DEFAULT_LIMITS


def model(calls: str, *functions: str) -> ModelProto:
    """A graph of calls from x to y, and functions like "f: y = Relu (x)"."""
    text = f'<ir_version: 10, opset_import: ["": 21, "own": 1]> g (float[2] x) => (float[2] y) {{ {calls} }}'
    for function in functions:
        name, _, body = function.partition(":")
        text += f' <domain: "own", opset_import: ["": 21, "own": 1]> {name} (x) => (y) {{ {body} }}'
    return onnx.parser.parse_model(text)


def count(proto: ModelProto, **limits: int) -> int:
    return check_functions(proto, functions_of(proto), dataclasses.replace(DEFAULT_LIMITS, **limits))


def test_each_call_counts_what_it_calls() -> None:
    twice = "f: h = own.g (x) y = own.g (h)"
    proto = model("h = own.f (x) y = own.f (h)", twice, "g: h = Relu (x) y = Neg (h)")
    assert count(proto) == 2 + 2 * (2 + 2 * 2)
    assert count(proto, nodes=14) == 14
    with pytest.raises(TooManyNodes):
        count(proto, nodes=13)


def test_depth_is_that_of_the_deepest_call_also_when_it_was_counted_before() -> None:
    proto = model("a = own.g (x) y = own.f (a)", "f: y = own.g (x)", "g: y = own.h (x)", "h: y = Relu (x)")
    assert count(proto, depth=3) == 2 + 2 + 3
    with pytest.raises(NestingTooDeep):
        count(proto, depth=2)


def test_nodes_of_branches_count() -> None:
    branch = "b () => (float[2] r) { r = own.f (x) }"
    proto = model(f"c = IsNaN (x) y = If (c) <then_branch = {branch}, else_branch = {branch}>", "f: y = Relu (x)")
    assert count(proto) == 2 + 2 * 2


def test_many_operands_count() -> None:
    assert count(model(f"y = Sum ({', '.join(['x'] * 20)})")) == 12


@pytest.mark.parametrize("functions", [("f: y = own.f (x)",), ("f: y = own.g (x)", "g: y = own.f (x)")])
def test_recursion_is_refused_even_if_nobody_calls_it(functions: tuple[str, ...]) -> None:
    with pytest.raises(CyclicGraph, match="calls itself"):
        count(model("y = Relu (x)", *functions))


def test_two_functions_of_one_name() -> None:
    with pytest.raises(DuplicateName, match="'f' is defined twice"):
        count(model("y = own.f (x)", "f: y = Relu (x)", "f: y = Neg (x)"))
