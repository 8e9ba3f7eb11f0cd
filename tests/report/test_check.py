from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from examples.demo import build_model
from foretell.report.check import CheckReport, check_model
from foretell.support.errors import UnreadableModel, UsageError


def make_model(
    nodes: list[onnx.NodeProto], outputs: list[str], opsets: dict[str, int] | None = None
) -> onnx.ModelProto:
    """A model of one float32 input `x` [n, 4] and weights `w` [4, 4]."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in outputs],
        [numpy_helper.from_array(np.ones((4, 4), np.float32), "w")],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in (opsets or {"": 18}).items()]
    return helper.make_model(graph, opset_imports=imports)


def unsupported_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Magic", ["a"], ["b"], "block/magic", domain="com.acme"),
        helper.make_node("MatMul", ["b", "w"], ["c"], "product"),
        helper.make_node("Voodoo", ["c"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"], "last"),
    ]
    return make_model(nodes, ["y"], {"": 18, "com.acme": 1})


def text_of(report: CheckReport, width: int = 100) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(report)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_facts_of_the_demo() -> None:
    report = check_model(build_model())
    assert report.ok
    assert [(name, str(type)) for name, type in report.inputs] == [("image", "f32[batch, 3, 32, 32]")]
    assert [(name, str(type)) for name, type in report.outputs] == [("probabilities", "f32[batch, 10]")]
    assert (report.parameter_count, report.parameter_bytes) == (3034, 4 * 3034)
    assert report.onnx_nodes == sum(operator.count for operator in report.operators) == 11
    conv = report.operators[0]
    macs = 16 * 3 * 9 * 16 * 16 + 16 * 16 * 9 * 16 * 16
    assert (conv.op_type, dict(conv.statuses), dict(conv.becomes)) == ("Conv", {"native": 2}, {"Conv": 2})
    assert str(conv.flops) == f"{2 * macs}*batch"
    assert 0.9 < conv.share < 1


def test_every_graph_node_belongs_to_an_operator_and_shares_add_up() -> None:
    report = check_model(build_model())
    assert sum(sum(operator.becomes.values()) for operator in report.operators) == report.graph_nodes
    assert sum(operator.share for operator in report.operators) == pytest.approx(1)


def test_shapes_make_flops_a_number() -> None:
    symbolic, bound = check_model(build_model()), check_model(build_model(), shapes={"image": (4, 3, 32, 32)})
    assert symbolic.sample_flops is not None
    assert bound.flops == 4 * symbolic.sample_flops
    facts = bound.to_json()
    assert facts["flops"] == bound.flops and facts["flops_expression"] == str(bound.flops)


def test_json_round_trips() -> None:
    facts = json.loads(json.dumps(check_model(build_model()).to_json(), allow_nan=False))
    assert facts["opsets"] == {"ai.onnx": 18}
    assert facts["inputs"] == [{"name": "image", "dtype": "f32", "shape": ["batch", 3, 32, 32]}]
    assert facts["flops"] is None and facts["flops_expression"].endswith("*batch")
    assert facts["flops_sample"]["at"] == {"batch": 1}
    assert facts["operators"][0]["op_type"] == "Conv"


def test_decomposed_operators_say_what_they_become() -> None:
    gemm = make_model([helper.make_node("Gemm", ["x", "w", "w"], ["y"], alpha=0.5)], ["y"])
    (operator,) = check_model(gemm, shapes={"x": (4, 4)}).operators
    assert operator.statuses == {"decomposed": 1}
    assert sum(operator.becomes.values()) > 1 and "MatMul" in operator.becomes
    assert "MatMul + " in text_of(check_model(gemm, shapes={"x": (4, 4)}))


def test_expanded_functions_belong_to_their_caller() -> None:
    report = check_model(make_model([helper.make_node("Celu", ["x"], ["y"], "celu")], ["y"]))
    (operator,) = report.operators
    assert operator.op_type == "Celu" and sum(operator.becomes.values()) == report.graph_nodes


def test_reference_nodes_are_not_counted() -> None:
    report = check_model(make_model([helper.make_node("Unique", ["x"], ["y"], axis=0)], ["y"]))
    assert (report.ok, report.operators[0].statuses, report.uncounted_nodes) == (True, {"reference": 1}, 1)
    text = text_of(report)
    assert "not counted: 1 node on the reference" in text and "right but slow" in text


def test_everything_unsupported_is_in_one_report() -> None:
    report = check_model(unsupported_model())
    assert not report.ok and report.flops is None and report.graph_nodes is None
    assert [(use.location, use.reason) for use in report.unsupported] == [
        ("block/magic", "Magic: unknown operator of domain 'com.acme', opset 1"),
        ("Voodoo(d)", "Voodoo: unknown operator of domain 'ai.onnx', opset 18"),
    ]
    statuses = {operator.name: operator.statuses for operator in report.operators}
    assert statuses["Relu"] == {"native": 1, "blocked": 1}
    assert statuses["MatMul"] == {"blocked": 1}
    assert [name for name, type in report.outputs if str(type) == "f32[n, 4]"] == ["y"]


def test_report_of_an_unsupported_model() -> None:
    text = text_of(check_model(unsupported_model()))
    expected = """\
