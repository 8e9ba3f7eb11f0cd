"""The suite `ops`: single operators and small blocks, in the shapes that models have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.cases import Case
from benchmarks.network import Network

RESNET50_CONVOLUTIONS = (
    # channels in, out, image in, kernel, stride
    (3, 64, 224, 7, 2), (64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (256, 64, 56, 1, 1),
    (256, 128, 56, 1, 1), (128, 128, 56, 3, 2), (128, 512, 28, 1, 1), (256, 512, 56, 1, 2), (512, 128, 28, 1, 1),
    (128, 128, 28, 3, 1), (512, 256, 28, 1, 1), (256, 256, 28, 3, 2), (256, 1024, 14, 1, 1), (512, 1024, 28, 1, 2),
    (1024, 256, 14, 1, 1), (256, 256, 14, 3, 1), (1024, 512, 14, 1, 1), (512, 512, 14, 3, 2), (512, 2048, 7, 1, 1),
    (1024, 2048, 14, 1, 2), (2048, 512, 7, 1, 1), (512, 512, 7, 3, 1),
)  # fmt: skip
DEPTHWISE = ((32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (384, 14, 3, 1), (960, 7, 3, 1), (672, 14, 5, 1))
"""Channels, image, kernel, stride."""
POINTWISE = ((32, 16, 112), (24, 144, 56), (192, 32, 28), (96, 576, 14), (320, 1280, 7))
"""Channels in, out, image."""
DEPTHWISE_POINTWISE = (
    (32, 16, 112, 1), (96, 24, 112, 2), (144, 24, 56, 1), (192, 32, 28, 1), (384, 64, 14, 1), (576, 96, 14, 1),
    (960, 160, 7, 1),
)  # fmt: skip
POINTWISE_DEPTHWISE = (
    (16, 96, 112, 2), (24, 144, 56, 1), (32, 192, 28, 1), (64, 384, 14, 1), (96, 576, 14, 1), (160, 960, 7, 1),
)  # fmt: skip
"""MobileNetV2's pairs: channels in, out, image, stride of the depthwise convolution."""
INVERTED_RESIDUALS = ((24, 56), (64, 14), (160, 7))
"""Channels, image; expanded six times."""
BERT_HIDDEN, BERT_INNER, BERT_HEADS = 768, 3072, 12
QUICK = {
    "conv3x3_64_64_56", "conv1x1_1024_256_14", "depthwise3x3_144_56", "dwpw_144_24_56", "matmul_512", "attention_128",
    "softmax_1536x128", "layernorm_128x768",
}  # fmt: skip


def operator_cases() -> list[Case]:
    return [Case(name, build, name in QUICK) for name, build in _builders()]


def _builders() -> Iterator[tuple[str, partial[Network]]]:
    for inputs, outputs, image, kernel, stride in RESNET50_CONVOLUTIONS:
        name = f"conv{kernel}x{kernel}_{inputs}_{outputs}_{image}{_stride(stride)}"
        yield name, partial(_convolution, name, inputs, outputs, image, kernel, stride)
    for channels, image, kernel, stride in DEPTHWISE:
        name = f"depthwise{kernel}x{kernel}_{channels}_{image}{_stride(stride)}"
        yield name, partial(_convolution, name, channels, channels, image, kernel, stride, groups=channels)
    for inputs, outputs, image in POINTWISE:
        name = f"pointwise_{inputs}_{outputs}_{image}"
        yield name, partial(_convolution, name, inputs, outputs, image, 1, 1)
    for inputs, outputs, image, stride in DEPTHWISE_POINTWISE:
        name = f"dwpw_{inputs}_{outputs}_{image}{_stride(stride)}"
        yield name, partial(_depthwise_pointwise, name, inputs, outputs, image, stride)
    for inputs, outputs, image, stride in POINTWISE_DEPTHWISE:
        name = f"pwdw_{inputs}_{outputs}_{image}{_stride(stride)}"
        yield name, partial(_pointwise_depthwise, name, inputs, outputs, image, stride)
    for channels, image in INVERTED_RESIDUALS:
        name = f"inverted_residual_{channels}_{image}"
        yield name, partial(_inverted_residual, name, channels, image)
    for size in (512, 1024, 2048):
        yield f"matmul_{size}", partial(_matmul, f"matmul_{size}", size, size, size)
    for length in (128, 512):
        yield from _bert(length)
    yield "softmax_512x4096", partial(_softmax, "softmax_512x4096", 512, 4096)
    yield "elementwise_1024x1024", partial(_elementwise, "elementwise_1024x1024", 1024)


