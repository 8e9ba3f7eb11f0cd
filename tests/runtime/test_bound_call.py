"""A model bound to arrays: read and written in place, call after call."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.nodes import Graph
from foretell.link_program import link_program
from foretell.runtime.session import CompiledModel
from foretell.support.errors import InputError
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch


def compiled(graph: Graph) -> CompiledModel:
    return link_program(graph, resolve_target("native"), 1)


def difference() -> CompiledModel:
    """y0 = a - b"""
    sketch = Sketch()
    return compiled(sketch.graph(sketch.op("Sub", sketch.data(2, 3, name="a"), sketch.data(2, 3, name="b"))))


def arrays() -> dict[str, np.ndarray]:
    return {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones((2, 3), np.float32)}


def test_what_the_arrays_hold_at_the_time() -> None:
    feeds = arrays()
    call = difference().bind(feeds)
    [first] = call().values()
    np.testing.assert_array_equal(first, feeds["a"] - 1)
    feeds["b"][...] = 3
    [second] = call().values()
    assert second is first
    np.testing.assert_array_equal(second, feeds["a"] - 3)


def test_outputs_of_the_callers() -> None:
    feeds, model = arrays(), difference()
    out = np.empty((2, 3), np.float32)
    call = model.bind(feeds, {model.output_names[0]: out})
    out[...] = -1
    assert call()[model.output_names[0]] is out
    np.testing.assert_array_equal(out, feeds["a"] - 1)


def test_an_output_that_is_an_input() -> None:
    feeds, model = arrays(), difference()
    call = model.bind(feeds, {model.output_names[0]: feeds["a"]})  # binding runs it once
    call()
    np.testing.assert_array_equal(feeds["a"], np.arange(6).reshape(2, 3) - 2)


def test_outputs_that_no_kernel_writes() -> None:
    sketch = Sketch()
    x = sketch.data(3, name="x")
    model = compiled(sketch.graph(x, sketch.op("Neg", x)))
    data = np.array([1, 2, 3], np.float32)
    call = model.bind({"x": data})
    data += 1
    same, negative = call().values()
    np.testing.assert_array_equal(same, [2, 3, 4])
    np.testing.assert_array_equal(negative, [-2, -3, -4])


@pytest.mark.parametrize("bad", [np.ones((3, 2), np.float32).T, [[1.0, 2.0, 3.0]] * 2], ids=["strided", "list"])
def test_what_would_be_copied_is_refused(bad: object) -> None:
    with pytest.raises(InputError, match="'a' cannot be bound"):
        difference().bind(arrays() | {"a": bad})


def test_wrong_shape_is_refused() -> None:
    with pytest.raises(InputError, match="disagrees with the model"):
        difference().bind(arrays() | {"a": np.ones((2, 4), np.float32)})
