"""Convolutional networks. Each function is the architecture's table; blocks stand above the networks that use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.network import Network, Value

IMAGE = (1, 3, 224, 224)
CLASSES = 1000
BRANCH_GAIN = 0.5
"""The last convolution of a residual branch is weak, so that sums over many blocks stay small."""


def _begin(name: str) -> tuple[Network, Value]:
    net = Network(name)
    return net, net.input("image", *IMAGE)


def _classify(net: Network, x: Value) -> Network:
    return net.output(net.fully_connected(net.flatten(net.average_image(x)), CLASSES))


# --- ResNet (He et al., 2015), with strides in the 3x3 convolutions as torchvision has them ---


def _basic_block(net: Network, x: Value, channels: int, stride: int) -> Value:
    inner = net.conv(x, channels, 3, stride, activation="Relu")
    inner = net.conv(inner, channels, 3, gain=BRANCH_GAIN)
    return net.map("Relu", net.combine("Add", inner, _shortcut(net, x, channels, stride)))


def _bottleneck(net: Network, x: Value, channels: int, stride: int) -> Value:
    inner = net.conv(x, channels, 1, activation="Relu")
    inner = net.conv(inner, channels, 3, stride, activation="Relu")
    inner = net.conv(inner, 4 * channels, 1, gain=BRANCH_GAIN)
    return net.map("Relu", net.combine("Add", inner, _shortcut(net, x, 4 * channels, stride)))


def _shortcut(net: Network, x: Value, channels: int, stride: int) -> Value:
    return x if x.shape[1] == channels and stride == 1 else net.conv(x, channels, 1, stride)


def resnet18() -> Network:
    return _resnet("resnet18", _basic_block, (2, 2, 2, 2))


def resnet50() -> Network:
    return _resnet("resnet50", _bottleneck, (3, 4, 6, 3))


def _resnet(name: str, block: Callable[[Network, Value, int, int], Value], repeats: tuple[int, ...]) -> Network:
    net, x = _begin(name)
    x = net.max_pool(net.conv(x, 64, 7, 2, activation="Relu"), 3, 2, 1)
    for stage, count in enumerate(repeats):
        for number in range(count):
            x = block(net, x, 64 << stage, 2 if stage and not number else 1)
    return _classify(net, x)


# --- inverted residuals: MobileNetV2, MobileNetV3, MnasNet, EfficientNet ---


class Block(NamedTuple):
    """A row of an architecture's table; `expanded` is a number of channels."""

    kernel: int
    expanded: int
    channels: int
    stride: int
    activation: str
    squeezed: int = 0
    """Channels inside of squeeze-and-excite; 0 for none."""


def _inverted_residual(net: Network, x: Value, block: Block, gate: str = "Sigmoid", inside: str = "Relu") -> Value:
    inner = x
    if block.expanded != x.shape[1]:
        inner = net.conv(inner, block.expanded, 1, activation=block.activation)
    inner = net.conv(
        inner, block.expanded, block.kernel, block.stride, groups=block.expanded, activation=block.activation
    )
    if block.squeezed:
        inner = _squeeze_excite(net, inner, block.squeezed, gate, inside)
    is_residual = block.stride == 1 and block.channels == x.shape[1]
    inner = net.conv(inner, block.channels, 1, gain=BRANCH_GAIN if is_residual else None)
    return net.combine("Add", x, inner) if is_residual else inner


def _squeeze_excite(net: Network, x: Value, squeezed: int, gate: str, inside: str) -> Value:
    small = net.conv(net.average_image(x), squeezed, 1, activation=inside)
    scale = net.conv(small, x.shape[1], 1)
    if gate == "HardSigmoid":
        return net.combine("Mul", x, net.map(gate, scale, alpha=1 / 6, beta=0.5))
    return net.combine("Mul", x, net.map(gate, scale))


def mobilenet_v2() -> Network:
    """Sandler et al., 2018, width 1."""
    net, x = _begin("mobilenet_v2")
    x = net.conv(x, 32, 3, 2, activation="relu6")
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, count, stride in table:
        for number in range(count):
            row = Block(3, expansion * x.shape[1], channels, 1 if number else stride, "relu6")
            x = _inverted_residual(net, x, row)
    return _classify(net, net.conv(x, 1280, 1, activation="relu6"))


MOBILENET_V3_LARGE = (
    Block(3, 16, 16, 1, "Relu"), Block(3, 64, 24, 2, "Relu"), Block(3, 72, 24, 1, "Relu"),
    Block(5, 72, 40, 2, "Relu", 24), Block(5, 120, 40, 1, "Relu", 32), Block(5, 120, 40, 1, "Relu", 32),
    Block(3, 240, 80, 2, "HardSwish"), Block(3, 200, 80, 1, "HardSwish"), Block(3, 184, 80, 1, "HardSwish"),
    Block(3, 184, 80, 1, "HardSwish"), Block(3, 480, 112, 1, "HardSwish", 120), Block(3, 672, 112, 1, "HardSwish", 168),
    Block(5, 672, 160, 2, "HardSwish", 168), Block(5, 960, 160, 1, "HardSwish", 240),
    Block(5, 960, 160, 1, "HardSwish", 240),
)  # fmt: skip


