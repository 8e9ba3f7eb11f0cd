"""Constants of one element become numbers in the loops that read them."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F16, F32, F64, I32, DType
from foretell.link_program import link_program
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, text
from tests.loops.kernels import kernel_of

GOLDEN = """
    kernel min(%x: f32[5]) -> %min: f32[5] {
      for i0.1 < 5 vector:
        %min[i0.1] = min(max(%x[i0.1], 0.0:f32), 6.0:f32)
    }
"""


def clip(low: float, high: float, dtype: DType = F32) -> Graph:
    sketch = Sketch()
    floor, ceiling = (sketch.number(bound, dtype=dtype) for bound in (low, high))
    return sketch.graph(sketch.op("Min", sketch.op("Max", sketch.data(5, dtype=dtype), floor), ceiling))


def test_golden() -> None:
    assert str(kernel_of(clip(0.0, 6.0))) == text(GOLDEN)


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=str)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 0.1), (-np.inf, np.inf), (0.0, np.nan), (np.nan, 1.0)])
def test_numbers_that_are_not(low: float, high: float, dtype: DType) -> None:
    """What is not a number comes through, be it data or bound."""
    graph = clip(low, high, dtype=dtype)
    x = np.array([np.nan, -np.inf, np.inf, 0.5, -0.5], dtype.numpy)
    (found,), (expected,) = (
        link_program(graph, resolve_target("native")).run({"x": x}).values(),
        evaluate(graph, {"x": x}).values(),
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "graph", [clip(np.nan, np.nan), clip(0, 6, dtype=I32)], ids=["what is not a number", "integers"]
)
def test_declines(graph: Graph) -> None:
    assert str(kernel_of(graph)).count("%c") > 3
