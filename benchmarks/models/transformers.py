"""Transformers, at batch one: encoders of text and images, a decoder, and the mix of MobileViT."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from benchmarks.models.convnets import CLASSES
from benchmarks.network import Network, Value

BRANCH_GAIN = 0.5
VOCABULARY = 30522
GPT2_VOCABULARY = 50257
HIDDEN_SCORE = -10000.0
"""Added to the scores of positions that may not be seen."""


@dataclass(frozen=True, slots=True)
class Size:
    layers: int
    hidden: int
    heads: int
    inner: int


# --- what they share ---


def _heads(net: Network, x: Value, heads: int) -> Value:
    """batch, length, hidden -> batch, heads, length, hidden of a head"""
    batch, length, hidden = x.shape
    return net.transpose(net.reshape(x, batch, length, heads, hidden // heads), 0, 2, 1, 3)


def _attend(net: Network, query: Value, key: Value, value: Value, heads: int, mask: Value | None) -> Value:
    """All of batch, length, hidden; the mask is added to the scores."""
    batch, length, hidden = query.shape
    keys = net.transpose(_heads(net, key, heads), 0, 1, 3, 2)
    scores = net.combine("Div", net.matmul(_heads(net, query, heads), keys), sqrt(hidden // heads))
    if mask is not None:
        scores = net.combine("Add", scores, mask)
    mixed = net.matmul(net.softmax(scores), _heads(net, value, heads))
    return net.reshape(net.transpose(mixed, 0, 2, 1, 3), batch, length, hidden)


def _self_attention(net: Network, x: Value, heads: int, mask: Value | None = None) -> Value:
    """With a product each for queries, keys and values."""
    query, key, value = (net.linear(x, x.shape[-1]) for _ in range(3))
    return net.linear(_attend(net, query, key, value, heads, mask), x.shape[-1], BRANCH_GAIN)


def _after_norm_layer(net: Network, x: Value, size: Size, mask: Value) -> Value:
    """BERT's: the norm comes after the sum."""
    attended = net.layer_norm(net.combine("Add", _self_attention(net, x, size.heads, mask), x), 1e-12)
    inner = net.linear(net.gelu(net.linear(attended, size.inner)), size.hidden, BRANCH_GAIN)
    return net.layer_norm(net.combine("Add", inner, attended), 1e-12)


def _before_norm_layer(net: Network, x: Value, heads: int, inner: int, activation: str) -> Value:
    """ViT's: the norm begins each branch."""
    x = net.combine("Add", _self_attention(net, net.layer_norm(x, 1e-6), heads), x)
    hidden = net.activate(net.linear(net.layer_norm(x, 1e-6), inner), activation)
    return net.combine("Add", net.linear(hidden, x.shape[-1], BRANCH_GAIN), x)


# --- BERT (Devlin et al., 2018) and DistilBERT (Sanh et al., 2019) ---


def bert_base() -> Network:
    return _bert("bert_base_128", Size(12, 768, 12, 3072), 128)


def bert_tiny() -> Network:
    return _bert("bert_tiny_128", Size(2, 128, 2, 512), 128)


def distilbert() -> Network:
    return _bert("distilbert_128", Size(6, 768, 12, 3072), 128, has_segments=False)


def _bert(name: str, size: Size, length: int, *, has_segments: bool = True) -> Network:
    """The encoder; DistilBERT's embeddings have no segments."""
    net = Network(name)
    words = net.input("input_ids", 1, length, below=VOCABULARY)
    mask = _visible(net, net.input("attention_mask", 1, length, below=2))
    x = net.gather(net.weight(VOCABULARY, size.hidden, deviation=1.0), words)
    if has_segments:
        x = net.combine("Add", x, net.weight(1, 1, size.hidden, deviation=0.1))
    x = net.layer_norm(net.combine("Add", x, net.weight(1, length, size.hidden, deviation=0.1)), 1e-12)
    for _ in range(size.layers):
        x = _after_norm_layer(net, x, size, mask)
    return net.output(x)


def _visible(net: Network, mask: Value) -> Value:
    """1 -> 0, 0 -> a large negative number, for every query alike."""
    batch, length = mask.shape
    wide = net.node("Unsqueeze", [mask, net.constant([1, 2])], (batch, 1, 1, length))
    number = net.node("Cast", [wide], wide.shape, to=1)
    hidden = net.node("Sub", [net.constant(1.0), number], number.shape)
    return net.combine("Mul", hidden, HIDDEN_SCORE)


# --- GPT-2 (Radford et al., 2019) ---


def gpt2(*, has_head: bool = True) -> Network:
    """The smallest size, a whole prompt of 128 at once, with the product that gives a score to every word."""
    size, length = Size(12, 768, 12, 3072), 128
    net = Network("gpt2_128")
    words = net.input("input_ids", 1, length, below=GPT2_VOCABULARY)
    x = net.gather(net.weight(GPT2_VOCABULARY, size.hidden, deviation=1.0), words)
    x = net.combine("Add", x, net.weight(1, length, size.hidden, deviation=0.1))
    future = np.triu(np.full((length, length), HIDDEN_SCORE), 1)
    mask = net.constant(future[None, None])
    for _ in range(size.layers):
        x = _gpt2_layer(net, x, size, mask)
    x = net.layer_norm(x)
    if has_head:
        x = net.matmul(x, net.weight(size.hidden, GPT2_VOCABULARY, deviation=size.hidden**-0.5))
    return net.output(x)


