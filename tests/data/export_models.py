"""Writes tests/data/exported: tiny models as the exporters of torch write them. Needs torch, transformers, onnxscript.

python tests/data/export_models.py
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel, ViTConfig, ViTModel

FOLDER = Path(__file__).parent / "exported"
SMALL: dict[str, Any] = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
TEXT: dict[str, Any] = {"vocab_size": 16, "max_position_embeddings": 16}
EXPORTERS: dict[str, dict[str, Any]] = {
    "dynamo": {"dynamo": True, "external_data": False},
    "opset11": {"dynamo": False, "opset_version": 11},
    "opset17": {"dynamo": False, "opset_version": 17},
}


class LastHiddenState(torch.nn.Module):
    """A model called with positional tensors, that returns one."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, tensors, strict=True)), return_dict=True).last_hidden_state


def models() -> Iterator[tuple[str, torch.nn.Module, dict[str, torch.Tensor]]]:
    ids, mask = torch.randint(0, 16, (2, 5)), torch.ones(2, 5, dtype=torch.long)
    mask[1, 3:] = 0
    for attention in ("eager", "sdpa"):
        settings: dict[str, Any] = {"attn_implementation": attention}
        bert = BertModel(BertConfig(**TEXT, **SMALL, **settings))
        yield f"bert_{attention}", bert, {"input_ids": ids, "attention_mask": mask}
        gpt = GPT2Config(vocab_size=16, n_positions=16, n_embd=8, n_layer=1, n_head=2, use_cache=False, **settings)
        yield f"gpt2_{attention}", GPT2Model(gpt), {"input_ids": ids, "attention_mask": mask}
        vit = ViTModel(ViTConfig(image_size=8, patch_size=4, **SMALL, **settings))
        yield f"vit_{attention}", vit, {"pixel_values": torch.randn(1, 3, 8, 8)}
        llama = LlamaModel(LlamaConfig(**TEXT, **SMALL, num_key_value_heads=1, use_cache=False, **settings))
        yield f"llama_{attention}", llama, {"input_ids": ids, "attention_mask": mask}


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    """Parameters that are not all zero or one, as fresh biases and norms are."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.5, 0.3)
    return model.eval()


def export(name: str, model: torch.nn.Module, feeds: dict[str, torch.Tensor]) -> None:
    wrapped = LastHiddenState(randomised(model), tuple(feeds)).eval()
    for exporter, options in EXPORTERS.items():
        path = FOLDER / f"{name}_{exporter}.onnx"
        names: dict[str, Any] = {"input_names": list(feeds), "output_names": ["y"]}
        try:
            torch.onnx.export(wrapped, tuple(feeds.values()), str(path), **names, **options, **dynamic(feeds, exporter))
        except torch.onnx.errors.UnsupportedOperatorError:
            continue
        strip(path)


def dynamic(feeds: dict[str, torch.Tensor], exporter: str) -> dict[str, Any]:
    """Text has a symbolic batch and length, images do not."""
    if "pixel_values" in feeds:
        return {}
    if exporter != "dynamo":
        return {"dynamic_axes": {name: {0: "batch", 1: "length"} for name in feeds}}
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2, max=16)}
    return {"dynamic_shapes": (tuple(axes for _ in feeds),)}


def strip(path: Path) -> None:
    """Drop what only takes space."""
    model = onnx.load(path)
    for item in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.initializer):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    del model.functions[:]
    onnx.save(model, path)


if __name__ == "__main__":
    torch.manual_seed(0)
    FOLDER.mkdir(exist_ok=True)
    for entry in models():
        export(*entry)
