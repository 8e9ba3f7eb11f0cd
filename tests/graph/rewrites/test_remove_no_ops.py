from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.graph.nodes import Value
from foretell.graph.rewrites.remove_no_ops import remove_no_ops
from foretell.ir.dtypes import BOOL, F16, F32, I32, DType
from foretell.ir.expr import Sym
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, operators, text

Make = Callable[[Sketch, Value], Value]


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.data(2, 3)
    y = sketch.op("Add", sketch.op("Mul", x, sketch.number(1.0)), sketch.number(0.0, (3,)))
    y = sketch.op("Relu", sketch.op("Relu", y))
    after = check_rewrite(remove_no_ops, sketch.graph(y), ops=["Relu"])
    assert str(after) == text(
        """
        graph test(%x: f32[2, 3]) {
          %relu: f32[2, 3] = Relu(%x)
          return y0=%relu
        }
        """
    )


GONE: dict[str, tuple[DType, Make]] = {
    "x + 0": (F32, lambda g, x: g.op("Add", x, g.number(0.0))),
    "0 + x": (F32, lambda g, x: g.op("Add", g.number(0.0, (1, 1)), x)),
    "x - 0": (F32, lambda g, x: g.op("Sub", x, g.number(0.0))),
    "1 * x": (F32, lambda g, x: g.op("Mul", g.number(1.0, (5,)), x)),
    "x / 1": (I32, lambda g, x: g.op("Div", x, g.number(1, dtype=I32))),
    "x ** 1": (F32, lambda g, x: g.op("Pow", x, g.number(1, dtype=I32))),
    "x & x": (I32, lambda g, x: g.op("And", x, x)),
    "x & true": (BOOL, lambda g, x: g.op("And", x, g.number(True, dtype=BOOL))),
    "x | false": (BOOL, lambda g, x: g.op("Or", g.number(False, dtype=BOOL), x)),
    "x ^ 0": (I32, lambda g, x: g.op("Xor", x, g.number(0, dtype=I32))),
    "max(x, x)": (F32, lambda g, x: g.op("Max", x, x)),
    "min(x, x)": (F32, lambda g, x: g.op("Min", x, x)),
    "-(-x)": (F32, lambda g, x: g.op("Neg", g.op("Neg", x))),
    "not not x": (BOOL, lambda g, x: g.op("Not", g.op("Not", x))),
    "where(c, x, x)": (F32, lambda g, x: g.op("Where", g.data(3, 5, dtype=BOOL, name="c"), x, x)),
    "where(true, x, y)": (F32, lambda g, x: g.op("Where", g.number(1, dtype=BOOL), x, g.data(3, 5, name="y"))),
    "where(false, y, x)": (F32, lambda g, x: g.op("Where", g.number(0, dtype=BOOL), g.data(3, 5, name="y"), x)),
    "f32(x: f32)": (F32, lambda g, x: g.op("Cast", x, to=F32)),
    "f16(f32(x: f16))": (F16, lambda g, x: g.op("Cast", g.op("Cast", x, to=F32), to=F16)),
    "transpose": (F32, lambda g, x: g.op("Transpose", x, perm=(0, 1))),
    "reshape": (F32, lambda g, x: g.op("Reshape", x, shape=(3, 5))),
    "broadcast": (F32, lambda g, x: g.op("Broadcast", x, shape=(3, 5))),
    "slice": (F32, lambda g, x: g.op("Slice", x, starts=(0, 0), steps=(1, 1), shape=(3, 5))),
    "pad": (F32, lambda g, x: g.op("Pad", x, before=(0, 0), after=(0, 0), mode="constant")),
    "concat of one": (F32, lambda g, x: g.op("Concat", x, axis=0)),
    "concat with nothing": (F32, lambda g, x: g.op("Concat", x, g.weights(0, 5), axis=0)),
    "sum over no axis": (F32, lambda g, x: g.op("ReduceSum", x, axes=(), keepdims=True)),
}


@pytest.mark.parametrize("law", GONE)
def test_the_operator_is_gone(law: str) -> None:
    dtype, make = GONE[law]
    sketch = Sketch()
    x = sketch.data(3, 5, dtype=dtype)
    graph = sketch.graph(make(sketch, x))
    after = check_rewrite(remove_no_ops, graph, ops=[])
    assert after.outputs == (x,)


