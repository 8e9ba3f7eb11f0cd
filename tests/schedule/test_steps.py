"""Steps of a schedule: what each makes of a nest, what it declines, and that results stay the same."""

from __future__ import annotations

import json
from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.loops.verify import verify
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.pack import Part, pack_array, packed_buffer
from foretell.schedule.schedule_json import from_json, to_json
from foretell.schedule.steps import (
    BlockSum,
    Copy,
    Cut,
    Hold,
    Pack,
    Parallelise,
    Reorder,
    Schedule,
    Step,
    Tile,
    Unroll,
    Vectorise,
    apply_schedule,
)
from tests.schedule.nests import matrix_product, run_interpreted, run_native

BLOCKS = (Part(1, 4), Part(0), Part(1, 1, 4))
WHOLE: Schedule = (
    Reorder(("j", "i")),
    Tile("j", 4),
    Reorder(("j.o", "i", "j.i")),
    Cut("i", 4),
    Tile("i", 2),
    Hold(("i.i", "j.i")),
    Hold(("i.t", "j.i")),
    Unroll("i.i"),
    Unroll("i.t"),
    Vectorise("j.i"),
    Pack("b", BLOCKS),
    Parallelise(("j.o",)),
)
GOLDEN = """
    kernel product(%a: f32[5, 3], %b[1/4,0,1%4:2x3x4]: f32[2, 3, 4]) -> %c: f32[5, 8] {
      for j.o < 2 parallel:
        for i.o < 2 serial:
          %acc: f32[2, 4] in register
          for i.i < 2 unroll:
            for j.i < 4 vector:
              %acc[i.i, j.i] = 0.0:f32
          for k < 3 serial:
            for i.i < 2 unroll:
              for j.i < 4 vector:
                %acc[i.i, j.i] sum= mul(%a[i.i + 2*i.o, k], %b[1/4,0,1%4:2x3x4][j.o, k, j.i])
          for i.i < 2 unroll:
            for j.i < 4 vector:
              %c[i.i + 2*i.o, j.i + 4*j.o] = %acc[i.i, j.i]
        for i.t < 1 unroll:
          %acc: f32[1, 4] in register
"""


