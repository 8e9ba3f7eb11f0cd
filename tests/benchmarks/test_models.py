"""Every case is the model that it says it is."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import checker, shape_inference

from benchmarks.cases import Case
from benchmarks.count_macs import count_macs
from benchmarks.memory_operators import memory_cases
from benchmarks.models import transformers
from benchmarks.models.model_cases import BUILDERS
from benchmarks.network import Network
from benchmarks.operators import operator_cases
from benchmarks.suites import SUITES

KNOWN_GMACS = {
    "resnet18": 1.81, "resnet50": 4.09, "mobilenet_v2": 0.30, "mobilenet_v3": 0.217, "mnasnet": 0.314,
    "efficientnet_b0": 0.386, "shufflenet_v2": 0.146, "squeezenet": 0.349, "densenet121": 2.83, "inception_v1": 1.43,
    "vgg19": 19.6, "bert_tiny_128": 0.0587, "bert_base_128": 11.2, "distilbert_128": 5.59, "vit_small": 4.6,
    "mobilevit_small": 2.0, "convnext_tiny": 4.46, "gpt2_128": 16.1,
}  # fmt: skip
"""From the papers and from torchvision, timm and transformers; GPT-2 with its head."""
KNOWN_MILLION_WEIGHTS = {
    "resnet50": 25.5, "mobilenet_v2": 3.5, "mobilenet_v3": 5.5, "mnasnet": 4.4, "efficientnet_b0": 5.3,
    "shufflenet_v2": 2.3, "vgg19": 143.7, "vit_small": 22.1, "mobilevit_small": 5.6, "convnext_tiny": 28.6,
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDERS)
def test_models_have_the_known_arithmetic(name: str) -> None:
    macs = count_macs(BUILDERS[name]().model(with_weights=False))
    assert macs / 1e9 == pytest.approx(KNOWN_GMACS[name], rel=0.01)


def test_gpt2_without_its_head() -> None:
    macs = count_macs(transformers.gpt2(has_head=False).model(with_weights=False))
    assert macs / 1e9 == pytest.approx(11.2, rel=0.01)


@pytest.mark.parametrize("name", KNOWN_MILLION_WEIGHTS)
def test_models_have_the_known_number_of_weights(name: str) -> None:
    weights = sum(np.prod(stored.shape) for stored in BUILDERS[name]().constants.values())
    assert weights / 1e6 == pytest.approx(KNOWN_MILLION_WEIGHTS[name], rel=0.02)


CASES = [*operator_cases(), *memory_cases(), *(case for case in SUITES["models"].cases())]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shapes_are_those_that_onnx_infers(case: Case) -> None:
    model = case.build().model(with_weights=False)
    shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def test_names_are_unique_and_every_suite_has_quick_cases() -> None:
    for suite in SUITES.values():
        cases = suite.cases()
        assert len({case.name for case in cases}) == len(cases)
        assert not cases or any(case.is_quick for case in cases)


@pytest.mark.parametrize("name", ["mobilenet_v3", "shufflenet_v2", "squeezenet", "bert_tiny_128"])
def test_activations_neither_explode_nor_die(name: str) -> None:
    network = BUILDERS[name]()
    model = network.model()
    checker.check_model(model, full_check=True)
    (output,) = run(network)
    assert np.isfinite(output).all()
    assert 1e-4 < output.std() < 100


def test_the_same_model_every_time() -> None:
    first, second = (BUILDERS["bert_tiny_128"]().model().SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_folding_undoes_unfolding() -> None:
    net = Network("fold")
    x = net.input("x", 1, 3, 8, 4)
    net.output(transformers._fold(net, transformers._unfold(net, x), x.shape))
    (output,) = run(net)
    np.testing.assert_array_equal(output, net.feeds()["x"])


def run(network: Network) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(network.model().SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, network.feeds())]
