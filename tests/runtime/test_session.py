"""Calling a compiled model: what may be passed in, what comes out, from many threads and processes."""

from __future__ import annotations

import array
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph
from foretell.ir import dtypes
from foretell.ir.expr import Sym
from foretell.link_program import link_program
from foretell.runtime.session import KEPT_PLANS, CompiledModel
from foretell.support.errors import InputError
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch, random_feeds
from tests.tolerances import assert_close

TARGET = resolve_target("native")
ROWS = Sym("n")


def compiled(graph: Graph, threads: int = 1) -> CompiledModel:
    return link_program(graph, TARGET, threads)


def difference_graph() -> Graph:
    """y0 = a - b"""
    sketch = Sketch()
    return sketch.graph(sketch.op("Sub", sketch.data(2, 3, name="a"), sketch.data(2, 3, name="b")))


def rows_graph(columns: int = 40) -> Graph:
    """Two kernels over n rows with a temporary between them: a softmax, then a reduction over the rows."""
    sketch = Sketch()
    y = sketch.op("Softmax", sketch.data(ROWS, columns), axis=1)
    return sketch.graph(y, sketch.op("ReduceMax", sketch.op("Tanh", y), axes=(0,), keepdims=False))


def chain_graph(rows: int = 300, columns: int = 301) -> Graph:
    """Large enough for threads, with temporaries in the arena."""
    sketch = Sketch()
    x = sketch.data(rows, columns)
    y = sketch.op("Transpose", sketch.op("Softmax", x, axis=1), perm=(1, 0))
    z = sketch.op("Softmax", y, axis=1)
    return sketch.graph(sketch.op("Sub", z, sketch.op("ReduceSum", z, axes=(0,), keepdims=True)))


@pytest.fixture(scope="module")
def difference() -> CompiledModel:
    return compiled(difference_graph())


@pytest.fixture(scope="module")
def rows() -> CompiledModel:
    return compiled(rows_graph(), threads=2)


@pytest.fixture(scope="module")
def chain() -> CompiledModel:
    return compiled(chain_graph(), threads=2)


A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)


# --- inputs --------------------------------------------------------------------------------------------------


def test_inputs_by_position_and_by_name(difference: CompiledModel) -> None:
    for found in (difference(A, B), difference(A, b=B), difference(b=B, a=A), difference.run({"b": B, "a": A})["y0"]):
        np.testing.assert_array_equal(found, A - B)