def mobilenet_v3() -> Network:
    """Howard et al., 2019, large."""
    net, x = _begin("mobilenet_v3")
    x = net.conv(x, 16, 3, 2, activation="HardSwish")
    for block in MOBILENET_V3_LARGE:
        x = _inverted_residual(net, x, block, gate="HardSigmoid")
    x = net.flatten(net.average_image(net.conv(x, 960, 1, activation="HardSwish")))
    x = net.map("HardSwish", net.fully_connected(x, 1280))
    return net.output(net.fully_connected(x, CLASSES))


def mnasnet() -> Network:
    """Tan et al., 2018, B1: no squeeze-and-excite."""
    net, x = _begin("mnasnet")
    x = net.conv(x, 32, 3, 2, activation="Relu")
    x = net.conv(net.conv(x, 32, 3, groups=32, activation="Relu"), 16, 1)
    table = (
        (3, 3, 24, 3, 2),
        (5, 3, 40, 3, 2),
        (5, 6, 80, 3, 2),
        (3, 6, 96, 2, 1),
        (5, 6, 192, 4, 2),
        (3, 6, 320, 1, 1),
    )
    for kernel, expansion, channels, count, stride in table:
        for number in range(count):
            row = Block(kernel, expansion * x.shape[1], channels, 1 if number else stride, "Relu")
            x = _inverted_residual(net, x, row)
    return _classify(net, net.conv(x, 1280, 1, activation="Relu"))


def efficientnet_b0() -> Network:
    """Tan and Le, 2019."""
    net, x = _begin("efficientnet_b0")
    x = net.conv(x, 32, 3, 2, activation="silu")
    table = (
        (3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (5, 6, 40, 2, 2), (3, 6, 80, 3, 2), (5, 6, 112, 3, 1), (5, 6, 192, 4, 2),
        (3, 6, 320, 1, 1),
    )  # fmt: skip
    for kernel, expansion, channels, count, stride in table:
        for number in range(count):
            inputs = x.shape[1]
            row = Block(kernel, expansion * inputs, channels, 1 if number else stride, "silu", inputs // 4)
            x = _inverted_residual(net, x, row, inside="silu")
    return _classify(net, net.conv(x, 1280, 1, activation="silu"))


# --- ShuffleNetV2 (Ma et al., 2018) ---


def _shuffle(net: Network, x: Value) -> Value:
    """Channels of two halves, one from each in turn."""
    batch, channels, height, width = x.shape
    split = net.reshape(x, batch, 2, channels // 2, height, width)
    return net.reshape(net.transpose(split, 0, 2, 1, 3, 4), *x.shape)


def _shuffle_branch(net: Network, x: Value, channels: int, stride: int) -> Value:
    x = net.conv(x, channels, 1, activation="Relu")
    x = net.conv(x, channels, 3, stride, groups=channels)
    return net.conv(x, channels, 1, activation="Relu")


def _shuffle_down(net: Network, x: Value, channels: int) -> Value:
    inputs = x.shape[1]
    left = net.conv(net.conv(x, inputs, 3, 2, groups=inputs), channels // 2, 1, activation="Relu")
    return _shuffle(net, net.concat([left, _shuffle_branch(net, x, channels // 2, 2)], 1))


def _shuffle_unit(net: Network, x: Value) -> Value:
    kept, changed = net.split(x, 2, 1)
    return _shuffle(net, net.concat([kept, _shuffle_branch(net, changed, changed.shape[1], 1)], 1))


def shufflenet_v2() -> Network:
    """Width 1."""
    net, x = _begin("shufflenet_v2")
    x = net.max_pool(net.conv(x, 24, 3, 2, activation="Relu"), 3, 2, 1)
    for channels, count in ((116, 4), (232, 8), (464, 4)):
        x = _shuffle_down(net, x, channels)
        for _ in range(count - 1):
            x = _shuffle_unit(net, x)
    return _classify(net, net.conv(x, 1024, 1, activation="Relu"))


# --- ConvNeXt (Liu et al., 2022) ---


def _channels_norm(net: Network, x: Value) -> Value:
    """A layer norm over the channels of an image."""
    last = net.layer_norm(net.transpose(x, 0, 2, 3, 1), epsilon=1e-6)
    return net.transpose(last, 0, 3, 1, 2)


def _convnext_block(net: Network, x: Value) -> Value:
    channels = x.shape[1]
    inner = net.transpose(net.conv(x, channels, 7, groups=channels), 0, 2, 3, 1)
    inner = net.layer_norm(inner, epsilon=1e-6)
    inner = net.linear(net.gelu(net.linear(inner, 4 * channels)), channels)
    inner = net.combine("Mul", inner, net.weight(channels, deviation=0.05, mean=0.2))
    return net.combine("Add", x, net.transpose(inner, 0, 3, 1, 2))


def convnext_tiny() -> Network:
    net, x = _begin("convnext_tiny")
    x = _channels_norm(net, net.conv(x, 96, 4, 4, padding=0))
    for stage, count in enumerate((3, 3, 9, 3)):
        if stage:
            x = net.conv(_channels_norm(net, x), 96 << stage, 2, 2, padding=0)
        for _ in range(count):
            x = _convnext_block(net, x)
    x = _channels_norm(net, net.average_image(x))
    return net.output(net.fully_connected(net.flatten(x), CLASSES))