@pytest.mark.parametrize("name", ["Sum", "Mean", "Prod", "Max", "Min"])
@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions_of_one_element(name: str, keepdims: bool) -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op(f"Reduce{name}", sketch.data(3, 1, 5, 1), axes=(1, 3), keepdims=keepdims))
    check_rewrite(remove_no_ops, graph, ops=[] if keepdims else ["Reshape"])


def test_broadcasts_that_the_reader_does_itself() -> None:
    n = Sym("n", 1)
    sketch = Sketch()
    x, mask = sketch.data(n, 4, 7), sketch.data(7, name="mask")
    y = sketch.op("Add", sketch.op("Broadcast", mask, shape=(n, 4, 7)), x)
    check_rewrite(remove_no_ops, sketch.graph(y), ops=["Add"])


@pytest.mark.parametrize("op", ["Transpose", "Reshape", "Broadcast", "Slice"])
def test_moving_copies_of_one_element(op: str) -> None:
    attrs = {
        "Transpose": {"perm": (1, 0)},
        "Reshape": {"shape": (5, 3)},
        "Broadcast": {"shape": (2, 3, 5)},
        "Slice": {"starts": (0, 2), "steps": (2, 1), "shape": (2, 3)},
    }[op]
    sketch = Sketch()
    copies = sketch.op("Broadcast", sketch.data(1), shape=(3, 5))
    check_rewrite(remove_no_ops, sketch.graph(sketch.op(op, copies, **attrs)), ops=["Broadcast"])


KEPT: dict[str, Make] = {
    "x + 0 that broadcasts": lambda g, x: g.op("Add", x, g.number(0.0, (2, 3, 5))),
    "x + 0 that adds an axis": lambda g, x: g.op("Add", x, g.number(0.0, (1, 1, 1))),
    "x * nearly one": lambda g, x: g.op("Mul", x, g.constant(np.array([1, 1, 1, 1, 1.5], np.float32))),
    "0 - x": lambda g, x: g.op("Sub", g.number(0.0), x),
    "1 / x": lambda g, x: g.op("Div", g.number(1.0), x),
    "x * 0": lambda g, x: g.op("Mul", x, g.number(0.0)),
    "f32(f16(x))": lambda g, x: g.op("Cast", g.op("Cast", x, to=F16), to=F32),
    "where(mixed)": lambda g, x: g.op("Where", g.constant(np.array([1, 0, 1, 0, 1], np.bool_)), x, g.number(0.0)),
    "slice backwards": lambda g, x: g.op("Slice", x, starts=(2, 0), steps=(-1, 1), shape=(3, 5)),
    "both operands broadcast": lambda g, x: g.op("Add", *(g.op("Broadcast", x, shape=(2, 3, 5)) for _ in range(2))),
    "bitwise and with 1": lambda g, x: g.op("And", g.op("Cast", x, to=I32), g.number(1, dtype=I32)),
}


@pytest.mark.parametrize("case", KEPT)
def test_declines(case: str) -> None:
    sketch = Sketch()
    make = KEPT[case]
    graph = sketch.graph(make(sketch, sketch.data(3, 5)))
    if case == "both operands broadcast":
        after = remove_no_ops(graph)
        assert operators(after) == ["Broadcast", "Add"]
        assert_same_results(graph, after)
    else:
        check_declines(remove_no_ops, graph)


@given(st.lists(st.sampled_from(sorted(law for law, (dtype, _) in GONE.items() if dtype == F32)), max_size=4))
def test_laws_compose(laws: list[str]) -> None:
    sketch = Sketch()
    x = value = sketch.data(3, 5)
    for law in laws:
        if "(c," not in law and "y" not in law:
            value = GONE[law][1](sketch, value)
    after = remove_no_ops(sketch.graph(value))
    assert after.outputs == (x,)


def test_a_symbolic_pad_or_slice_may_do_something() -> None:
    n = Sym("n", 1)
    sketch = Sketch()
    x = sketch.data(n)
    graph = sketch.graph(sketch.op("Pad", x, before=(0,), after=(n - 1,), mode="constant"))
    check_declines(remove_no_ops, graph)
