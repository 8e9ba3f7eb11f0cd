from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from foretell.compiler import link_program
from foretell.graph.interpret import interpret
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import int_attr, ints_attr
from foretell.graph.ops.contraction import define_conv
from foretell.graph.rewrite import with_outputs
from foretell.graph.rewrites.pair_products import amplified
from foretell.ir.dtypes import F64
from foretell.ir.tensor_expr import TensorType
from foretell.report.compare import Comparison, compare
from foretell.search.product_cost import halved_error, paired_error
from foretell.search.winograd_cost import winograd_error
from foretell.target.resolve import Target

LAYERS = ("Conv", "MatMul")
OTHER_WAYS = ("WinogradOutput", "StrassenResult", "PairedConv", "PairedMatMul")
"""What may stand in their place."""
PREPARING = ("WinogradInput", "StrassenOperand")


@dataclass(frozen=True, slots=True)
class WinogradLayer:
    """A layer computed in tiles, by quarters, or with products in pairs: the error to expect, and the one it had."""

    name: str
    tile: str
    """F(results, taps) along each axis; or how often matrices are halved, or that products are paired."""
    predicted: float
    comparison: Comparison
    """With the sum as it is defined, in float64; the tolerance is the budget."""

    @property
    def ok(self) -> bool:
        return self.comparison.ok

    def to_json(self) -> dict[str, object]:
        facts = self.comparison.to_json()
        return {
            "layer": self.name,
            "tile": self.tile,
            "predicted_error": self.predicted,
            "measured_error": facts["needed"],
            "budget": facts["tolerance"],
            "ok": facts["ok"],
            "problem": facts["problem"],
        }

    def to_row(self) -> tuple[str, ...]:
        numbers = (self.predicted, self.comparison.needed, self.comparison.tolerance)
        verdict = "ok" if self.ok else self.comparison.problem or "over budget"
        return self.name, self.tile, *(f"{number:.2g}" for number in numbers), verdict


def measure_winograd(
    direct: Graph, tiled: Graph, feeds: Mapping[str, Array], target: Target, threads: int, budget: float
) -> tuple[WinogradLayer, ...]:
    """How exact each layer of `direct` is that is computed in another way in `tiled`, on the data it gets.

    The layers are compiled once more, so that data and results, which kernels otherwise keep to themselves, can be
    seen. Those in subgraphs are left out.
    """
    layers = [(before, after) for before, after in _matched(direct, tiled) if before.op != after.op]
    if not layers:
        return ()
    seen = {value: None for _, after in layers for value in (*_operands(tiled, after), after.output)}
    probed = with_outputs(tiled, tuple(seen))
    arrays = link_program(probed, target, threads).run(feeds)
    return tuple(_measured(before, after, direct, tiled, arrays, budget) for before, after in layers)


def _matched(direct: Graph, tiled: Graph) -> Iterator[tuple[Node, Node]]:
    """Convolutions and products, each with what stands in its place; products of tiles or quarters belong to these."""
    layers = [
        node
        for node in tiled.nodes
        if node.op in (*LAYERS, *OTHER_WAYS) and _maker(tiled, node.inputs[0]) not in PREPARING
    ]
    yield from zip((node for node in direct.nodes if node.op in LAYERS), layers, strict=True)


def _maker(graph: Graph, value: Value | None) -> str:
    """The operator that makes a value."""
    return graph.producers[value].op if value is not None and value in graph.producers else ""


def _operands(tiled: Graph, layer: Node) -> tuple[Value, ...]:
    """What is convolved or multiplied, and the bias of tiles or quarters if there is one."""
    if layer.op not in ("WinogradOutput", "StrassenResult"):
        return layer.present_inputs[:1]
    products, *bias = layer.present_inputs
    data = tiled.producers[tiled.producers[products].present_inputs[0]].present_inputs[0]
    maker = tiled.producers.get(data)
    return (data if maker is None or maker.op != "Phases" else maker.present_inputs[0], *bias)


def _measured(
    before: Node, after: Node, direct: Graph, tiled: Graph, arrays: Mapping[str, Array], budget: float
) -> WinogradLayer:
    constants = [direct.constants[value] for value in before.present_inputs[1:] if value in direct.constants]
    x, *bias = (arrays[value.name] for value in _operands(tiled, after))
    exact = compute_exactly(before, x, *constants[:1], *(bias or constants[1:]))
    name, found = before.location or before.output.name, arrays[after.output.name].astype(np.float64)
    if after.op != "WinogradOutput":
        length = prod(constants[0].shape[1:]) if before.op == "Conv" else x.shape[-1]
        levels = int_attr(after.attrs, "levels") if after.op == "StrassenResult" else 0
        predicted = halved_error(length, levels) if levels else paired_error(length)
        text = f"Strassen({levels})" if levels else "pairs"
        return WinogradLayer(name, text, predicted, compare(name, found, exact, "direct", budget))
    tile, kernel = ints_attr(after.attrs, "tile"), ints_attr(after.attrs, "kernel")
    channels = x.shape[1] * prod(ints_attr(before.attrs, "strides"))
    predicted = winograd_error(kernel, channels, max(tile))
    if _maker(tiled, after.inputs[0]) == "PairedMatMul":
        predicted = paired_error(channels, amplified(after))
    text = f"F({'x'.join(map(str, tile))},{'x'.join(map(str, kernel))})"
    return WinogradLayer(name, text, predicted, compare(name, found, exact, "direct", budget))


def compute_exactly(node: Node, x: Array, *others: Array) -> Array:
    """A product or a Conv as it is defined, in float64; the latter one image after the other, because all windows are
    in memory at once."""
    operands = [array.astype(np.float64) for array in others]
    if node.op == "MatMul":
        weights, *bias = operands
        return sum(bias, start=x.astype(np.float64) @ weights)
    types = tuple(TensorType(F64, array.shape) for array in (x[:1], *operands))
    definition = define_conv(types, node.attrs)
    images = (x[number : number + 1].astype(np.float64) for number in range(len(x)))
    return np.concatenate([interpret(definition, [image, *operands], {})[0] for image in images])
