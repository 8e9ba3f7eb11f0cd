"""Schedules of contractions: every one of the space computes the same, whatever the shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F32
from foretell.loops.nodes import Kernel
from foretell.loops.verify import verify
from foretell.schedule.pack import pack_array
from foretell.schedule.steps import Hold, Pack, Parallelise, Schedule, apply_schedule
from foretell.search.contraction import Problem, try_contraction, try_problem
from foretell.search.plan_terms import SURE_GAIN, plan_terms
from foretell.search.plans import every_plan
from foretell.search.schedule_contraction import best_terms, build_schedule, rank_plans, schedules, try_schedule
from foretell.target.hardware_spec import HardwareSpec
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds
from tests.loops.kernels import kernels_as_given
from tests.schedule.nests import run_native
from tests.tolerances import assert_close

SPECS = [resolve_target(name).spec for name in ("x86-64-v4", "x86-64-v3", "neoverse-n1")]
SMALL = tuple(replace(level, size_bytes=level.size_bytes // 64) for level in SPECS[0].caches)
SPECS.append(replace(SPECS[0], name="with small caches", caches=SMALL))
ICELAKE = resolve_target("icelake-server").spec


def matrix_product(rows: int, columns: int, inner: int) -> Graph:
    """relu(x w + bias)"""
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.data(rows, inner), sketch.weights(inner, columns))
    return sketch.graph(sketch.op("Relu", sketch.op("Add", product, sketch.weights(columns))))


def batched_product(batch: int, rows: int, columns: int, inner: int) -> Graph:
    """x y, neither of them constant"""
    sketch = Sketch()
    return sketch.graph(
        sketch.op("MatMul", sketch.data(batch, rows, inner), sketch.data(batch, inner, columns, name="y"))
    )


def convolution(
    channels: int, filters: int, size: tuple[int, int], kernel: tuple[int, int], stride: int, dilation: int, group: int
) -> Graph:
    """relu(conv(x, w, bias)), not padded: padding is a kernel of its own."""
    sketch = Sketch()
    x = sketch.data(1, channels * group, *size)
    w = sketch.weights(filters * group, channels, *kernel)
    attrs = dict(strides=(stride, stride), dilations=(dilation, dilation), before=(0, 0), after=(0, 0), group=group)
    return sketch.graph(sketch.op("Relu", sketch.op("Conv", x, w, sketch.weights(filters * group), **attrs)))


def plain_nest(graph: Graph) -> Kernel | None:
    """The nest that a schedule is asked for; None if there is none or more than one."""
    found: list[Kernel] = []

    def note(kernel: Kernel) -> Kernel | None:
        found.append(kernel)
        return None

    kernels = kernels_as_given(graph, 16, note)
    return found[0] if len(found) == 1 and len(kernels) == 1 else None


def find_problem(nest: Kernel | None, spec: HardwareSpec, constants: frozenset[str]) -> Problem | None:
    contraction = try_contraction(nest) if nest is not None else None
    return try_problem(contraction, spec, constants) if contraction is not None else None


def check(graph: Graph, nest: Kernel, schedule: Schedule) -> None:
    """Run the scheduled nest and compare with the graph's meaning."""
    kernel = apply_schedule(nest, schedule)
    verify(kernel)
    feeds = random_feeds(graph)
    arrays = dict(feeds) | {value.name: array for value, array in graph.constants.items()}
    for step in schedule:
        if isinstance(step, Pack):
            (source,) = (buffer for buffer in nest.reads if buffer.name == step.buffer)
            packed = pack_array(arrays[step.buffer].reshape(source.type.static_shape), step.parts)
            name = next(b.name for b in kernel.reads if b.name.startswith(f"{step.buffer}["))
            arrays[name] = packed
    (expected,) = evaluate(graph, feeds).values()
    got = run_native(kernel, arrays, np.full(expected.shape, np.nan, np.float32))
    assert_close(got, expected, F32, terms=64, scale=4.0)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    small = st.integers(1, 7)
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return matrix_product(draw(st.integers(1, 37)), draw(st.integers(1, 90)), draw(st.integers(1, 24)))
    if kind == 1:
        return batched_product(draw(small), draw(st.integers(1, 37)), draw(st.integers(1, 90)), draw(small))
    kernel, dilation = (draw(st.integers(1, 3)), draw(st.integers(1, 3))), draw(st.integers(1, 2))
    size = tuple((extent - 1) * dilation + 1 + draw(st.integers(0, 12)) for extent in kernel)
    return convolution(
        draw(small),
        draw(st.sampled_from([1, 2, 5, 16, 24, 33, 48])),
        (size[0], size[1]),
        kernel,
        draw(st.integers(1, 2)),
        dilation,
        draw(st.integers(1, 3)),
    )


