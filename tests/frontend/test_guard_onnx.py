"""Nodes that crash or hang onnx's own C++ code are judged before they reach it."""

from __future__ import annotations

import onnx
import pytest

from foretell.frontend.import_onnx import IMPORTERS, import_onnx
from foretell.support.errors import InvalidNode

NODES = {
    "reads beyond an array": "(float[2] x) => (float[] y) { y, m = LayerNormalization <axis = 2147483648> (x, x) }",
    "reads before an array": "(float[1,1,3] x, int64[2,1] i) => (float[] y) { y = GatherND <batch_dims = -2> (x, i) }",
    "breaks an assertion": "(float[4] x) => (float[] y, float[] z) { y, z = Split <num_outputs = 1> (x) }",
    "allocates": "(float[4] x) => (float[] y, float[] z) { y, z = Split <num_outputs = 2147483648> (x) }",
    "does not end": '(float[4] x) => (float[] y) { y = Einsum <equation = "é"> (x) }',
    "does not end either": '(float[4] x) => (float[] y) { y = Einsum <equation = "i?"> (x) }',
    "overflows": "(float[4] x) => (float[] y) { y = Softmax <axis = 4611686018427387904> (x) }",
}


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_refused_even_if_no_importer_looks_at_it(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in list(IMPORTERS):
        monkeypatch.delitem(IMPORTERS, key)
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {node}')
    with pytest.raises(InvalidNode):
        import_onnx(model.SerializeToString())