def _gpt2_layer(net: Network, x: Value, size: Size, mask: Value) -> Value:
    query, key, value = net.split(_rows_linear(net, net.layer_norm(x), 3 * size.hidden), 3, 2)
    attended = _attend(net, query, key, value, size.heads, mask)
    x = net.combine("Add", _rows_linear(net, attended, size.hidden), x)
    inner = _gelu_by_tanh(net, _rows_linear(net, net.layer_norm(x), size.inner))
    return net.combine("Add", x, _rows_linear(net, inner, size.hidden))


def _rows_linear(net: Network, x: Value, features: int) -> Value:
    """A Gemm on rows, as GPT-2's own kind of layer is exported."""
    batch, length, hidden = x.shape
    rows = net.reshape(x, batch * length, hidden)
    weight, bias = net.weight(hidden, features, deviation=0.7 / sqrt(hidden)), net.weight(features, deviation=0.05)
    product = net.node("Gemm", [rows, weight, bias], (batch * length, features), alpha=1.0, beta=1.0)
    return net.reshape(product, batch, length, features)


def _gelu_by_tanh(net: Network, x: Value) -> Value:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2"""
    cube = net.combine("Mul", net.combine("Pow", x, 3.0), 0.044715)
    inner = net.combine("Mul", net.combine("Add", x, cube), sqrt(2 / np.pi))
    one_more = net.combine("Add", net.map("Tanh", inner), 1.0)
    return net.combine("Mul", net.combine("Mul", x, 0.5), one_more)


# --- ViT (Dosovitskiy et al., 2020) ---


def vit_small() -> Network:
    size, patch = Size(12, 384, 6, 1536), 16
    net = Network("vit_small")
    x = net.conv(net.input("image", 1, 3, 224, 224), size.hidden, patch, patch, padding=0)
    x = net.transpose(net.reshape(x, 1, size.hidden, 14 * 14), 0, 2, 1)
    x = net.concat([net.weight(1, 1, size.hidden, deviation=1.0), x], 1)
    x = net.combine("Add", x, net.weight(*x.shape, deviation=0.1))
    for _ in range(size.layers):
        x = _before_norm_layer(net, x, size.heads, size.inner, "gelu")
    first = net.gather(net.layer_norm(x, 1e-6), net.constant(np.array(0)), 1)
    return net.output(net.fully_connected(first, CLASSES))


# --- MobileViT (Mehta and Rastegari, 2021) ---


def mobilevit_small() -> Network:
    net = Network("mobilevit_small")
    x = net.conv(net.input("image", 1, 3, 256, 256), 16, 3, 2, activation="silu")
    x = _mobile_block(net, x, 32, 1)
    for stride in (2, 1, 1):
        x = _mobile_block(net, x, 64, stride)
    for channels, hidden, layers in ((96, 144, 2), (128, 192, 4), (160, 240, 3)):
        x = _mobilevit_block(net, _mobile_block(net, x, channels, 2), hidden, layers)
    x = net.average_image(net.conv(x, 640, 1, activation="silu"))
    return net.output(net.fully_connected(net.flatten(x), CLASSES))


def _mobile_block(net: Network, x: Value, channels: int, stride: int) -> Value:
    """An inverted residual that expands four times."""
    expanded = 4 * x.shape[1]
    inner = net.conv(x, expanded, 1, activation="silu")
    inner = net.conv(inner, expanded, 3, stride, groups=expanded, activation="silu")
    if stride > 1 or channels != x.shape[1]:
        return net.conv(inner, channels, 1)
    return net.combine("Add", x, net.conv(inner, channels, 1, gain=BRANCH_GAIN))


def _mobilevit_block(net: Network, x: Value, hidden: int, layers: int) -> Value:
    """Convolutions around a transformer, each of whose sequences holds one pixel of every patch of two by two."""
    channels = x.shape[1]
    inner = net.conv(net.conv(x, channels, 3, activation="silu"), hidden, 1)
    image = inner.shape
    inner = _unfold(net, inner)
    for _ in range(layers):
        inner = _before_norm_layer(net, inner, 4, 2 * hidden, "silu")
    inner = _fold(net, net.layer_norm(inner), image)
    inner = net.conv(inner, channels, 1, activation="silu")
    return net.conv(net.concat([x, inner], 1), channels, 3, activation="silu")


def _unfold(net: Network, x: Value) -> Value:
    """1, channels, height, width -> four places in a patch, patches, channels"""
    _, channels, height, width = x.shape
    x = net.transpose(net.reshape(x, channels * height // 2, 2, width // 2, 2), 0, 2, 1, 3)
    x = net.transpose(net.reshape(x, 1, channels, height * width // 4, 4), 0, 3, 2, 1)
    return net.reshape(x, 4, height * width // 4, channels)


def _fold(net: Network, x: Value, image: tuple[int, ...]) -> Value:
    """The inverse of `_unfold`."""
    _, channels, height, width = image
    x = net.transpose(net.reshape(x, 1, 4, height * width // 4, channels), 0, 3, 2, 1)
    x = net.reshape(x, channels * height // 2, width // 2, 2, 2)
    return net.reshape(net.transpose(x, 0, 2, 1, 3), *image)
