"""Small graphs for tests: build one, run it before and after a pass, compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import dedent

import numpy as np

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph, Value
from foretell.graph.verify import verify
from foretell.ir.dtypes import F32, DType
from foretell.ir.expr import Dim, Sym, substitute, symbols
from foretell.ir.tensor_expr import TensorType
from tests.tolerances import assert_close


class Sketch(Builder):
    """A builder with short spellings for tests."""

    def __init__(self) -> None:
        super().__init__("test")

    def data(self, *shape: Dim, dtype: DType = F32, name: str = "x") -> Value:
        return self.input(name, TensorType(dtype, shape))

    def weights(self, *shape: int, dtype: DType = F32, seed: int = 0) -> Value:
        """A constant of random numbers."""
        return self.constant(np.asarray(random_array(shape, dtype, np.random.default_rng(seed))), "w")

    def number(self, value: float, shape: tuple[int, ...] = (), dtype: DType = F32) -> Value:
        """A constant of one value."""
        return self.constant(np.full(shape, value, dtype.numpy))

    def graph(self, *outputs: Value) -> Graph:
        graph = self.finish(outputs, [f"y{number}" for number in range(len(outputs))])
        verify(graph)
        return graph


def random_array(shape: Sequence[int], dtype: DType, random: np.random.Generator) -> Array:
    if dtype.is_float:
        return np.asarray(random.standard_normal(shape)).astype(dtype.numpy)
    if dtype.is_integer:
        return np.asarray(random.integers(0, 5, shape)).astype(dtype.numpy)
    return np.asarray(random.integers(0, 2, shape)).astype(dtype.numpy)


def random_feeds(graph: Graph, sizes: dict[str, int] | None = None, seed: int = 1) -> dict[str, Array]:
    """Random data for every input, symbolic dimensions bound by name (5 unless told)."""
    random = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for value in graph.inputs:
        shape = [_size(dim, sizes or {}) for dim in value.shape]
        feeds[value.name] = random_array(shape, value.dtype, random)
    return feeds


def _size(dim: Dim, sizes: dict[str, int]) -> int:
    bound: dict[Sym, Dim] = {sym: sizes.get(sym.name, 5) for sym in symbols(dim)}
    size = substitute(dim, bound)
    assert isinstance(size, int)
    return size


def assert_same_results(
    before: Graph, after: Graph, feeds: dict[str, Array] | None = None, sizes: dict[str, int] | None = None
) -> None:
    """Both graphs are valid, have one interface, and agree on data up to rounding."""
    verify(after)
    assert [value.type for value in before.outputs] == [value.type for value in after.outputs]
    assert before.inputs == after.inputs and before.output_names == after.output_names
    feeds = random_feeds(before, sizes) if feeds is None else feeds
    expected, found = evaluate(before, feeds), evaluate(after, feeds)
    for value, name in zip(before.outputs, before.output_names, strict=True):
        assert_close(found[name], expected[name], value.dtype)


def check_rewrite(
    pass_: Callable[[Graph], Graph], graph: Graph, *, ops: Sequence[str], sizes: dict[str, int] | None = None
) -> Graph:
    """Apply a pass that must fire: the graph then has exactly these operators, and the same results."""
    after = pass_(graph)
    assert operators(after) == list(ops), str(after)
    assert_same_results(graph, after, sizes=sizes)
    assert pass_(after) is after, f"not a fixed point:\n{after}"
    return after


def check_declines(pass_: Callable[[Graph], Graph], graph: Graph) -> None:
    """Unchanged input comes back as the same object."""
    after = pass_(graph)
    assert after is graph, str(after)


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def text(golden: str) -> str:
    """A golden graph written inline."""
    return dedent(golden).strip()
