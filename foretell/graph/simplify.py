"""All rewrites, in an order, until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from foretell.graph.nodes import Graph
from foretell.graph.rewrites.cancel_transposes import cancel_transposes
from foretell.graph.rewrites.eliminate_dead_code import eliminate_dead_code
from foretell.graph.rewrites.fold_batch_norm import fold_batch_norm
from foretell.graph.rewrites.fold_constants import FoldingBudget, fold_constants
from foretell.graph.rewrites.fold_scale import fold_scale
from foretell.graph.rewrites.fuse_bias import fuse_bias
from foretell.graph.rewrites.inline_constant_branches import inline_constant_branches
from foretell.graph.rewrites.merge_common_subexpressions import merge_common_subexpressions
from foretell.graph.rewrites.recognise_attention import recognise_attention
from foretell.graph.rewrites.recognise_gelu import recognise_gelu
from foretell.graph.rewrites.recognise_hard_swish import recognise_hard_swish
from foretell.graph.rewrites.recognise_layer_norm import recognise_layer_norm
from foretell.graph.rewrites.recognise_rms_norm import recognise_rms_norm
from foretell.graph.rewrites.recognise_sigmoid import recognise_sigmoid
from foretell.graph.rewrites.recognise_silu import recognise_silu
from foretell.graph.rewrites.recognise_softmax import recognise_softmax
from foretell.graph.rewrites.remove_no_ops import remove_no_ops
from foretell.graph.rewrites.sink_reshapes import sink_reshapes
from foretell.graph.rewrites.sink_transposes import sink_transposes
from foretell.support.limits import DEFAULT_LIMITS, Limits
from foretell.support.trace import Trace

SIMPLIFICATIONS: tuple[Callable[[Graph], Graph], ...] = (
    eliminate_dead_code,  # first, so that nobody works on what no output needs
    inline_constant_branches,  # before folding, which does not look into branches
    fold_constants,  # every later law asks for constants
    remove_no_ops,  # so that patterns have nothing in between
    cancel_transposes,  # the same
    merge_common_subexpressions,  # recognisers ask that two readers read one value
    fold_batch_norm,  # before scales and biases: it knows both at once and rounds once
    recognise_sigmoid,  # is part of a SiLU
    recognise_silu,
    recognise_gelu,
    recognise_hard_swish,
    recognise_layer_norm,  # before the RMS norm, which a norm of centred values contains
    recognise_rms_norm,
    recognise_softmax,  # is part of attention
    recognise_attention,  # before fold_scale and fuse_bias, which would take its scale and mask for a product's own
    fold_scale,  # before fuse_bias: a scaled bias is a bias
    fuse_bias,
    sink_transposes,  # late, as it moves what patterns are made of; pairs that meet cancel in the next round
    sink_reshapes,  # the same; after transposes, which do not pass reshapes
)
MAX_ROUNDS = 16
"""More than a graph of nested patterns needs; a bound, in case two laws ever undo each other."""


def simplify(graph: Graph, trace: Trace[Graph] | None = None, limits: Limits = DEFAULT_LIMITS) -> Graph:
    """Apply `SIMPLIFICATIONS` in order, round after round, until none of them changes the graph.

    A pass is not run again on a graph that it left as it was. What constant folding adds is bounded over all rounds.
    """
    trace = Trace() if trace is None else trace
    budget, unchanged = FoldingBudget(limits.folded_bytes), dict[str, Graph]()
    for _ in range(MAX_ROUNDS):
        before = graph
        for function in SIMPLIFICATIONS:
            name = function.__name__
            if unchanged.get(name) is graph:
                continue
            after = trace.run(name, _bounded(function, limits, budget), graph)
            if after is graph:
                unchanged[name] = graph
            graph = after
        if graph is before:
            break
    return graph


def _bounded(function: Callable[[Graph], Graph], limits: Limits, budget: FoldingBudget) -> Callable[[Graph], Graph]:
    """Constant folding with what is left of its budget; every other pass as it is."""
    return partial(fold_constants, limits=limits, budget=budget) if function is fold_constants else function
