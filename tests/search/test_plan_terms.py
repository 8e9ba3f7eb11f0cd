"""What plans cost: each by itself, and against what can be counted by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.pair_products import pair_products
from foretell.link_program import lower_program
from foretell.schedule.steps import BlockSum, Unroll
from foretell.search.contraction import Problem
from foretell.search.plan_terms import PlanTerms, plan_terms, task_count
from foretell.search.plans import block_points, every_plan, tiled_rows
from foretell.search.schedule_contraction import try_schedule
from foretell.search.schedule_nests import Nest
from foretell.target.hardware_spec import Coefficients, HardwareSpec, with_cores
from foretell.target.resolve import Target, resolve_target
from tests.graph.build_graphs import Sketch
from tests.loops.image_graphs import conv
from tests.search.test_schedule_contraction import (
    ICELAKE,
    SPECS,
    batched_product,
    convolution,
    find_problem,
    graphs,
    matrix_product,
    plain_nest,
)

SAPPHIRE_RAPIDS = resolve_target("sapphirerapids").spec
ZEN3 = with_cores(resolve_target("znver3").spec, 1)
ZEN4 = with_cores(resolve_target("znver4").spec, 1)
ZEN5 = with_cores(resolve_target("znver5").spec, 1)


def problem_of(graph: Graph, spec: HardwareSpec) -> Problem | None:
    return find_problem(plain_nest(graph), spec, frozenset(value.name for value in graph.constants))


@settings(max_examples=60)
@given(graphs(), st.sampled_from(SPECS), st.data())
def test_a_plan_costs_the_same_by_itself(graph: Graph, spec: HardwareSpec, data: st.DataObject) -> None:
    problem = problem_of(graph, spec)
    if problem is None:
        return
    plans = every_plan(problem, spec)
    number = data.draw(st.integers(0, len(plans) - 1))
    together, alone = plan_terms(problem, spec, plans), plan_terms(problem, spec, plans.take(np.array([number])))
    for field in fields(PlanTerms):
        every, (single,) = getattr(together, field.name), getattr(alone, field.name)
        assert every[number] == single and len(every) == len(plans) and np.isfinite(every).all()


@settings(max_examples=60)
@given(graphs(), st.sampled_from(SPECS))
def test_plans_are_distinct_and_divide_loops(graph: Graph, spec: HardwareSpec) -> None:
    problem = problem_of(graph, spec)
    if problem is None:
        return
    plans = every_plan(problem, spec)
    each = [plans[number] for number in range(len(plans))]
    assert len(set(each)) == len(each)
    extents = {loop.name: loop.extent for loop in problem.others}
    for plan in each:
        if problem.rows is not None:
            extents[problem.rows.name] = problem.row_count
            extents[f"{problem.rows.name}.o"] = problem.row_count // plan.shape.rows
        assert plan.block_loop is None or extents[plan.block_loop] % plan.block == 0
        assert plan.sum_block == 0 or problem.reductions[-1].extent % plan.sum_block == 0


@settings(max_examples=60)
@given(graphs())
def test_there_is_at_least_the_work(graph: Graph) -> None:
    """Every multiply-add passes a port, and no core has less than its share."""
    problem = problem_of(graph, ICELAKE)
    if problem is None:
        return
    plans = every_plan(problem, ICELAKE)
    terms = plan_terms(problem, replace(ICELAKE, coefficients=Coefficients()), plans)
    vectors = problem.contraction.points / problem.lanes
    assert (terms.tiles >= vectors / ICELAKE.fma_ports * (1 - 1e-9)).all()
    assert (terms.idle >= 1).all() and (terms.cycles >= np.maximum(terms.compute, terms.memory)).all()
    assert (terms.partial_sums > 0).tolist() == (plans.sum_block > 0).tolist()
    assert plan_terms(problem, replace(ICELAKE, cores=1), plans).idle.max() == 1


def test_tasks_are_tiles() -> None:
    problem = problem_of(matrix_product(24, 64, 30), ICELAKE)
    assert problem is not None and (problem.row_count, problem.vector.extent) == (24, 64)
    plans = every_plan(problem, ICELAKE)
    is_even = (plans.sum_block == 0) & ~plans.copies & (24 % plans.rows == 0) & (64 % plans.width == 0)
    even = plans.take(is_even)
    assert task_count(problem, even).tolist() == (24 // even.rows * (64 // even.width)).tolist()


def test_tasks_are_blocks_where_tiles_do_not_divide_the_rows() -> None:
    """100 rows in tiles of 6: one tail, or one for each block."""
    problem = problem_of(matrix_product(100, 64, 30), ICELAKE)
    assert problem is not None and not problem.others
    plans = every_plan(problem, ICELAKE)
    uneven = plans.take((plans.sum_block == 0) & ~plans.copies & (plans.rows == 6) & (plans.width == 64))
    assert uneven.block_rows.tolist() == [0, 10, 20, 25, 50]
    assert block_points(problem, uneven).tolist() == tiled_rows(problem, uneven).tolist() == [100, 10, 20, 25, 50]
    assert task_count(problem, uneven).tolist() == [1, 10, 5, 4, 2]
    assert [uneven[number].block_loop for number in (0, 1)] == [None, problem.rows and problem.rows.name]


def test_a_small_last_task_keeps_no_core_busy() -> None:
    """196 in tiles of 64: three tasks and a small one, of which two cores finish the three in the time of two."""
    problem = problem_of(matrix_product(24, 196, 30), ICELAKE)
    assert problem is not None and problem.vector.extent == 196
    plans = every_plan(problem, ICELAKE)
    uneven = plans.take((plans.rows == 6) & np.isin(plans.width, (48, 64)) & (plans.sum_block == 0) & ~plans.copies)
    terms = plan_terms(problem, replace(ICELAKE, cores=2), uneven)
    assert uneven.width.tolist() == [48, 64] and task_count(problem, uneven).tolist() == [5, 4]
    assert terms.idle.tolist() == pytest.approx([2 * (2 + 1 / 3) / (4 + 1 / 3), 2 * 2 / 3.25])


def test_blocks_of_a_sum_do_not_bring_rows_nearer() -> None:
    """256 rows are a megabyte: between one slab and the next all of it is read, in blocks of the sum or at once."""
    problem = problem_of(matrix_product(1024, 1024, 1024), ICELAKE)
    assert problem is not None
    plans = every_plan(problem, ICELAKE)
    some = plans.take((plans.rows == 6) & (plans.width == 64) & (plans.block_rows == 256))
    whole, blocked = plan_terms(problem, ICELAKE, some).rows
    assert some.sum_block.tolist() == [0, 512] and whole == blocked


def test_blocks_of_a_sum_that_part_lines_read_them_again() -> None:
    """Rows of windows in pairs end with a line of sixteen; a block of four of these brings in all of it."""
    nest, problem = longest_sum(paired_windows(), ZEN5)
    assert problem is not None and problem.reductions[-1].extent == 16
    plans = every_plan(problem, ZEN5)
    some = plans.take((plans.rows == 10) & (plans.width == 32) & (plans.block_rows == 0) & (plans.block < 2))
    rows = dict(zip(some.sum_block.tolist(), plan_terms(problem, ZEN5, some).rows.tolist(), strict=True))
    assert rows[4] > 3 * rows[0]
    best = try_schedule(nest.kernel, ZEN5, nest.constants)
    assert best is not None and not any(isinstance(step, BlockSum) for step in best)


def test_steps_of_pairs_are_written_out_one_by_one_where_several_vectors_share_elements() -> None:
    for spec, steps in ((ZEN4, 2), (ZEN5, 1)):
        nest, problem = longest_sum(paired_windows(), spec)
        best = try_schedule(nest.kernel, spec, nest.constants)
        assert best is not None and problem is not None
        assert (Unroll(f"{problem.reductions[-1].name}.i") in best) == (steps > 1)


def paired_windows() -> Graph:
    sketch = Sketch()
    x, w = sketch.data(1, 512, 15, 15), sketch.weights(512, 512, 3, 3)
    window = dict(strides=(2, 2), dilations=(1, 1), before=(0, 0), after=(0, 0), group=1)
    return pair_products(sketch.graph(sketch.op("Conv", x, w, **window)), lambda _: True)


def longest_sum(graph: Graph, spec: HardwareSpec) -> tuple[Nest, Problem | None]:
    nests = [nest for nest, _ in lower_program(graph, Target(spec)).nests]
    problems = [find_problem(nest.kernel, spec, nest.constants) for nest in nests]
    return max(zip(nests, problems, strict=True), key=lambda each: each[1].contraction.points if each[1] else 0)


def depthwise_problem(channels: int, image: int, kernel: int, stride: int, spec: HardwareSpec) -> Problem:
    """Of a convolution whose image has its channels last."""
    sketch = Sketch()
    x = sketch.op("Transpose", sketch.data(1, image, image, channels), perm=(0, 3, 1, 2))
    x = conv(sketch, x, channels, kernel, stride=stride, group=channels)
    graph = sketch.graph(sketch.op("Transpose", x, perm=(0, 2, 3, 1)))
    ((nest, _),) = lower_program(graph, Target(spec)).nests
    problem = find_problem(nest.kernel, spec, nest.constants)
    assert problem is not None and problem.loads.window is not None
    return problem


def test_rows_of_windows_that_stay_nearest_are_read_once() -> None:
    """A row of 58 channels and its two neighbours fit the first cache; all rows do not, nor do those of 116."""
    spec = with_cores(ICELAKE, 1)
    for channels, is_nearest in ((58, True), (116, False)):
        problem = depthwise_problem(channels, 30, 3, 1, spec)
        assert problem.vector.extent == channels
        plans = every_plan(problem, spec)
        some = plans.take((plans.rows == 4) & (plans.width == 16) & (plans.sum_block == 0) & (plans.block < 2))
        whole, by_row = plan_terms(problem, spec, some).others
        assert (by_row < whole) == is_nearest


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "overlap"), [(576, 3, 1, 2.0), (192, 3, 2, 0.5), (576, 2, 2, 0.0)]
)
def test_windows_read_rows_of_the_next_block_again(channels: int, kernel: int, stride: int, overlap: float) -> None:
    """Rows of so many channels do not fit the first cache: blocks of one row find none of the last there any more."""
    problem = depthwise_problem(channels, 13 * stride + kernel, kernel, stride, ZEN5)
    assert problem.loads.window is not None and problem.loads.window.overlap == overlap
    plans = every_plan(problem, ZEN5)
    some = plans.take((plans.rows == 7) & (plans.width == 32) & (plans.sum_block == 0) & (plans.block_rows == 0))
    others = plan_terms(problem, ZEN5, some).others
    ((one,), (two,)) = (others[some.block == block] for block in (1, 2))
    assert one > two if overlap else one == two


def test_tasks_are_copies() -> None:
    sketch = Sketch()
    product = sketch.op("MatMul", sketch.weights(1024, 256), sketch.data(256, 196))
    problem = problem_of(sketch.graph(product), ICELAKE)
    assert problem is not None and problem.row_count == 1024
    plans = every_plan(problem, ICELAKE)
    copied = plans.take(plans.copies & (plans.rows == 4) & (plans.width == 49))
    assert copied.block_rows.tolist() == [0, *(2**power for power in range(2, 10))]
    assert task_count(problem, copied).tolist() == [4, *(4 * 1024 // 2**power for power in range(2, 10))]


def test_slabs_that_are_no_copies_are_read_in_lines() -> None:
    """Rows of 96 columns begin lines: so do pieces of 32, and not all of 24, of which a line holds parts of two."""
    problem = problem_of(batched_product(4, 512, 96, 512), ZEN3)
    assert problem is not None and problem.vector.extent == 96
    plans = every_plan(problem, ZEN3)
    slabs = plan_terms(problem, ZEN3, plans).slabs
    whole = (plans.rows == 2) & (plans.sum_block == 0) & (plans.block_rows == 0)
    in_pieces, in_lines = (slabs[whole & ~plans.copies & (plans.width == width)].min() for width in (24, 32))
    assert in_pieces == pytest.approx((1 + 32 / 96) * in_lines, rel=0.05)


def test_vectors_at_equal_places_of_the_first_cache_are_waited_for() -> None:
    """64 steps read vectors half a way apart, or a line more: the first push each other out, unless they are copied."""
    costs: dict[int, float] = {}
    for columns in (512, 528):
        problem = problem_of(batched_product(2, 512, columns, 64), ZEN4)
        assert problem is not None and problem.vector.extent == columns
        plans = every_plan(problem, ZEN4)
        terms = plan_terms(problem, ZEN4, plans)
        in_place = ~plans.copies & (plans.sum_block == 0) & (plans.width <= 64)
        assert (terms.crowded[in_place] > 0).all() if columns == 512 else not terms.crowded.any()
        assert not terms.crowded[plans.copies].any()
        assert plans.copies[terms.ranking.argmin()] == (columns == 512)
        costs[columns] = terms.cycles[in_place & (plans.rows == 2) & (plans.width == 48)].min() / columns
    assert costs[512] > 1.1 * costs[528]


@pytest.mark.parametrize("rows, columns, inner", [(512, 512, 512), (64, 256, 1024), (128, 768, 64), (100, 64, 30)])
def test_what_lies_side_by_side_is_not_crowded(rows: int, columns: int, inner: int) -> None:
    """Rows of an operand one after the other, and constants, which are packed."""
    for spec in (ZEN4, ICELAKE):
        problem = problem_of(matrix_product(rows, columns, inner), spec)
        assert problem is not None and problem.vector.extent == columns and not problem.vector_panels
        plans = every_plan(problem, spec)
        assert not plan_terms(problem, spec, plans).crowded[plans.sum_block == 0].any()


def test_windows_of_images_whose_rows_are_a_power_of_two_are_waited_for() -> None:
    for size, is_crowded in ((64, True), (66, False)):
        sketch = Sketch()
        x, w = sketch.data(1, 32, size, size), sketch.data(24, 32, 3, 3, name="w")
        attrs = dict(strides=(1, 1), dilations=(1, 1), before=(0, 0), after=(0, 0), group=1)
        problem = problem_of(sketch.graph(sketch.op("Conv", x, w, sketch.weights(24), **attrs)), ZEN4)
        assert problem is not None and problem.vector.extent == size - 2
        plans = every_plan(problem, ZEN4)
        short = (plans.rows == 2) & (plans.width == 16) & (plans.sum_block == 0) & ~plans.copies
        assert (plan_terms(problem, ZEN4, plans).crowded[short] > 0).all() == is_crowded


def test_between_two_uses_of_a_slab_all_batches_are_gone_through() -> None:
    """512 x 512 weights fit the second cache, and those of sixteen batches do not: each comes from further away."""
    waited: list[float] = []
    for batch in (1, 16):
        problem = problem_of(batched_product(batch, 16, 512, 512), SAPPHIRE_RAPIDS)
        assert problem is not None
        plans = every_plan(problem, SAPPHIRE_RAPIDS)
        some = plans.take((plans.rows == 8) & (plans.width == 32) & (plans.sum_block == 0) & ~plans.copies)
        waited.append(plan_terms(problem, SAPPHIRE_RAPIDS, some).slabs.max() / batch)
    assert waited[1] > 1.5 * waited[0]


@pytest.mark.parametrize(("images", "is_large"), [(64, True), (2, False)])
def test_rows_of_large_images_come_before_strips(images: int, is_large: bool) -> None:
    """A window that goes down all rows of a strip waits for every line of it."""
    problem = problem_of(convolution(1, 1, (130, 130), (3, 3), 1, 1, images), ZEN3)
    assert problem is not None
    plans = every_plan(problem, ZEN3)
    terms = plan_terms(problem, ZEN3, plans)
    in_strips = (plans.block_rows == 0) & (plans.width < problem.vector.extent)
    assert (plans.block_rows > 0).any() and in_strips.any()
    assert (terms.pieces[in_strips] > 0).all() == is_large and not terms.pieces[~in_strips].any()
    assert not is_large or plans.block_rows[terms.ranking.argmin()] > 0


@pytest.mark.parametrize(("function", "is_awaited"), [("Sigmoid", True), ("Relu", False)])
def test_functions_wait_for_the_short_sums_of_each_tile(function: str, is_awaited: bool) -> None:
    sketch = Sketch()
    x, w = sketch.data(1, 16, 30, 30), sketch.weights(16, 1, 3, 3)
    window = dict(strides=(1, 1), dilations=(1, 1), before=(0, 0), after=(0, 0), group=16)
    problem = problem_of(sketch.graph(sketch.op(function, sketch.op("Conv", x, w, **window))), ZEN5)
    assert problem is not None and problem.loads.window is not None
    plans = every_plan(problem, ZEN5)
    finishing = plan_terms(problem, ZEN5, plans).finishing
    small, large = (finishing[(plans.rows == rows) & (plans.width == 28)][0] for rows in (2, 7))
    assert (small > 1.1 * large) == is_awaited and (small == large) != is_awaited
