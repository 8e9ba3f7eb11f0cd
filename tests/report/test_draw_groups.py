"""The picture of a compiled model: a box for each kernel, what is inside it, and lines between them."""

from __future__ import annotations

import pytest

from foretell.cost.kernel_time import KernelTime
from foretell.graph.nodes import Graph
from foretell.ir.dtypes import F32
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Buffer
from foretell.link_program import Lowered, lower_program
from foretell.loops.lower_graph import NativeStep
from foretell.loops.nodes import Block, Kernel
from foretell.partition.choose_groups import Decision
from foretell.report import draw_groups as drawing
from foretell.report.draw_groups import draw_groups
from foretell.report.explain_page import COLOURS
from foretell.report.group_boxes import GroupGraph, group_boxes
from foretell.report.predict_model import KernelPrediction, Prediction, predict_model
from foretell.target.resolve import resolve_target
from tests.graph.build_graphs import Sketch
from tests.loops.image_graphs import conv

TARGET = resolve_target("icelake-server")


def inverted_residual(batch: int | Sym = 1) -> Graph:
    sketch = Sketch()
    x = sketch.op("Relu", conv(sketch, sketch.data(batch, 16, 48, 48), 24, 1))
    y = sketch.op("Relu", conv(sketch, x, 96, 1))
    y = sketch.op("Relu", conv(sketch, y, 96, 3, pad=1, group=96))
    return sketch.graph(sketch.op("Add", conv(sketch, y, 24, 1), x))


def drawn(graph: Graph, most: int = 100) -> tuple[GroupGraph, Lowered, Prediction]:
    lowered = lower_program(graph, TARGET)
    prediction = predict_model(graph, lowered, TARGET, 2)
    return group_boxes(graph, lowered, prediction, most), lowered, prediction


def hostile_picture(name: str) -> str:
    """A kernel of two nests and one that reads it; whatever a model can name is called so."""
    sketch = Sketch()
    x = sketch.data(8, name=name)
    graph = sketch.graph(sketch.op("Relu", x))
    given, between, last = (Buffer(each, F32, (8,)) for each in (name, name + "1", graph.outputs[0].name))
    kernels = (
        Kernel(name, (given,), (between,), Block(()), name),
        Kernel("last", (between,), (last,), Block(()), name),
    )
    decisions = (Decision((name, name), True, name, 2e-6, 1e-6), Decision((name, "last"), False, name))
    lowered = Lowered([NativeStep(kernels)], {}, (), decisions, {})
    time = KernelTime(1e-6, {"instructions": 1e-6}, 8.0, 64.0, 1e-6, 1e-6)
    prediction = Prediction("", 1, (KernelPrediction(name, name, time, 2, (0, 1)),), ())
    return draw_groups(graph, lowered, prediction, COLOURS)


def test_text_stays_text() -> None:
    picture = hostile_picture("</title><script>alert(1)</script>\x1b[2J")
    assert "<script" not in picture and "\x1b" not in picture
    assert picture.count("&lt;script&gt;") > 6


def test_every_kernel_is_in_a_box() -> None:
    found, lowered, prediction = drawn(inverted_residual())
    kernels = [k for step in lowered.steps if isinstance(step, NativeStep) for k in step.kernels]
    boxes = [box for box in found.boxes if box.kind in ("nest", "group")]
    assert len(kernels) == sum(1 + box.more for box in boxes)
    assert sum(box.seconds or 0.0 for box in boxes) == pytest.approx(prediction.seconds)
    assert [box.kind for box in found.boxes[:1] + found.boxes[-1:]] == ["input", "output"]


def test_groups_list_their_nests_and_reasons() -> None:
    graph = inverted_residual()
    found, lowered, prediction = drawn(graph)
    fused = [decision for decision in lowered.decisions if decision.is_fused]
    assert fused and [box.decision for box in found.boxes if box.kind == "group"] == fused
    picture = draw_groups(graph, lowered, prediction, COLOURS)
    assert picture.count('<g class="group">') == len(fused)
    for decision in fused:
        assert decision.alone_s and decision.fused_s and decision.reason in picture
        assert f"apart {decision.alone_s * 1e6:.1f} us, fused {decision.fused_s * 1e6:.1f} us" in picture
        assert all(name in picture for name in decision.names)
    for decision in lowered.decisions:
        assert decision.reason in picture


def test_lines_are_tensors_between_kernels() -> None:
    """A skip goes to the kernel after it and to the one that adds it; constants and what is hidden are not drawn."""
    found, lowered, _ = drawn(inverted_residual())
    names = [tensor.name for tensor in found.tensors]
    hidden = {name for d in lowered.decisions if d.is_fused for name in d.names[:-1]}
    assert len(set(names)) == len(names) and not hidden & set(names) and not any(name.startswith("w") for name in names)
    assert found.tensors[0].size_bytes == 16 * 48 * 48 * 4
    for wire in found.wires:
        assert all(target > wire.source for target in wire.targets)


def test_parts_of_a_buffer_share_a_box() -> None:
    """What reads nothing besides, not what reads something of its own."""
    sketch = Sketch()
    graph = sketch.graph(sketch.op("Add", sketch.data(8), sketch.data(8, name="z")))
    x, z, y = (Buffer(name, F32, (8,)) for name in ("x", "z", graph.outputs[0].name))
    border, part, other, late = (Kernel(y.name, reads, (y,), Block(())) for reads in ((), (x,), (z,), (x,)))
    lowered = Lowered([NativeStep((border, part, other, late))], {}, (), (), {})
    time = KernelTime(1e-6, {"memory": 1e-6}, 8.0, 64.0, 1e-6, 1e-6)
    prediction = Prediction("", 1, (KernelPrediction("", "", time, 4, (0, 1, 2, 3)),), ())
    kernels = [box for box in group_boxes(graph, lowered, prediction, 9).boxes if box.kind == "nest"]
    assert [(box.more, box.seconds) for box in kernels] == [(2, pytest.approx(3e-6)), (0, pytest.approx(1e-6))]


def test_nodes_in_python_are_boxes_too() -> None:
    sketch = Sketch()
    y = sketch.op("Relu", sketch.data(8))
    (z,) = sketch.typed("Onnx", [y], {"op_type": "Unique"}, [y.type])
    found, _, _ = drawn(sketch.graph(z))
    assert [box.kind for box in found.boxes] == ["input", "nest", "python", "output"]
    assert found.boxes[2].name == "Unique"


def test_unknown_sizes_are_those_of_the_smallest() -> None:
    found, _, _ = drawn(inverted_residual(Sym("n", 3)))
    assert found.tensors[0].size_bytes == 3 * 16 * 48 * 48 * 4 and "n" in found.tensors[0].shape


def test_long_models_are_drawn_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = Sketch()
    graph = sketch.graph(*(sketch.op("MatMul", sketch.data(6, 6), sketch.weights(6, 6)) for _ in range(5)))
    _, lowered, prediction = drawn(graph)
    monkeypatch.setattr(drawing, "MOST_BOXES", 2)
    picture = draw_groups(graph, lowered, prediction, COLOURS)
    assert "3 more kernels are not drawn" in picture and picture.count('<g class="nest">') == 2


def test_a_model_without_kernels() -> None:
    sketch = Sketch()
    x = sketch.data(3)
    graph = sketch.graph(x)
    found, lowered, prediction = drawn(graph)
    assert [box.kind for box in found.boxes] == ["input", "output"] and len(found.wires) == 1
    assert "0 kernels" in draw_groups(graph, lowered, prediction, COLOURS)
