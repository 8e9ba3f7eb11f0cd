"""Machine code against the evaluator: random graphs of every element type, and each primitive on awkward values."""

from __future__ import annotations

import ctypes
import mmap
import re

import numpy as np
import pytest
from hypothesis import given, settings

from foretell.cost.assembly import assemble_kernel
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph, Value
from foretell.graph.ops.elementwise import BINARY_OPS, COMPARE_OPS, UNARY_OPS
from foretell.ir import dtypes
from foretell.ir.dtypes import BOOL, F32, I8, DType
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Apply, Buffer, Const, Index, Load, Select
from foretell.link_program import link_program
from foretell.loops.nodes import For, Kernel, Store
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch
from tests.random_graphs import FLOATS, NATIVE, assert_agrees, graphs, random_data
from tests.schedule.nests import run_interpreted, run_native
from tests.tolerances import assert_close, assert_same_function

TARGET = resolve_target("native")
LANES = TARGET.spec.vector_bytes // 4
AWKWARD = sorted({0, 1, 2, 3, 7, LANES - 1, LANES, LANES + 1, 4 * LANES - 1, 4 * LANES, 4 * LANES + 1, 5 * LANES, 61})
"""Sizes around one vector and around the four that the main loop takes at once; primes; nothing."""


def run(graph: Graph, feeds: dict[str, Array], threads: int = 1) -> list[Array]:
    return list(link_program(graph, TARGET, threads).run(feeds).values())


def check(graph: Graph, feeds: dict[str, Array]) -> None:
    assert_agrees(graph, feeds, run(graph, feeds))


