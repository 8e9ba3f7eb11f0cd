from __future__ import annotations

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.pair_products import pair_products
from foretell.graph.rewrites.use_strassen import use_strassen
from foretell.graph.rewrites.use_winograd import use_winograd
from foretell.search.product_cost import choose_levels, suits_pairs
from foretell.search.winograd_cost import choose_tile
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR
from foretell.target.hardware_spec import HardwareSpec


def choose_algorithms(graph: Graph, spec: HardwareSpec, winograd_error: float = DEFAULT_WINOGRAD_ERROR) -> Graph:
    """Compute each convolution and product in the way that should be fastest on a CPU, among those exact enough.

    before: y = Conv(x, w, b)
    after:  y = WinogradOutput(MatMul(WinogradInput(x), u), b)     where that is predicted to take less time

    before: y = MatMul(x, w)
    after:  y = StrassenResult(MatMul(StrassenOperand(x), t))      likewise
    or:     y = PairedMatMul(x, ...)

    `winograd_error` bounds the predicted error of one layer (`winograd_cost.winograd_error`, and `halved_error` and
    `paired_error` of `product_cost`); 0 leaves all as they are.
    """
    if winograd_error <= 0:
        return graph
    weights_bytes = sum(array.nbytes for array in graph.constants.values())
    tiled = use_winograd(graph, lambda conv: choose_tile(conv, spec, weights_bytes, winograd_error))
    halved = use_strassen(tiled, lambda halves: choose_levels(halves, spec, weights_bytes, winograd_error))
    return pair_products(halved, lambda product: suits_pairs(product, spec, weights_bytes, winograd_error))
