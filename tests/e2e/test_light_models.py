"""The nine architectures inside the onnx package: import, simplify, evaluate, compare with the stored result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from foretell.compiler import import_model, simplify
from foretell.graph.evaluate import evaluate
from foretell.graph.verify import verify

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = sorted(path.stem for path in FOLDER.glob("light_*.onnx"))


def test_all_nine_are_there() -> None:
    assert len(MODELS) == 9


@pytest.mark.parametrize("name", MODELS)
def test_light_model(name: str) -> None:
    graph = simplify(import_model(FOLDER / f"{name}.onnx"))
    verify(graph)
    operators = {node.op for node in graph.walk()}
    assert "BatchNorm" not in operators
    assert "Onnx" not in operators, "nothing of these models needs the reference"
    (source,) = graph.inputs
    shape = source.type.static_shape
    # What onnx's own runner feeds these models with.
    count = int(np.prod(shape))
    x = (np.arange(count).reshape(shape) / np.float32(count)).astype(np.float32)
    (result,) = evaluate(graph, {source.name: x}).values()
    stored = onnx.TensorProto.FromString((FOLDER / f"{name}_output_0.pb").read_bytes())
    np.testing.assert_allclose(result, numpy_helper.to_array(stored), rtol=1e-3, atol=1e-5)