@settings(max_examples=120, deadline=None)
@given(graphs())
def test_random_graphs(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check(*drawn)


@settings(max_examples=60, deadline=None)
@given(graphs(sizes=AWKWARD, most_steps=3))
def test_random_graphs_of_awkward_sizes(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check(*drawn)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(graphs(sizes=(*AWKWARD, 2, 3, 5), most_steps=7))
def test_many_random_graphs(drawn: tuple[Graph, dict[str, Array]]) -> None:
    check(*drawn)


# --- every primitive -----------------------------------------------------------------------------------------

FLOAT_ONLY = frozenset(
    "Sqrt Reciprocal Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid".split()
)
LOGICAL, BITWISE, SHIFTS = frozenset({"Not"}), frozenset({"And", "Or", "Xor"}), frozenset({"ShiftLeft", "ShiftRight"})
NUMBERS = {
    **dict.fromkeys(("Asin", "Acos", "Atanh"), (-1.0, 1.0)),
    **dict.fromkeys(("Acosh",), (1.0, 50.0)),
    **dict.fromkeys(("Sin", "Cos", "Tan"), (-20.0, 20.0)),
    **dict.fromkeys(("Sinh", "Cosh", "Exp"), (-9.0, 9.0)),
    **dict.fromkeys(("Log", "Sqrt"), (0.001, 90.0)),
}
"""Where a function is smooth enough that every type can be asked for its last bits; the rest over [-8, 8]."""


def unary_ops(dtype: DType) -> list[str]:
    if dtype is BOOL:
        return ["Not"]
    return [op for op in UNARY_OPS if op not in (LOGICAL if dtype.is_float else FLOAT_ONLY)]


def binary_ops(dtype: DType) -> list[str]:
    if dtype is BOOL:
        return [*sorted(BITWISE), "Equal"]
    unsigned = dtype.kind == "uint"
    bits = BITWISE if not dtype.is_float else frozenset()
    named = [*BINARY_OPS, *COMPARE_OPS]
    return [op for op in named if op not in BITWISE | SHIFTS or op in bits or (unsigned and op in SHIFTS)]


def operands(op: str, dtype: DType, size: int, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    if not dtype.is_float:
        info = None if dtype is BOOL else np.iinfo(dtype.numpy.name)
        arrays = [random_data((size,), dtype, random) for _ in range(2)]
        if info is not None and size > 3 and op not in SHIFTS:
            arrays[0][:3], arrays[1][:3] = (info.min, info.max, info.min), (info.min, info.max, info.max)
        return arrays
    low, high = NUMBERS.get(op, (-8.0, 8.0))
    return [random.uniform(low, high, size).astype(dtype.numpy) for _ in range(2)]


def primitives_graph(dtype: DType, size: int) -> tuple[Graph, dict[str, Array], list[tuple[str, Value]]]:
    """One graph that applies every primitive of a type, each to data of its own."""
    sketch, feeds, made = Sketch(), {}, []
    ops = [(op, 1) for op in unary_ops(dtype)] + [(op, 2) for op in binary_ops(dtype)]
    for op, count in ops:
        arrays = operands(op, dtype, size)[:count]
        values = [sketch.data(size, dtype=dtype, name=f"{op}{number}") for number in range(count)]
        feeds |= {value.name: array for value, array in zip(values, arrays, strict=True)}
        made.append((op, sketch.op(op, *values)))
    return sketch.graph(*(value for _, value in made)), feeds, made


@pytest.mark.parametrize("dtype", NATIVE, ids=str)
def test_every_primitive(dtype: DType) -> None:
    graph, feeds, made = primitives_graph(dtype, 4 * LANES + 5)
    expected = list(evaluate(graph, feeds).values())
    for (op, value), found, wanted in zip(made, run(graph, feeds), expected, strict=True):
        try:
            assert_same_function(found, wanted, value.dtype)
        except AssertionError as failure:
            raise AssertionError(f"{op} of {dtype}: {failure}") from failure


@pytest.mark.parametrize("dtype", NATIVE, ids=str)
def test_casts(dtype: DType) -> None:
    """To every type, of values that fit in all of them."""
    sketch = Sketch()
    x = sketch.data(61, dtype=dtype)
    targets = [target for target in NATIVE if target != dtype]
    graph = sketch.graph(*(sketch.op("Cast", x, to=target) for target in targets))
    feeds = {"x": np.random.default_rng(1).uniform(0, 100, 61).astype(dtype.numpy)}
    for target, found, wanted in zip(targets, run(graph, feeds), evaluate(graph, feeds).values(), strict=True):
        np.testing.assert_array_equal(found, wanted, err_msg=f"{dtype} to {target}")


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(dtype: DType) -> None:
    """Zeros of both signs, infinities, NaN, denormals and the largest number, through every float primitive."""
    bits = np.arange(1, 4, dtype=f"u{dtype.itemsize}").view(dtype.numpy)
    exponents = (np.array([0, 1, 2], np.int64) << _mantissa_bits(dtype)).astype(f"u{dtype.itemsize}").view(dtype.numpy)
    positive = np.concatenate([bits, exponents])
    values = np.concatenate([np.array(SPECIAL).astype(dtype.numpy), positive, np.negative(positive)])
    left, right = (part.reshape(-1) for part in np.meshgrid(values, values))
    sketch = Sketch()
    x, y = sketch.data(left.size, dtype=dtype), sketch.data(left.size, dtype=dtype, name="y")
    ops = [op for op in (*unary_ops(dtype), "IsNaN", "IsInf") if op not in ("Tan",)]
    made = [(op, sketch.op(op, x)) for op in ops]
    made += [(op, sketch.op(op, x, y)) for op in binary_ops(dtype) if op not in ("Mod", "FMod")]
    graph, feeds = sketch.graph(*(value for _, value in made)), {"x": left, "y": right}
    expected = list(evaluate(graph, feeds).values())
    for (op, value), found, wanted in zip(made, run(graph, feeds), expected, strict=True):
        try:
            assert_same_function(found, wanted, value.dtype)
        except AssertionError as failure:
            raise AssertionError(f"{op} of {dtype}: {failure}") from failure


def _mantissa_bits(dtype: DType) -> int:
    return {dtypes.F64: 52, dtypes.F32: 23, dtypes.F16: 10, dtypes.BF16: 7}[dtype]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_denormals_are_kept(dtype: DType) -> None:
    smallest = np.arange(1, 60, dtype=f"u{dtype.itemsize}").view(dtype.numpy)
    sketch = Sketch()
    x = sketch.data(59, dtype=dtype)
    graph = sketch.graph(sketch.op("Neg", x), sketch.op("Add", x, x), sketch.op("Max", x, sketch.op("Neg", x)))
    feeds = {"x": smallest}
    for found, wanted in zip(run(graph, feeds), evaluate(graph, feeds).values(), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum"])
@pytest.mark.parametrize("place", [0, 3, LANES, 60])
def test_nan_and_infinity_reach_the_end_of_a_reduction(op: str, place: int) -> None:
    sketch = Sketch()
    graph = sketch.graph(sketch.op(op, sketch.data(2, 61), axes=(1,), keepdims=False))
    x = np.random.default_rng(2).standard_normal((2, 61)).astype(np.float32)
    x[0, place], x[1, place] = np.nan, -np.inf
    found, wanted = run(graph, {"x": x})[0], evaluate(graph, {"x": x})["y0"]
    assert_close(found, wanted, dtypes.F32, terms=61)


@pytest.mark.parametrize("size", AWKWARD)
def test_reductions_of_awkward_sizes(size: int) -> None:
    """Over the last axis and over the first, of floats and of bytes."""
    sketch = Sketch()
    x, y = sketch.data(3, size), sketch.data(size, 3, dtype=dtypes.I8, name="y")
    ops = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
    outputs = [sketch.op(op, value, axes=(axis,), keepdims=False) for op in ops for value in (x, y) for axis in (0, 1)]
    graph = sketch.graph(*outputs)
    random = np.random.default_rng(size)
    feeds = {"x": random_data((3, size), dtypes.F32, random), "y": random_data((size, 3), dtypes.I8, random)}
    check(graph, feeds)


def test_integer_division_never_traps() -> None:
    sketch = Sketch()
    x, y = sketch.data(4, dtype=dtypes.I32), sketch.data(4, dtype=dtypes.I32, name="y")
    graph = sketch.graph(sketch.op("Div", x, y), sketch.op("Mod", x, y))
    lowest = np.iinfo(np.int32).min
    feeds = {"x": np.array([lowest, 7, -7, 5], np.int32), "y": np.array([-1, 0, 2, -3], np.int32)}
    quotient, rest = run(graph, feeds)
    assert quotient.tolist()[0] == lowest and quotient.tolist()[2:] == [-3, -1]
    assert rest.tolist()[0] == 0 and rest.tolist()[2:] == [1, -1]


def test_gather_stays_inside_whatever_the_indices() -> None:
    sketch = Sketch()
    indices = sketch.data(5, dtype=dtypes.I64, name="indices")
    graph = sketch.graph(sketch.op("Gather", sketch.data(4, 3), indices, axis=0))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    far = np.array([0, 4, 1 << 40, -(1 << 62), -5])
    (found,) = run(graph, {"x": x, "indices": far})
    np.testing.assert_array_equal(found, x[[0, 3, 3, 0, 0]])


def test_large_enough_for_threads() -> None:
    """Blocks of a flat loop with a rest, and rows of a softmax, on two threads and on one: the same bits."""
    sketch = Sketch()
    x = sketch.data(257, 301)
    graph = sketch.graph(sketch.op("Softmax", x, axis=1), sketch.op("Tanh", sketch.op("Mul", x, x)))
    feeds = {"x": random_data((257, 301), dtypes.F32, np.random.default_rng(3))}
    one, two = run(graph, feeds, threads=1), run(graph, feeds, threads=2)
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)
    assert_agrees(graph, feeds, one)


def test_variables_that_are_written_out_multiply_others() -> None:
    """The first factor of a product may be a number that is known, and not be one."""
    t, i, j = Sym("t", 0, 2), Sym("i", 0, 2), Sym("j", 0, 19)
    x, y = Buffer("x", F32, (24,)), Buffer("y", F32, (3, 3, 20))
    store = Store(y, (t, i, j), Load(x, (i * t + j,), F32))
    body = For(i, 3, "unroll", For(t, 3, "serial", For(j, 20, "vector", store)))
    kernel, feeds = Kernel("k", (x,), (y,), body), {"x": np.arange(24, dtype=np.float32)}
    found = run_native(kernel, feeds, np.empty((3, 3, 20), np.float32))
    np.testing.assert_array_equal(found, run_interpreted(kernel, feeds))


@pytest.mark.parametrize("dtype", [F32, I8], ids=str)
@pytest.mark.parametrize("op", ["lt", "ge"])
def test_lanes_are_compared_with_any_number(op: str, dtype: DType) -> None:
    """Bounds before, in and behind a vector, and too far away for a byte; loads at lanes that are left out are none."""
    t, i = Sym("t", 0, 9), Sym("i", 0, 300)
    x, y = Buffer("x", dtype, (301,)), Buffer("y", dtype, (10, 301))
    for shift in (0, -3, 255, 256, 1 << 40, -(1 << 40)):
        condition = Apply(op, (Index(i - 3), Index(t * 37 + shift)))
        store = Store(y, (t, i), Select(condition, Load(x, (i,), dtype), Const(0, dtype)))
        body = For(t, 10, "serial", For(i, 301, "vector", store))
        kernel, feeds = Kernel("k", (x,), (y,), body), {"x": np.arange(301).astype(dtype.numpy)}
        found = run_native(kernel, feeds, np.empty((10, 301), dtype.numpy))
        np.testing.assert_array_equal(found, run_interpreted(kernel, feeds))


def test_blocks_of_a_transposition_may_end_in_another_row() -> None:
    """Where an element goes is linear in the lane only for iterations that are written out."""
    sketch = Sketch()
    turned = sketch.op("Transpose", sketch.data(3 * LANES + 1, 6, LANES - 2), perm=(1, 2, 0))
    graph = sketch.graph(sketch.op("Concat", turned, sketch.data(6, 2, 3 * LANES + 1), axis=1))
    rng = np.random.default_rng(0)
    check(graph, {value.name: random_data(value.type.static_shape, F32, rng) for value in graph.inputs})


def test_blocks_of_a_transposition_read_nothing_outside_their_buffer() -> None:
    """A border that is selected is not loaded: neither before nor behind the buffer is there anything to read."""
    rows = mmap.PAGESIZE // (4 * LANES)
    c, j = Sym("c", 0, rows - 1), Sym("j", 0, LANES - 1)
    x, y = Buffer("x", F32, (rows, LANES)), Buffer("y", F32, (LANES, rows))
    data = between_guards().view(np.float32).reshape(rows, LANES)
    data[...] = np.arange(data.size).reshape(data.shape)
    for shift in (-1, 0, 1):
        inside = Select(Apply("lt", (Index(j + shift), Index(LANES))), Load(x, (c, j + shift), F32), Const(0.0, F32))
        value = Select(Apply("ge", (Index(j + shift), Index(0))), inside, Const(0.0, F32))
        body = For(c, rows, "vector", For(j, LANES, "unroll", Store(y, (j, c), value)))
        kernel = Kernel("k", (x,), (y,), body)
        found = run_native(kernel, {"x": data}, np.empty((LANES, rows), np.float32))
        np.testing.assert_array_equal(found, run_interpreted(kernel, {"x": data.copy()}))


def between_guards() -> Array:
    """A page between two that cannot be read; never unmapped."""
    pages = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    found = np.frombuffer(pages, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for number in (0, 2):
        address = ctypes.c_void_p(found.ctypes.data + number * mmap.PAGESIZE)
        if protect(address, ctypes.c_size_t(mmap.PAGESIZE), 0):
            pytest.skip("pages cannot be protected here")
    return found[mmap.PAGESIZE : 2 * mmap.PAGESIZE]


def ends_of_rows(length: int) -> Kernel:
    """y[i, j] = -x[i, j], rows of so many elements"""
    x, y = (Buffer(name, F32, (3, length)) for name in "xy")
    i, j = Sym("i", 0, 2), Sym("j", 0, length - 1)
    store = Store(y, (i, j), Apply("neg", (Load(x, (i, j), F32),)))
    return Kernel("negated", (x,), (y,), For(i, 3, "serial", For(j, length, "vector", store)))


@pytest.mark.parametrize("length", range(1, 2 * LANES + 2))
def test_ends_of_rows(length: int) -> None:
    x = np.arange(3.0 * length, dtype=np.float32).reshape(3, length)
    beyond = np.full(3 * length + LANES, 7, np.float32)
    run_native(ends_of_rows(length), {"x": x}, beyond)
    assert np.array_equal(beyond[: 3 * length].reshape(3, length), -x) and (beyond[3 * length :] == 7).all()


@pytest.mark.parametrize(("target", "is_masked"), [("x86-64-v3", False), ("x86-64-v4", True)])
def test_ends_of_rows_are_stored_in_parts_where_there_are_no_registers_for_masks(target: str, is_masked: bool) -> None:
    text = assemble_kernel(ends_of_rows(30), resolve_target(target))
    stores = re.findall(r"vmaskmov\w+\s+%ymm\d+, %ymm\d+, \S*\(|vmovu\w+\s+%[yz]mm\d+, \S*\([^)]*\) {%k", text)
    assert bool(stores) is is_masked
