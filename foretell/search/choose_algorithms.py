from __future__ import annotations

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.use_winograd import use_winograd
from foretell.search.winograd_cost import choose_tile
from foretell.support.limits import DEFAULT_WINOGRAD_ERROR
from foretell.target.hardware_spec import HardwareSpec


def choose_algorithms(graph: Graph, spec: HardwareSpec, winograd_error: float = DEFAULT_WINOGRAD_ERROR) -> Graph:
    """Compute each convolution in the way that should be fastest on a CPU, among those that are exact enough.

    before: y = Conv(x, w, b)
    after:  y = WinogradOutput(MatMul(WinogradInput(x), u), b)     where that is predicted to take less time

    `winograd_error` bounds the predicted error of one layer (`winograd_cost.winograd_error`); 0 leaves all as they are.
    """
    if winograd_error <= 0:
        return graph
    weights_bytes = sum(array.nbytes for array in graph.constants.values())
    return use_winograd(graph, lambda conv: choose_tile(conv, spec, weights_bytes, winograd_error))
