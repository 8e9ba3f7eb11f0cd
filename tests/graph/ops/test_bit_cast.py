"""BitCast keeps every bit, by the definition and in compiled code."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.graph.build import Builder
from foretell.graph.evaluate import evaluate
from foretell.ir.dtypes import BOOL, F32, F64, I8, I32, I64, U8, U32, U64, DType
from foretell.ir.tensor_expr import TensorType
from foretell.link_program import link_program
from foretell.target.resolve import resolve_target

PAIRS = [(F32, I32), (F32, U32), (I32, F32), (U32, F32), (F64, U64), (I64, F64), (U8, I8), (I64, U64), (BOOL, U8)]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda dtype: str(dtype))
def test_the_bits_stay(source: DType, target: DType) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 37 * source.itemsize, np.uint8)
    x = (raw % 2 if source is BOOL else raw).view(source.numpy)
    build = Builder("bits")
    value = build.input("x", TensorType(source, x.shape))
    graph = build.finish([build.op("BitCast", value, to=target)], ["y"])
    for found in (evaluate(graph, {"x": x})["y"], link_program(graph, resolve_target()).run({"x": x})["y"]):
        assert found.dtype == target.numpy and found.tobytes() == x.tobytes()
