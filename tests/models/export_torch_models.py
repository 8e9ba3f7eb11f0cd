"""Writes the exported torch models of this folder, with random weights: needs torch==2.13.0, transformers, onnxscript.

    python tests/models/export_torch_models.py
"""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification

HERE = Path(__file__).parent
SEQUENCE = 7
Made = tuple["Picked", tuple[torch.Tensor, ...], dict[str, dict[int, str]]]


class Picked(torch.nn.Module):
    """A model of named inputs and one output, called by position."""

    def __init__(self, model: torch.nn.Module, inputs: list[str], output: str) -> None:
        super().__init__()
        self.model, self.inputs, self.output = model.eval(), inputs, output

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.inputs, values, strict=True)))[self.output]


def bert(attention: str) -> Made:
    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, attn_implementation=attention,
    )  # fmt: skip
    ids = torch.arange(2 * SEQUENCE).reshape(2, SEQUENCE) % 50
    names = ["input_ids", "attention_mask"]
    model = Picked(BertModel(config, add_pooling_layer=False), names, "last_hidden_state")
    return model, (ids, torch.ones_like(ids)), {name: {0: "batch", 1: "sequence"} for name in names}


def gpt2() -> Made:
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2, use_cache=False)
    ids = torch.arange(2 * SEQUENCE).reshape(2, SEQUENCE) % 50
    return Picked(GPT2LMHeadModel(config), ["input_ids"], "logits"), (ids,), {"input_ids": {0: "batch"}}


def vit() -> Made:
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        num_labels=10,
    )  # fmt: skip
    pixels = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)
    return Picked(ViTForImageClassification(config), ["pixel_values"], "logits"), (pixels,), {}


def export(name: str, made: Made, opset: int, dynamo: bool) -> None:
    model, values, axes = made
    path = str(HERE / f"{name}.onnx")
    shared = {"input_names": model.inputs, "output_names": [model.output], "opset_version": opset}
    if dynamo:
        torch.onnx.export(model, values, path, dynamo=True, external_data=False, **shared)
    else:
        torch.onnx.export(model, values, path, dynamo=False, dynamic_axes=axes, **shared)
    strip_traces(path)


def strip_traces(path: str) -> None:
    """Drop the stack traces that the exporter attaches to every node."""
    model = onnx.load(path)
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    for info in (*model.graph.input, *model.graph.output):
        del info.metadata_props[:]
    for function in model.functions:
        for part in (function, *function.node, *function.value_info):
            del part.metadata_props[:]
            part.doc_string = ""
    onnx.save(model, path)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    export("bert_dynamo_opset18", bert("sdpa"), 18, dynamo=True)
    export("bert_dynamo_opset23", bert("sdpa"), 23, dynamo=True)
    export("bert_torchscript_opset11", bert("eager"), 11, dynamo=False)
    export("bert_torchscript_opset17", bert("eager"), 17, dynamo=False)
    export("gpt2_dynamo_opset18", gpt2(), 18, dynamo=True)
    export("vit_torchscript_opset14", vit(), 14, dynamo=False)


if __name__ == "__main__":
    main()
