"""Narrow floats in compiled code hold the same bytes as ml-dtypes does, for every code and every kind of float32."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F16, F32, F64, I32, DType
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import TensorType
from foretell.link_program import link_program
from foretell.runtime.session import Array
from foretell.target.resolve import resolve_target

NARROW = (F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F4E2M1)
LOW_HALVES = (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
"""Beside all upper halves of a float32: ties of every format, and their neighbours."""


def cast_graph(source: DType, target: DType, saturate: bool) -> Graph:
    build = Builder("cast")
    x = build.input("x", TensorType(source, (Sym("n", 0),)))
    return build.finish([build.op("Cast", x, to=target, saturate=saturate)], ["y"])


@pytest.fixture(scope="module")
def sweep() -> Array:
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    edges = (upper[:, None] | np.array(LOW_HALVES, np.uint32)).reshape(-1)
    anywhere = np.random.default_rng(3).integers(0, 1 << 32, 200_003, np.uint32)
    return np.concatenate([edges, anywhere]).view(np.float32)


@cache
def target():
    return resolve_target()


def compiled(graph: Graph, x: Array) -> Array:
    return link_program(graph, target()).run({"x": x})["y"]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code_is_read_exactly(dtype: DType) -> None:
    codes = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    found = compiled(cast_graph(dtype, F32, True), codes)
    expected = codes.astype(np.float32)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(found[numbers].view(np.uint32), expected[numbers].view(np.uint32))


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_number_is_rounded_as_by_ml_dtypes(dtype: DType, saturate: bool, sweep: Array) -> None:
    graph = cast_graph(F32, dtype, saturate)
    found = compiled(graph, sweep)
    with np.errstate(all="ignore"):
        expected = evaluate(graph, {"x": sweep})["y"] if saturate else sweep.astype(dtype.numpy)
    wrong = found.view(np.uint8) != expected.view(np.uint8)
    assert not wrong.any(), (sweep[wrong][:5], found[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("source", [F16, F64, I32], ids=str)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_other_types_go_through_float32(source: DType, dtype: DType, sweep: Array) -> None:
    with np.errstate(all="ignore"):
        x = sweep[::97].astype(source.numpy)
    graph = cast_graph(source, dtype, True)
    assert compiled(graph, x).tobytes() == evaluate(graph, {"x": x})["y"].tobytes()


@pytest.mark.parametrize("length", [0, 1, 7, 33])
def test_tails(length: int) -> None:
    x = np.linspace(-9, 9, length, dtype=np.float32)
    found = compiled(cast_graph(F32, F8E4M3FN, True), x)
    assert found.tobytes() == x.astype(F8E4M3FN.numpy).tobytes()