@settings(max_examples=60)
@given(graphs(), st.sampled_from(SPECS), st.data())
def test_every_schedule_of_the_space(graph: Graph, spec: HardwareSpec, data: st.DataObject) -> None:
    nest = plain_nest(graph)
    constants = frozenset(value.name for value in graph.constants)
    problem = find_problem(nest, spec, constants)
    if nest is None or problem is None:
        return
    plans = every_plan(problem, spec)
    plan = plans[data.draw(st.integers(0, len(plans) - 1))]
    can_be_copied = problem.copyable is not None and problem.rows is not None and not plan.sum_block
    if can_be_copied and problem.rows is not None and plan.block_loop in (None, f"{problem.rows.name}.o"):
        plan = replace(plan, copies=data.draw(st.booleans()))  # small operands are copied for no reason
    check(graph, nest, build_schedule(problem, plan, constants))


@settings(max_examples=25)
@given(graphs(), st.sampled_from(SPECS))
def test_the_schedule_that_is_chosen(graph: Graph, spec: HardwareSpec) -> None:
    nest = plain_nest(graph)
    schedule = None
    if nest is not None:
        schedule = try_schedule(nest, spec, frozenset(value.name for value in graph.constants))
    if nest is not None and schedule is not None:
        check(graph, nest, schedule)


def test_a_sum_of_nothing_has_no_schedules() -> None:
    nest = plain_nest(batched_product(1, 2, 2, 0))
    assert nest is not None and try_schedule(nest, ICELAKE, frozenset()) is None


def test_the_choice_is_the_same_every_time() -> None:
    nest = plain_nest(convolution(64, 64, (14, 14), (3, 3), 1, 1, 1))
    assert nest is not None
    constants = frozenset(buffer.name for buffer in nest.reads[1:])
    assert try_schedule(nest, ICELAKE, constants) == try_schedule(nest, ICELAKE, constants)


def test_the_choice_is_the_first_of_the_ranking() -> None:
    nest = plain_nest(matrix_product(60, 60, 60))
    assert nest is not None
    constants = frozenset(buffer.name for buffer in nest.reads[1:])
    ranked = rank_plans(nest, ICELAKE, constants)
    assert ranked is not None
    found = ranked.terms.ranking
    assert list(found) == sorted(plan_terms(ranked.problem, ICELAKE, every_plan(ranked.problem, ICELAKE)).ranking)
    best = best_terms(nest, ICELAKE, constants)
    assert best is not None and best.cycles == ranked.terms.cycles[0]
    chosen = build_schedule(ranked.problem, ranked.plans[0], constants)
    assert try_schedule(nest, ICELAKE, constants) == chosen == schedules(nest, ICELAKE, constants)[0]


def test_tails_have_to_pay() -> None:
    """Of plans that should take about the same time, one whose tiles divide the rows is chosen."""
    for rows in (24, 28, 60, 128):
        nest = plain_nest(matrix_product(rows, 96, 64))
        assert nest is not None
        ranked = rank_plans(nest, ICELAKE, frozenset(buffer.name for buffer in nest.reads[1:]))
        assert ranked is not None
        is_even = rows % ranked.plans.rows == 0
        gain = ranked.terms.cycles[is_even].min() / ranked.terms.cycles.min()
        assert rows % ranked.plans[0].shape.rows == 0 or gain > SURE_GAIN