WRONG = {
    "a missing input": (lambda m: m(A), "input 'b' is missing", "b: f32[2, 3]; got a"),
    "an unknown name": (lambda m: m(A, B, c=A), "the model has no input 'c'", "a, b; got c"),
    "too many": (lambda m: m(A, B, A), "too many inputs", "2; got 3"),
    "a wrong type": (lambda m: m(A, B.astype(np.float64)), "input 'b' has the wrong type", "f32[2, 3]; got float64"),
    "a wrong rank": (lambda m: m(A, B[0]), "input 'b' has the wrong type", "f32[2, 3]; got float32[3]"),
    "a wrong shape": (lambda m: m(A, B[:, :2]), "the shape of 'b' disagrees", "[2, 3]; got [2, 2]"),
    "text": (lambda m: m(A, np.array([["a"] * 3] * 2)), "input 'b' has the wrong type", "f32[2, 3]; got <U1"),
    "an input twice": (lambda m: m(A, B, a=A), "input 'a' is given twice", "by position or by name; got both"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs(difference: CompiledModel, case: str) -> None:
    call, what, details = WRONG[case]
    with pytest.raises(InputError) as caught:
        call(difference)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3, "what; expected and got; hint"
    assert what in lines[0] and details in lines[1] and lines[2].startswith("  hint: ")


def test_a_model_works_after_an_error(difference: CompiledModel) -> None:
    with pytest.raises(InputError):
        difference(A)
    np.testing.assert_array_equal(difference(A, B), A - B)


def test_inputs_that_lie_badly(difference: CompiledModel) -> None:
    """Transposed, reversed, with gaps, read-only, at an odd address."""
    wide = np.zeros((4, 6), np.float32)
    wide[::2, ::2] = A
    raw = np.zeros(25, np.uint8)
    raw[1:].view(np.uint8)[:] = np.frombuffer(A.tobytes(), np.uint8)
    odd = np.ndarray((2, 3), np.float32, raw, offset=1)
    frozen = A.copy()
    frozen.flags.writeable = False
    assert not odd.flags.aligned
    for a in (A.T.copy().T, A[::-1, ::-1].copy()[::-1, ::-1], wide[::2, ::2], odd, frozen, np.asfortranarray(A)):
        np.testing.assert_array_equal(difference(a, B), A - B)


def test_another_byte_order_is_refused(difference: CompiledModel) -> None:
    with pytest.raises(InputError, match="wrong type"):
        difference(A.astype(A.dtype.newbyteorder()), B)


class OnlyDLPack:
    """An array of another library."""

    def __init__(self, data: Array) -> None:
        self._data = data

    def __dlpack__(self, **options: object) -> object:
        return self._data.__dlpack__(**options)  # pyright: ignore[reportArgumentType]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()


def test_dlpack_and_the_buffer_protocol(difference: CompiledModel) -> None:
    plain = memoryview(array.array("f", A.reshape(-1).tolist())).cast("B").cast("f", (2, 3))
    np.testing.assert_array_equal(difference(OnlyDLPack(A), plain), np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(difference(A.tolist() and A, OnlyDLPack(B)), A - B)


def test_empty_inputs(rows: CompiledModel) -> None:
    y, most = rows(np.empty((0, 40), np.float32))
    assert y.shape == (0, 40)
    np.testing.assert_array_equal(most, np.full(40, -np.inf, np.float32))


def test_inputs_are_not_changed(chain: CompiledModel) -> None:
    (x,) = random_feeds(chain_graph()).values()
    before = x.copy()
    chain(x)
    np.testing.assert_array_equal(x, before)


# --- outputs -------------------------------------------------------------------------------------------------


def test_out(difference: CompiledModel) -> None:
    mine = np.empty((2, 3), np.float32)
    found = difference.run({"a": A, "b": B}, out={"y0": mine})["y0"]
    assert found is mine
    np.testing.assert_array_equal(mine, A - B)


READ_ONLY = np.zeros((2, 3), np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "given",
    [np.zeros((2, 3)), np.zeros((3, 2), np.float32), np.zeros((3, 2), np.float32).T, READ_ONLY],
    ids=["type", "shape", "order", "read-only"],
)
def test_out_that_does_not_fit(difference: CompiledModel, given: Array) -> None:
    with pytest.raises(InputError, match=r"out\['y0'\] does not fit") as caught:
        difference.run({"a": A, "b": B}, out={"y0": given})
    assert len(str(caught.value).splitlines()) == 3


def test_out_of_an_unknown_name(difference: CompiledModel) -> None:
    with pytest.raises(InputError, match="no output 'z'"):
        difference.run({"a": A, "b": B}, out={"z": np.empty((2, 3), np.float32)})


def test_out_may_be_an_input() -> None:
    """A kernel may assume that it does not write what it reads: such an output takes a detour."""
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Sub", sketch.data(64, 64), sketch.op("Transpose", sketch.inputs[0], perm=(1, 0))))
    (x,) = random_feeds(graph).values()
    expected = x - x.T
    assert compiled(graph).run({"x": x}, out={"y0": x})["y0"] is x
    np.testing.assert_array_equal(x, expected)


def test_outs_may_be_one_array() -> None:
    """The last one wins, whole."""
    sketch = Sketch()
    x = sketch.data(50)
    graph = sketch.graph(sketch.op("Neg", x), sketch.op("Add", x, x))
    data, mine = np.arange(50, dtype=np.float32), np.empty(50, np.float32)
    compiled(graph).run({"x": data}, out={"y0": mine, "y1": mine})
    np.testing.assert_array_equal(mine, data + data)


def test_outputs_that_are_inputs_or_constants_or_each_other() -> None:
    sketch = Sketch()
    x, c = sketch.data(4), sketch.number(3.0, (4,))
    y = sketch.op("Add", x, c)
    model = compiled(sketch.graph(x, c, y, y))
    data = np.arange(4, dtype=np.float32)
    for _ in range(2):
        given, constant, first, second = model(data)
        wanted = (data, np.full(4, 3, np.float32), data + 3, data + 3)
        for found, expected in zip((given, constant, first, second), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)
            found += 1  # callers own what they get
    np.testing.assert_array_equal(data, np.arange(4, dtype=np.float32))
    mine = np.empty(4, np.float32)
    assert model.run({"x": data}, out={"y0": mine})["y0"] is mine
    np.testing.assert_array_equal(mine, data)


def test_results_of_an_earlier_call_stay(chain: CompiledModel) -> None:
    graph = chain_graph()
    first, second = (random_feeds(graph, seed=seed) for seed in (1, 2))
    found = chain.run(first)["y0"]
    kept = found.copy()
    chain.run(second)
    np.testing.assert_array_equal(found, kept)


# --- symbolic dimensions -------------------------------------------------------------------------------------


def test_several_shapes(rows: CompiledModel) -> None:
    graph = rows_graph()
    for count in (5, 1, 0, 700, 5, 33):
        feeds = random_feeds(graph, {"n": count}, seed=count)
        for name, expected in evaluate(graph, feeds).items():
            assert_close(rows.run(feeds)[name], expected, dtypes.F32)


def test_more_shapes_than_plans_are_kept(rows: CompiledModel) -> None:
    graph = rows_graph()
    for count in (*range(1, KEPT_PLANS + 5), 1, 2):
        feeds = random_feeds(graph, {"n": count})
        assert rows.run(feeds)["y0"].shape == (count, 40)


def test_dimensions_of_one_name_agree() -> None:
    sketch = Sketch()
    model = compiled(sketch.graph(sketch.op("Add", sketch.data(ROWS, name="a"), sketch.data(ROWS, name="b"))))
    with pytest.raises(InputError, match="the shape of 'b' disagrees"):
        model(np.zeros(3, np.float32), np.zeros(4, np.float32))


def test_dimensions_are_what_they_promise() -> None:
    """Of a given range, a multiple of a number, twice another one."""
    pairs = Sym("p", 2, 8, multiple_of=2)
    sketch = Sketch()
    x, y = sketch.data(pairs, name="a"), sketch.data(pairs * 3, name="b")
    model = compiled(sketch.graph(sketch.op("Neg", x), sketch.op("Neg", y)))
    assert [found.shape for found in model(np.ones(4, np.float32), np.ones(12, np.float32))] == [(4,), (12,)]
    for left, right in ((3, 9), (0, 0), (10, 30), (4, 11)):
        with pytest.raises(InputError, match="disagrees with the model"):
            model(np.ones(left, np.float32), np.ones(right, np.float32))


def test_dimensions_of_different_names_must_fit() -> None:
    """The model was compiled for n = m: anything else would read beyond the end."""
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Add", sketch.data(ROWS, name="a"), sketch.data(Sym("m"), name="b")))
    model = compiled(graph)
    np.testing.assert_array_equal(model(np.ones(3, np.float32), np.ones(3, np.float32)), np.full(3, 2))
    for left, right in ((1_000_000, 2), (2, 1_000_000), (5, 1), (0, 1)):
        with pytest.raises(InputError, match="dimensions of the inputs do not fit together") as caught:
            model(np.ones(left, np.float32), np.ones(right, np.float32))
        assert len(str(caught.value).splitlines()) == 3


def test_a_reshape_to_known_sizes() -> None:
    sketch = Sketch()
    model = compiled(sketch.graph(sketch.op("Neg", sketch.op("Reshape", sketch.data(ROWS), shape=(4, 8)))))
    assert model(np.zeros(32, np.float32)).shape == (4, 8)
    for size in (0, 31, 33):
        with pytest.raises(InputError, match="do not fit together"):
            model(np.zeros(size, np.float32))


# --- threads and processes -----------------------------------------------------------------------------------


def test_eight_threads_call_one_model(chain: CompiledModel, rows: CompiledModel) -> None:
    """Of one shape, and of shapes that differ from call to call."""
    graph, ragged = chain_graph(), rows_graph()
    feeds = [random_feeds(graph, seed=seed) for seed in range(8)]
    alone = [chain.run(feed)["y0"] for feed in feeds]
    other = [random_feeds(ragged, {"n": 40 + seed}, seed=seed) for seed in range(8)]
    other_alone = [rows.run(feed) for feed in other]

    def work(number: int) -> bool:
        one = np.array_equal(chain.run(feeds[number % 8])["y0"], alone[number % 8])
        found = rows.run(other[number % 8])
        return one and all(np.array_equal(found[name], other_alone[number % 8][name]) for name in found)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    graph = chain_graph()
    feeds = random_feeds(graph)
    results = [compiled(graph, threads).run(feeds)["y0"] for threads in (1, 2, 3)]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].view(np.uint32), other.view(np.uint32))


def test_several_models_at_once(chain: CompiledModel, rows: CompiledModel, difference: CompiledModel) -> None:
    feeds = random_feeds(chain_graph())
    expected = chain.run(feeds)["y0"]
    models = [compiled(chain_graph(), threads) for threads in (1, 2)]
    for _ in range(3):
        for model in (*models, chain):
            np.testing.assert_array_equal(model.run(feeds)["y0"], expected)
        np.testing.assert_array_equal(difference(A, B), A - B)
    del models
    np.testing.assert_array_equal(chain.run(feeds)["y0"], expected)


def in_child(body: Callable[[], bool]) -> bool:
    """Fork; the child ends with the answer of `body`, at the latest after 20 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        answer = False
        try:
            answer = body()
        finally:
            os._exit(0 if answer else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_correct_after_fork(chain: CompiledModel) -> None:
    feeds = random_feeds(chain_graph())
    expected = chain.run(feeds)["y0"]
    assert in_child(lambda: all(np.array_equal(chain.run(feeds)["y0"], expected) for _ in range(3)))
    np.testing.assert_array_equal(chain.run(feeds)["y0"], expected)


# --- memory --------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def check_memory_is_flat(runs: int) -> None:
    """A page per ten runs would be seen; what numpy and Python keep around would not."""
    graph = rows_graph(64)
    model = compiled(graph)
    feeds = [random_feeds(graph, {"n": count}) for count in (16, 300)]
    for number in range(runs // 4):
        model.run(feeds[number % 2])
    before = resident_bytes()
    for number in range(runs):
        model.run(feeds[number % 2])
    assert resident_bytes() - before < max(1 << 20, 400 * runs)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat() -> None:
    check_memory_is_flat(2000)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_of_many_shapes_is_given_back() -> None:
    """Each shape needs an arena of two megabytes; only those of the last few shapes stay."""
    sketch = Sketch()
    y = sketch.op("Softmax", sketch.data(Sym("n", 1), 512), axis=1)
    z = sketch.op("Softmax", sketch.op("Transpose", y, perm=(1, 0)), axis=1)
    model = compiled(sketch.graph(sketch.op("ReduceMax", z, axes=(1,), keepdims=False)))
    model(np.ones((1000, 512), np.float32))
    before = resident_bytes()
    for rows in range(1001, 1033):
        model(np.ones((rows, 512), np.float32))
    assert resident_bytes() - before < 24 << 20


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat_for_long() -> None:
    graph = difference_graph()
    model = compiled(graph)
    for _ in range(60_000):  # the allocator takes two megabytes once, somewhere on the way
        model(A, B)
    before = resident_bytes()
    for _ in range(100_000):
        model(A, B)
    assert resident_bytes() - before < 1 << 20
    check_memory_is_flat(20_000)
