from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from foretell.graph.rewrites.merge_common_subexpressions import merge_common_subexpressions
from foretell.ir.dtypes import F32
from foretell.ir.tensor_expr import TensorType
from tests.graph.build_graphs import Sketch, check_declines, check_rewrite, text


def test_golden() -> None:
    sketch = Sketch()
    x = sketch.data(2)
    halves = [sketch.op("Exp", sketch.op("Mul", x, sketch.number(0.5))) for _ in range(2)]
    after = check_rewrite(
        merge_common_subexpressions, sketch.graph(sketch.op("Add", *halves)), ops=["Mul", "Exp", "Add"]
    )
    assert str(after) == text(
        """
        graph test(%x: f32[2]) {
          %c: f32[] = constant 0.5
          %mul: f32[2] = Mul(%x, %c)
          %exp: f32[2] = Exp(%mul)
          %add: f32[2] = Add(%exp, %exp)
          return y0=%add
        }
        """
    )


@given(st.lists(st.sampled_from(["Exp", "Neg", "Abs"]), min_size=1, max_size=5))
def test_two_copies_of_anything_become_one(ops: list[str]) -> None:
    sketch = Sketch()
    ends = [sketch.data(3)] * 2
    for op in ops:
        ends = [sketch.op(op, value) for value in ends]
    check_rewrite(merge_common_subexpressions, sketch.graph(*ends), ops=ops)


def test_large_constants_merge_only_when_they_are_one_array() -> None:
    sketch = Sketch()
    x, table = sketch.data(1 << 15), np.ones(1 << 15, np.float32)
    one, other, copy = (sketch.constant(array) for array in (table, table, table.copy()))
    after = check_rewrite(
        merge_common_subexpressions,
        sketch.graph(sketch.op("Add", x, one), sketch.op("Sub", x, other), sketch.op("Mul", x, copy)),
        ops=["Add", "Sub", "Mul"],
    )
    assert len(after.constants) == 2


def test_declines_attributes_and_constants_that_only_look_equal() -> None:
    sketch = Sketch()
    x = sketch.data(2)
    slopes = [sketch.op("LeakyRelu", x, alpha=alpha) for alpha in (0.0, -0.0)]
    zeros = [sketch.op("Max", x, sketch.number(zero)) for zero in (0.0, -0.0)]
    check_declines(merge_common_subexpressions, sketch.graph(*slopes, *zeros))


def test_declines_random_operators() -> None:
    sketch = Sketch()
    x = sketch.data(2)
    node = helper.make_node("RandomNormalLike", ["x0"], ["y"]).SerializeToString()
    attrs = {"domain": "", "op_type": "RandomNormalLike", "version": 20, "node": node}
    drawn = [sketch.typed("Onnx", (x,), attrs, [TensorType(F32, (2,))])[0] for _ in range(2)]
    check_declines(merge_common_subexpressions, sketch.graph(*drawn))
