"""Every model of the suite."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.cases import Case
from benchmarks.models import convnets, transformers
from benchmarks.models.light import light
from benchmarks.network import Network

BUILDERS: dict[str, Callable[[], Network]] = {
    "resnet18": convnets.resnet18,
    "resnet50": convnets.resnet50,
    "mobilenet_v2": convnets.mobilenet_v2,
    "mobilenet_v3": convnets.mobilenet_v3,
    "mnasnet": convnets.mnasnet,
    "efficientnet_b0": convnets.efficientnet_b0,
    "shufflenet_v2": convnets.shufflenet_v2,
    "squeezenet": partial(light, "squeezenet"),
    "densenet121": partial(light, "densenet121"),
    "inception_v1": partial(light, "inception_v1"),
    "vgg19": partial(light, "vgg19"),
    "bert_tiny_128": transformers.bert_tiny,
    "bert_base_128": transformers.bert_base,
    "distilbert_128": transformers.distilbert,
    "vit_small": transformers.vit_small,
    "mobilevit_small": transformers.mobilevit_small,
    "convnext_tiny": convnets.convnext_tiny,
    "gpt2_128": transformers.gpt2,
}
QUICK = {"resnet18", "mobilenet_v2", "shufflenet_v2", "bert_tiny_128"}


def model_cases() -> list[Case]:
    return [Case(name, build, name in QUICK) for name, build in BUILDERS.items()]
