"""Cases by the value of an index: how stages are cut, what stays whole, and that results stay the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretell.ir.dtypes import F32
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Index, Load, Scalar, Select, axis_over
from foretell.loops.cases import MOST_CASES, cases_of
from foretell.loops.cluster import cluster_stages
from foretell.loops.interpret import interpret
from foretell.loops.lower import lower
from foretell.loops.split_by_value import split_by_value
from foretell.loops.stages import TensorStage
from foretell.loops.verify import verify
from tests.graph.build_graphs import text

X = Buffer("x", F32, (64,))


def load(*indices: Dim) -> Load:
    return Load(X, indices, F32)


def choice(value: Dim, cases: list[Scalar]) -> Scalar:
    body = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        body = Select(Apply("eq", (Index(value), Index(number))), cases[number], body)
    return body


def stage(axes: tuple[Axis, ...], body: Scalar) -> TensorStage:
    buffer = Buffer("y", F32, tuple(axis.extent for axis in axes))
    return TensorStage(buffer, axes, body, None, (), tuple(axis.sym for axis in axes), "")


def printed(stages: list[TensorStage]) -> str:
    return "\n".join(f"[{', '.join(map(str, part.place))}] {part}" for part in stages)


def rows(extent: int, period: int) -> TensorStage:
    """y[i] = x[i // period + 10 * (i % period)], case by case."""
    (i,) = (axis_over(extent, "i"),)
    return stage((i,), choice(i.sym % period, [load(i.sym // period + 10 * case) for case in range(period)]))


def test_values_of_an_axis() -> None:
    a, i = axis_over(2, "a"), axis_over(5, "i")
    parts = split_by_value([stage((a, i), choice(a.sym, [load(i.sym), load(i.sym + 1)]))])
    assert printed(parts) == text(
        """
        [0, i] %y[a.2<1, i<5]: f32 = %x[i]
        [1, i] %y[a.2<1, i<5]: f32 = %x[i + 1]
        """
    )


def test_remainders_and_what_is_left() -> None:
    assert printed(split_by_value([rows(5, 2)])) == text(
        """
        [2*i.2] %y[i.2<2]: f32 = %x[i.2]
        [2*i.2 + 1] %y[i.2<2]: f32 = %x[i.2 + 10]
        [4] %y[i.2e<1]: f32 = %x[2]
        """
    )


def test_runs() -> None:
    i = axis_over(16, "i")
    parts = split_by_value([stage((i,), choice(i.sym // 8, [load(i.sym % 8), load(i.sym + 10)]))])
    assert printed(parts) == text(
        """
        [i.8] %y[i.8<8]: f32 = %x[i.8]
        [i.8 + 8] %y[i.8<8]: f32 = %x[i.8 + 18]
        """
    )


def test_parts_of_equal_extents_share_their_loops() -> None:
    i, j = axis_over(7, "i"), axis_over(8, "j")
    cases: list[Scalar] = [choice(j.sym % 4, [load(4 * p + q) for q in range(4)]) for p in range(3)]
    parts = split_by_value([stage((i, j), choice(i.sym % 3, cases))])
    assert [len(cluster.stages) for cluster in cluster_stages(parts, frozenset({parts[0].buffer}))] == [12, 4]


@pytest.mark.parametrize("extent", [1, 2, 3, 4, 5, 6, 7, 12, 13])
@pytest.mark.parametrize("period", [2, 3, 4])
def test_results_stay_the_same(extent: int, period: int) -> None:
    parts = split_by_value([rows(extent, period)])
    kernels = lower(parts, frozenset({parts[0].buffer}), 8)
    for kernel in kernels:
        verify(kernel)
    x = np.arange(64, dtype=np.float32)
    expected = [x[i // period + 10 * (i % period)] for i in range(extent)]
    np.testing.assert_array_equal(interpret(kernels, {"x": x}, {})["y"], expected)


def test_what_cases_share_is_one_object() -> None:
    i = axis_over(8, "i")
    common = Apply("exp", (load(i.sym // 2),))
    parts = split_by_value([stage((i,), choice(i.sym % 2, [Apply("neg", (common,)), Apply("abs", (common,))]))])
    (first, second) = (part.body.arguments[0] for part in parts if isinstance(part.body, Apply))
    assert first is second


def declined(case: str) -> TensorStage:
    i = axis_over(6, "i")
    match case:
        case "no condition":
            return stage((i,), load(i.sym))
        case "an order":
            return stage((i,), Select(Apply("lt", (Index(i.sym), Index(3))), load(i.sym), load(0)))
        case "a reduction":
            return replace(rows(6, 2), reduction="sum")
        case "an unknown extent":
            n = axis_over(Sym("n", 1), "i")
            return stage((n,), choice(n.sym % 2, [load(0), load(1)]))
        case "two periods":
            return stage((i,), choice(i.sym % 2, [load(0), choice(i.sym % 3, [load(1), load(2), load(3)])]))
        case "runs that do not divide":
            return stage((i,), choice(i.sym // 4, [load(0), load(1)]))
        case "one value":
            return stage((i,), Select(Apply("eq", (Index(i.sym), Index(3))), load(0), load(1)))
        case _:
            assert case == "many values"
            long = axis_over(MOST_CASES + 1, "i")
            return stage((long,), choice(long.sym, [load(number % 64) for number in range(MOST_CASES + 1)]))


@pytest.mark.parametrize(
    "case",
    [
        "no condition",
        "an order",
        "a reduction",
        "an unknown extent",
        "two periods",
        "runs that do not divide",
        "one value",
        "many values",
    ],
)
def test_declines(case: str) -> None:
    whole = declined(case)
    assert split_by_value([whole]) == [whole]
    assert case == "a reduction" or cases_of(whole.body, whole.axes) == {}