def _bert(length: int) -> Iterator[tuple[str, partial[Network]]]:
    """The shapes of BERT-base: fully connected layers, the products of attention, and what lies between them."""
    for inputs, outputs in ((BERT_HIDDEN, BERT_HIDDEN), (BERT_HIDDEN, BERT_INNER), (BERT_INNER, BERT_HIDDEN)):
        name = f"linear_{length}x{inputs}x{outputs}"
        yield name, partial(_linear, name, length, inputs, outputs)
    yield f"query_key_{length}", partial(_heads_product, f"query_key_{length}", length, 64, length)
    yield f"scores_value_{length}", partial(_heads_product, f"scores_value_{length}", length, length, 64)
    yield f"attention_{length}", partial(_attention, f"attention_{length}", length)
    yield f"mlp_{length}", partial(_mlp, f"mlp_{length}", length)
    rows = BERT_HEADS * length
    yield f"softmax_{rows}x{length}", partial(_softmax, f"softmax_{rows}x{length}", rows, length)
    name = f"layernorm_{length}x{BERT_HIDDEN}"
    yield name, partial(_layer_norm, name, length, BERT_HIDDEN)


def _stride(stride: int) -> str:
    return "" if stride == 1 else f"_stride{stride}"


def _convolution(
    name: str, inputs: int, outputs: int, image: int, kernel: int, stride: int, groups: int = 1
) -> Network:
    net = Network(name)
    x = net.input("x", 1, inputs, image, image)
    return net.output(net.conv(x, outputs, kernel, stride, groups=groups))


def _depthwise_pointwise(name: str, inputs: int, outputs: int, image: int, stride: int) -> Network:
    net = Network(name)
    x = net.conv(net.input("x", 1, inputs, image, image), inputs, 3, stride, groups=inputs, activation="relu6")
    return net.output(net.conv(x, outputs, 1))


def _pointwise_depthwise(name: str, inputs: int, outputs: int, image: int, stride: int) -> Network:
    net = Network(name)
    x = net.conv(net.input("x", 1, inputs, image, image), outputs, 1, activation="relu6")
    return net.output(net.conv(x, outputs, 3, stride, groups=outputs, activation="relu6"))


def _inverted_residual(name: str, channels: int, image: int) -> Network:
    net = Network(name)
    x = net.input("x", 1, channels, image, image)
    inner = net.conv(x, 6 * channels, 1, activation="relu6")
    inner = net.conv(inner, 6 * channels, 3, groups=6 * channels, activation="relu6")
    return net.output(net.combine("Add", x, net.conv(inner, channels, 1)))


def _matmul(name: str, rows: int, inner: int, columns: int) -> Network:
    net = Network(name)
    return net.output(net.matmul(net.input("x", rows, inner), net.weight(inner, columns, deviation=inner**-0.5)))


def _linear(name: str, rows: int, inputs: int, outputs: int) -> Network:
    net = Network(name)
    return net.output(net.linear(net.input("x", rows, inputs), outputs))


def _heads_product(name: str, rows: int, inner: int, columns: int) -> Network:
    net = Network(name)
    x, y = net.input("x", BERT_HEADS, rows, inner), net.input("y", BERT_HEADS, inner, columns)
    return net.output(net.matmul(x, y))


def _attention(name: str, length: int) -> Network:
    net = Network(name)
    query, key, value = (net.input(each, 1, BERT_HEADS, length, 64) for each in ("query", "key", "value"))
    scores = net.combine("Mul", net.matmul(query, net.transpose(key, 0, 1, 3, 2)), 0.125)
    return net.output(net.matmul(net.softmax(scores), value))


def _mlp(name: str, length: int) -> Network:
    net = Network(name)
    x = net.input("x", length, BERT_HIDDEN)
    return net.output(net.linear(net.gelu(net.linear(x, BERT_INNER)), BERT_HIDDEN))


def _softmax(name: str, rows: int, columns: int) -> Network:
    net = Network(name)
    return net.output(net.softmax(net.input("x", rows, columns)))


def _layer_norm(name: str, rows: int, columns: int) -> Network:
    net = Network(name)
    return net.output(net.layer_norm(net.input("x", rows, columns)))


def _elementwise(name: str, size: int) -> Network:
    """tanh(silu(x * scale + shift)) + x"""
    net = Network(name)
    x = net.input("x", size, size)
    scaled = net.combine("Mul", x, net.weight(size, deviation=1.0))
    inner = net.silu(net.combine("Add", scaled, net.weight(size, deviation=1.0)))
    return net.output(net.combine("Add", net.map("Tanh", inner), x))
