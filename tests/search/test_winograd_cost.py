"""Which convolutions are computed in tiles: what the formula says, and that predicted errors hold."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.rewrites.use_winograd import Convolution, use_winograd
from foretell.link_program import link_program
from foretell.search.choose_algorithms import choose_algorithms
from foretell.search.winograd_cost import choose_tile, direct_time, is_allowed, winograd_error, winograd_time
from foretell.target.hardware_spec import with_cores
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, check_declines, operators

SPEC = resolve_target("icelake-server").spec
BUDGET = 1e-4


def square(channels: int, size: int, outputs: int | None = None, kernel: int = 3, stride: int = 1) -> Convolution:
    return Convolution(1, channels, outputs or channels, (kernel, kernel), (size, size), (stride, stride))


@pytest.mark.parametrize(("channels", "size"), [(64, 56), (128, 28), (256, 56)])
def test_large_images_pay(channels: int, size: int) -> None:
    assert choose_tile(square(channels, size), SPEC, 0, BUDGET) >= 4


@pytest.mark.parametrize("convolution", [square(512, 7), square(3, 224, 64), square(16, 4)], ids=str)
def test_weights_that_grow_and_transformations_without_use_do_not(convolution: Convolution) -> None:
    assert choose_tile(convolution, SPEC, 100 << 20, BUDGET) == 0


def test_strides_pay_where_multiplying_is_dear() -> None:
    """One multiply-add a cycle and large windows: a first layer. With two, or with few taps to save, it is direct."""
    first, zen4 = square(3, 112, 64, kernel=7, stride=2), with_cores(resolve_target("znver4").spec, 1)
    assert first.in_phases == square(12, 112, 64, kernel=4) and first.in_phases.data_shape == (115, 115)
    assert choose_tile(first, zen4, 0, BUDGET) == 4
    assert choose_tile(first, with_cores(SPEC, 1), 0, BUDGET) == 0
    assert choose_tile(square(3, 112, 32, stride=2), zen4, 0, BUDGET) == 0


def test_weights_that_stay_near_allow_larger_tiles() -> None:
    near, far = (winograd_time(square(256, 14), 4, SPEC, size) for size in (0, 1 << 30))
    assert near.weights_s < far.weights_s and near.products_s == far.products_s


def test_terms_of_the_direct_way() -> None:
    time = direct_time(square(64, 56), SPEC, 0)
    peak_s = 2 * 56 * 56 * 64 * 64 * 9 / SPEC.peak_flops_per_s(cores=SPEC.cores)
    assert peak_s < time.products_s < 1.3 * peak_s and time.transforms_s == time.starts_s == 0.0
    assert time.total_s >= time.products_s


def test_an_error_budget_limits_tiles() -> None:
    convolution = square(64, 56)
    errors = [winograd_error((3, 3), 64, results) for results in (2, 3, 4, 5, 6)]
    assert errors == sorted(errors) and errors[-1] < BUDGET
    assert choose_tile(convolution, SPEC, 0, errors[0]) == 2
    assert choose_tile(convolution, SPEC, 0, errors[0] / 2) == 0
    assert not is_allowed(square(64, 56, kernel=5), 6, BUDGET) and not is_allowed(square(64, 56, kernel=1), 2, BUDGET)


@pytest.mark.parametrize("channels", [16, 128, 512])
@pytest.mark.parametrize("results", [2, 4, 6])
@pytest.mark.parametrize("is_rectified", [False, True])
def test_errors_stay_below_what_is_predicted(results: int, channels: int, is_rectified: bool) -> None:
    random, sketch = np.random.default_rng(channels), Sketch()
    x, w = random.standard_normal((1, channels, 14, 14), np.float32), random.standard_normal((16, channels, 3, 3))
    x = np.maximum(x, 0) if is_rectified else x
    w = w.astype(np.float32)
    graph = sketch.graph(
        sketch.op(
            "Conv",
            sketch.data(*x.shape),
            sketch.constant(w),
            strides=(1, 1),
            dilations=(1, 1),
            before=(0, 0),
            after=(0, 0),
            group=1,
        )
    )
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    exact = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64), optimize=True)
    model = link_program(use_winograd(graph, lambda convolution: results), resolve_target("native"), 2)
    error = float(np.abs(model(x) - exact).max() / np.abs(exact).max())
    assert error < winograd_error((3, 3), channels, results) < BUDGET


def test_zero_forbids() -> None:
    sketch = Sketch()
    x, w = sketch.data(1, 64, 56, 56), sketch.weights(64, 64, 3, 3)
    attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1)}
    graph = sketch.graph(sketch.op("Conv", x, w, **attrs, group=1))
    assert "WinogradInput" in operators(choose_algorithms(graph, SPEC))
    check_declines(lambda before: choose_algorithms(before, SPEC, 0.0), graph)
