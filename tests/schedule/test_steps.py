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
    tall, wide = min(tall, rows), min(wide, columns)
    steps: list[Step] = [Reorder(("j", "i"))]
    tiles, heights = ["j.i"], ["i.i"]
    if columns % wide:
        steps += [Cut("j", columns // wide * wide), Tile("j", wide)]
        steps += [Reorder(("j.o", "i", "j.i")), Reorder(("i", "j.t"))]
        tiles.append("j.t")
    else:
        steps += [Tile("j", wide), Reorder(("j.o", "i", "j.i"))]
    if rows % tall:
        steps.append(Cut("i", rows // tall * tall))
        heights.append("i.t")
    steps += [Tile("i", tall), *(Hold((height, tile)) for height in heights for tile in tiles)]
    steps += [*map(Unroll, heights), *map(Vectorise, tiles)]
    parts = (Part(1, wide), Part(0), Part(1, 1, wide))
    kernel = apply_schedule(matrix_product(rows, columns, inner), (*steps, Pack("b", parts)))
    verify(kernel)
    arrays = operands(rows, columns, inner)
    packed = arrays | {kernel.reads[1].name: pack_array(arrays["b"], parts)}
    out = run_native(kernel, packed, np.full((rows, columns), np.nan, np.float32), threads)
    np.testing.assert_array_equal(out, arrays["a"] @ arrays["b"])


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((Tile("i", 2),), "2 does not divide the 5 iterations of i"),
        ((Tile("x", 2),), "there is no loop x"),
        ((Cut("i", 5),), "it cannot be cut at 5"),
        ((Reorder(("i", "k")),), "not directly inside one another"),
        ((Hold(("j", "i")),), "not directly inside one another"),
        ((Parallelise(("j",)),), "not the outermost"),
        ((Pack("c", (Part(0), Part(1))),), "not an operand that is only read"),
        ((Unroll("z"),), "there is no loop z"),
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
