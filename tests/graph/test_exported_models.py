"""What the exporters of torch write becomes the same few operators, whichever exporter and attention it was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from foretell.compiler import import_model
from foretell.graph.evaluate import evaluate
from foretell.graph.nodes import Array, Graph
from foretell.graph.simplify import simplify
from foretell.graph.verify import verify
from foretell.ir.dtypes import F32
from foretell.support.trace import Trace
from tests.graph.build_graphs import assert_close

MODELS = sorted((Path(__file__).parents[1] / "data" / "exported").glob("*.onnx"))
LAYER = {
    "bert": {"LayerNorm": 3, "Gelu": 1, "Attention": 1},
    "gpt2": {"LayerNorm": 3, "Gelu": 1, "Attention": 1},
    "vit": {"LayerNorm": 3, "Gelu": 1, "Attention": 1},
    "llama": {"RMSNorm": 3, "Silu": 1, "Attention": 1},
}
GONE = {"Softmax", "Erf", "Tanh", "Sigmoid", "Sqrt", "ReduceMean", "IsNaN"}


def feeds_for(graph: Graph) -> dict[str, Array]:
    """Random inputs of 3 rows of 6 where dimensions are symbolic; the last row is padded."""
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for value in graph.inputs:
        shape = [dim if isinstance(dim, int) else (3, 6)[axis] for axis, dim in enumerate(value.shape)]
        if value.dtype.is_float:
            feeds[value.name] = random.standard_normal(shape).astype(value.dtype.numpy)
        elif value.name == "attention_mask":
            feeds[value.name] = np.ones(shape, np.int64)
            feeds[value.name][-1, 4:] = 0
        else:
            feeds[value.name] = random.integers(0, 16, shape)
    return feeds


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_everything_is_recognised(path: Path) -> None:
    graph, trace = import_model(path), Trace[Graph](keep_ir=True)
    after = simplify(graph, trace)
    for record in trace.records:
        assert record.after is not None
        verify(record.after)
    counts = Counter(node.op for node in after.walk())
    expected = LAYER[path.stem.split("_")[0]]
    assert {op: counts[op] for op in expected} == expected
    assert not GONE & set(counts)
    feeds = feeds_for(graph)
    found = evaluate(after, feeds)["y"]
    assert_close(found, evaluate(graph, feeds)["y"], F32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert_close(found, np.asarray(session.run(None, feeds)[0]), F32)


def test_there_are_models() -> None:
    assert len(MODELS) >= 16