small  opset 18, com.acme 1, 5 nodes

inputs      x  f32[n, 4]
outputs     y  f32[n, 4]
parameters  16 in 64 B
flops       unknown

operator        nodes  status
Voodoo              1  unsupported
com.acme.Magic      1  unsupported
Relu                2  1 native, 1 blocked
MatMul              1  blocked

native       one canonical operator, or known while importing
unsupported  cannot run
blocked      not examined further: reads what an unsupported node makes

unsupported node  reason
block/magic       Magic: unknown operator of domain 'com.acme', opset 1
Voodoo(d)         Voodoo: unknown operator of domain 'ai.onnx', opset 18

not ok: 2 nodes cannot run"""
    assert text == expected


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_report_fits_its_terminal(width: int) -> None:
    lines = text_of(check_model(build_model()), width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("becomes" in line for line in lines) is (width >= 80)
    assert any(line.startswith("Conv ") for line in lines)


def test_names_cannot_drive_the_terminal() -> None:
    text = text_of(check_model(make_model([helper.make_node("Bell\x07\x1b[2J[red]", ["x"], ["y"])], ["y"])))
    assert "\x1b" not in text and "\x07" not in text and "[red]" in text


def test_the_name_is_that_of_the_file(tmp_path: Path) -> None:
    onnx.save(build_model(), tmp_path / "net.onnx")
    assert check_model(tmp_path / "net.onnx").name == "net.onnx"
    assert check_model((tmp_path / "net.onnx").read_bytes()).name == "model"
    assert check_model(build_model()).name == "demo"


def test_parameters_of_constants_subgraphs_and_narrow_types() -> None:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["inner"], ["out"])],
        "branch",
        [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [4])],
        [numpy_helper.from_array(np.ones(4, np.float32), "inner")],
    )
    narrow = helper.make_tensor("narrow", TensorProto.INT4, [3], [1, 2, 3])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["condition"], to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["choice"], then_branch=branch, else_branch=branch),
        helper.make_node("Constant", [], ["k"], value=narrow),
        helper.make_node("Cast", ["k"], ["z"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "choice"], ["y"]),
    ]
    report = check_model(make_model(nodes, ["y"], {"": 21}))
    assert (report.parameter_count, report.parameter_bytes) == (16 + 2 * 4 + 3, 4 * (16 + 2 * 4) + 2)
    assert report.counted_once == 1
    assert "counted once: the bodies of 1 node that data decides on" in text_of(report)


def test_more_symbols_than_an_expression_may_hold() -> None:
    nodes: list[onnx.NodeProto] = []
    for number in range(1500):
        nodes += [helper.make_node("NonZero", ["x"], [f"i{number}"])]
        nodes += [helper.make_node("Abs", [f"i{number}"], [f"a{number}"])]
    report = check_model(make_model([*nodes, helper.make_node("Relu", ["x"], ["y"])], ["y"]))
    assert len(report.sample) == 1501
    assert report.flops is None and report.sample_flops is not None and report.sample_flops >= 1500
    assert report.to_json()["flops_expression"] is None
    assert "too complicated an expression" in text_of(report)


def test_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel):
        check_model(tmp_path / "nothing.onnx")
    with pytest.raises(UsageError):
        check_model(build_model(), shapes={"picture": (1,)})