def test_tiles_fill_the_registers_of_a_large_product() -> None:
    nest = plain_nest(matrix_product(480, 480, 480))
    assert nest is not None
    schedule = try_schedule(nest, ICELAKE, frozenset(buffer.name for buffer in nest.reads[1:]))
    assert schedule is not None
    assert any(isinstance(step, Hold) for step in schedule) and any(isinstance(step, Parallelise) for step in schedule)
    (accumulators,) = {
        line.split(": ")[1].split(" in ")[0]
        for line in str(apply_schedule(nest, schedule)).splitlines()
        if ".acc:" in line
    }
    tall, wide = map(int, accumulators.removeprefix("f32[").removesuffix("]").split(", "))
    assert 20 <= tall * wide / 16 <= 28


def test_sums_in_blocks_are_part_of_the_space() -> None:
    """A convolution of 512 channels: the weights of a tile do not fit the first cache."""
    nest = plain_nest(convolution(512, 64, (9, 9), (3, 3), 1, 1, 1))
    assert nest is not None
    problem = find_problem(nest, ICELAKE, frozenset(buffer.name for buffer in nest.reads[1:]))
    assert problem is not None
    assert every_plan(problem, ICELAKE).sum_block.any()


@pytest.mark.parametrize("rows", [96, 100])
def test_sums_and_rows_in_blocks_whether_tiles_divide_the_rows_or_not(rows: int) -> None:
    graph = matrix_product(rows, 64, 40)
    nest = plain_nest(graph)
    constants = frozenset(value.name for value in graph.constants)
    problem = find_problem(nest, SPECS[-1], constants)
    assert nest is not None and problem is not None
    plans = every_plan(problem, SPECS[-1])
    blocked = plans.take((plans.rows == 6) & (plans.width == 64) & (plans.sum_block > 0))
    assert (blocked.block_rows == 0).any() and (blocked.block_rows > 0).any()
    for number in range(len(blocked)):
        check(graph, nest, build_schedule(problem, blocked[number], constants))


def test_an_operand_is_copied_once_for_each_block_of_rows_if_cores_would_be_idle() -> None:
    """196 points are three or four copies, which two cores cannot share evenly."""
    sketch = Sketch()
    graph = sketch.graph(sketch.op("MatMul", sketch.weights(1024, 256), sketch.data(256, 196)))
    nest = plain_nest(graph)
    assert nest is not None
    ranked = rank_plans(nest, replace(ICELAKE, cores=2), frozenset(value.name for value in graph.constants))
    assert ranked is not None
    assert ranked.plans[0].copies and ranked.plans[0].block_loop is not None


def test_rows_of_a_copy_begin_with_a_line() -> None:
    """1152 rows of 49 floats fit into what a copy may take, but not if each of them takes four lines."""
    sketch = Sketch()
    graph = sketch.graph(sketch.op("MatMul", sketch.weights(192, 1152), sketch.data(1152, 49)))
    constants, nest = frozenset(value.name for value in graph.constants), plain_nest(graph)
    problem = find_problem(nest, ICELAKE, constants)
    assert nest is not None and problem is not None
    plans = every_plan(problem, ICELAKE)
    copied = plans.take(plans.copies)
    assert len(copied) and copied.width.max() <= 48
    for number in range(0, len(copied), 7):
        apply_schedule(nest, build_schedule(problem, copied[number], constants))


def test_cores_do_not_stay_idle() -> None:
    """49 points fit one tile; the channels have to be shared out instead."""
    nest = plain_nest(convolution(512, 2048, (7, 7), (1, 1), 1, 1, 1))
    assert nest is not None
    two = replace(ICELAKE, cores=2)
    schedule = try_schedule(nest, two, frozenset(buffer.name for buffer in nest.reads[1:]))
    assert schedule is not None and isinstance(schedule[-1], Parallelise)