def operands(rows: int, columns: int, inner: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(rows * columns + inner)
    shapes = {"a": (rows, inner), "b": (inner, columns)}
    return {name: random.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}


def test_a_whole_schedule() -> None:
    kernel = apply_schedule(matrix_product(5, 8, 3), WHOLE)
    verify(kernel)
    expected = dedent(GOLDEN).strip().splitlines()[:-2]
    assert str(kernel).splitlines()[: len(expected)] == expected


def test_results_stay_the_same_after_every_step() -> None:
    arrays = operands(5, 8, 3)
    arrays[packed_buffer(matrix_product(5, 8, 3).reads[1], BLOCKS).name] = pack_array(arrays["b"], BLOCKS)
    for count in range(len(WHOLE) + 1):
        kernel = apply_schedule(matrix_product(5, 8, 3), WHOLE[:count])
        verify(kernel)
        np.testing.assert_array_equal(run_interpreted(kernel, arrays), arrays["a"] @ arrays["b"])


def test_json() -> None:
    assert from_json(json.loads(json.dumps(to_json(WHOLE)))) == WHOLE


SUMS: Schedule = (Tile("k", 2), BlockSum("k.o", ("i", "j")), Tile("j", 4), Hold(("j.i",)), Vectorise("j.i"))


def test_a_sum_in_blocks() -> None:
    arrays = operands(5, 8, 6)
    for count in range(len(SUMS) + 1):
        kernel = apply_schedule(matrix_product(5, 8, 6), SUMS[:count])
        verify(kernel)
        np.testing.assert_array_equal(run_interpreted(kernel, arrays), arrays["a"] @ arrays["b"])
    out = run_native(kernel, arrays, np.full((5, 8), np.nan, np.float32))
    np.testing.assert_array_equal(out, arrays["a"] @ arrays["b"])
    assert "if eq(index(k.o), index(2)):" in str(kernel)


@given(
    st.integers(1, 20), st.integers(1, 70), st.integers(1, 9), st.integers(1, 6), st.integers(1, 70), st.integers(1, 2)
)
def test_tiles_of_any_size(rows: int, columns: int, inner: int, tall: int, wide: int, threads: int) -> None:
    """Constant operands are packed; others are copied."""
    tall, wide = min(tall, rows), min(wide, columns)
    tiles, heights = ["j.i", "j.t"] if columns % wide else ["j.i"], ["i.i"]
    steps: list[Step] = [Reorder(("j", "i")), Tile("j", wide), *(Reorder(("i", each)) for each in tiles)]
    copies = [Copy("b", "i", ("k", each)) for each in tiles]
    cut: list[Step] = []
    if rows % tall:
        cut.append(Cut("i", rows // tall * tall))
        heights.append("i.t")
    held: list[Step] = [Tile("i", tall), *(Hold((height, tile)) for height in heights for tile in tiles)]
    held += [*map(Unroll, heights), *map(Vectorise, tiles)]
    parts = (Part(1, wide), Part(0), Part(1, 1, wide))
    nest, arrays = matrix_product(rows, columns, inner), operands(rows, columns, inner)
    for schedule in ((*steps, *cut, *held, Pack("b", parts)), (*steps, *copies, *cut, *held, Parallelise(("j.o",)))):
        kernel = apply_schedule(nest, schedule)
        verify(kernel)
        packed = arrays | {kernel.reads[1].name: arrays["b"]}
        if isinstance(schedule[-1], Pack):
            packed[kernel.reads[1].name] = pack_array(arrays["b"], parts)
        out = run_native(kernel, packed, np.full((rows, columns), np.nan, np.float32), threads)
        np.testing.assert_array_equal(out, arrays["a"] @ arrays["b"])


def test_a_copy_is_made_for_every_tile() -> None:
    steps = (Reorder(("j", "i")), Tile("j", 4), Reorder(("i", "j.i")), Copy("b", "i", ("k", "j.i")))
    text = str(apply_schedule(matrix_product(5, 8, 3), steps))
    assert "%b.i: f32[3, 16] in stack" in text
    assert "%b.i[k.c, j.i.c] = %b[k.c, j.i.c + 4*j.o]" in text
    assert "mul(%a[i, k], %b.i[k, j.i])" in text


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((Tile("i", 6),), "the 5 iterations of i do not make a tile of 6"),
        ((Tile("x", 2),), "there is no loop x"),
        ((Cut("i", 5),), "it cannot be cut at 5"),
        ((Reorder(("i", "k")),), "not directly inside one another"),
        ((Hold(("j", "i")),), "not directly inside one another"),
        ((Parallelise(("j",)),), "not the outermost"),
        ((Pack("c", (Part(0), Part(1))),), "not an operand that is only read"),
        ((Unroll("z"),), "there is no loop z"),
        ((Copy("b", "z", ("k",)),), "there is no loop z with k inside"),
        ((Copy("b", "i", ("k",)),), "b depends on j inside i"),
        ((BlockSum("k", ("j", "i")),), "not directly inside one another"),
        ((BlockSum("k", ("i",)),), "k is not the first loop inside i"),
    ],
)
def test_illegal_steps(steps: Schedule, says: str) -> None:
    with pytest.raises(IllegalStep, match=says):
        apply_schedule(matrix_product(5, 8, 3), steps)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_packing_is_what_loads_expect(first: int, second: int, block: int) -> None:
    array = np.arange(first * second, dtype=np.float32).reshape(first, second)
    packed = pack_array(array, (Part(0, block), Part(1), Part(0, 1, block)))
    for i in range(first):
        for j in range(second):
            assert packed[i // block, j, i % block] == array[i, j]
