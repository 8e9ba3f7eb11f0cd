from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from foretell.compiler import link_program
from foretell.graph.interpret import interpret
from foretell.graph.nodes import Array, Graph, Node, Value
from foretell.graph.ops.attrs import ints_attr
from foretell.graph.ops.contraction import define_conv
from foretell.graph.rewrite import with_outputs
from foretell.ir.dtypes import F64
from foretell.ir.tensor_expr import TensorType
from foretell.report.compare import Comparison, compare
from foretell.search.winograd_cost import winograd_error
from foretell.target.resolve import Target


@dataclass(frozen=True, slots=True)
class WinogradLayer:
    """A convolution that is computed in tiles: the error to expect, and the one that it had."""

    name: str
    tile: str
    """F(results, taps) along each axis."""
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
    """How exact each convolution of `direct` is that became tiles in `tiled`, on the data that reaches it.

    The layers are compiled once more, so that data and results, which kernels otherwise keep to themselves, can be
    seen. Those in subgraphs are left out.
    """
    pairs = list(zip(_nodes(direct, "Conv"), _nodes(tiled, "Conv", "WinogradOutput"), strict=True))
    layers = [(before, after) for before, after in pairs if after.op == "WinogradOutput"]
    if not layers:
        return ()
    seen = {value: None for _, after in layers for value in (*_operands(tiled, after), after.output)}
    probed = with_outputs(tiled, tuple(seen))
    arrays = link_program(probed, target, threads).run(feeds)
    return tuple(_measured(before, after, direct, tiled, arrays, budget) for before, after in layers)


def _nodes(graph: Graph, *operators: str) -> list[Node]:
    return [node for node in graph.nodes if node.op in operators]


def _operands(tiled: Graph, layer: Node) -> tuple[Value, ...]:
    """What is convolved, and the bias if there is one."""
    products, *bias = layer.present_inputs
    data = tiled.producers[tiled.producers[products].present_inputs[0]].present_inputs[0]
    maker = tiled.producers.get(data)
    return (data if maker is None or maker.op != "Phases" else maker.present_inputs[0], *bias)


def _measured(
    before: Node, after: Node, direct: Graph, tiled: Graph, arrays: Mapping[str, Array], budget: float
) -> WinogradLayer:
    weights = direct.constants[before.present_inputs[1]]
    x, *bias = (arrays[value.name] for value in _operands(tiled, after))
    exact = convolve_exactly(before, x, weights, *bias)
    name, found = before.location or before.output.name, arrays[after.output.name].astype(np.float64)
    tile, kernel = ints_attr(after.attrs, "tile"), ints_attr(after.attrs, "kernel")
    channels = x.shape[1] * prod(ints_attr(before.attrs, "strides"))
    predicted = winograd_error(kernel, channels, max(tile))
    text = f"F({'x'.join(map(str, tile))},{'x'.join(map(str, kernel))})"
    return WinogradLayer(name, text, predicted, compare(name, found, exact, "direct", budget))


def convolve_exactly(node: Node, x: Array, *others: Array) -> Array:
    """A Conv as it is defined, in float64; one image after the other, because all windows are in memory at once."""
    operands = [array.astype(np.float64) for array in others]
    types = tuple(TensorType(F64, array.shape) for array in (x[:1], *operands))
    definition = define_conv(types, node.attrs)
    images = (x[number : number + 1].astype(np.float64) for number in range(len(x)))
    return np.concatenate([interpret(definition, [image, *operands], {})[0] for image in images])
