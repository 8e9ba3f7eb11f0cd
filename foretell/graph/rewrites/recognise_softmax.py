from __future__ import annotations

from foretell.graph.match import interior, monomial, try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.ops.attrs import ints_attr
from foretell.graph.rewrite import Rewriter, rewrite


def recognise_softmax(graph: Graph) -> Graph:
    """Make one operator of a softmax, or of its logarithm, that was written out.

    before: d = x - ReduceMax(x);  e = Exp(d);  e / ReduceSum(e)      d - Log(ReduceSum(Exp(d)))
    after:  Softmax(x){axis}                                          LogSoftmax(x){axis}

    declines when: the maximum is not subtracted (Exp(x) / ReduceSum(Exp(x)) overflows where Softmax does not), the
    reductions are not both over one and the same axis, or anything between is read elsewhere.
    """
    return rewrite(graph, _recognise)


def _recognise(node: Node, rewriter: Rewriter) -> list[Value] | None:
    if node.op in ("Div", "Mul"):
        return _softmax(node, rewriter)
    return _log_softmax(node, rewriter) if node.op == "Sub" else None


def _softmax(node: Node, rewriter: Rewriter) -> list[Value] | None:
    product = monomial(node, rewriter)
    for power, total in product.split(1, -1):
        reduction, exp = interior(total, rewriter, "ReduceSum"), interior(power, rewriter, "Exp", uses=2)
        if product.coefficient == 1 and reduction is not None and exp is not None and reduction.inputs == (power,):
            x = _below_maximum(exp.present_inputs[0], reduction, rewriter, uses=1)
            axis = ints_attr(reduction.attrs, "axes")[0]
            return None if x is None else try_stand_in(node, rewriter, "Softmax", x, axis=axis)
    return None


def _log_softmax(node: Node, rewriter: Rewriter) -> list[Value] | None:
    below, logarithm = node.present_inputs
    log = interior(logarithm, rewriter, "Log")
    reduction = None if log is None else interior(log.inputs[0], rewriter, "ReduceSum")
    exp = None if reduction is None else interior(reduction.inputs[0], rewriter, "Exp")
    if reduction is None or exp is None or exp.inputs != (below,):
        return None
    x = _below_maximum(below, reduction, rewriter, uses=2)
    axis = ints_attr(reduction.attrs, "axes")[0]
    return None if x is None else try_stand_in(node, rewriter, "LogSoftmax", x, axis=axis)


def _below_maximum(value: Value, total: Node, rewriter: Rewriter, uses: int) -> Value | None:
    """x where value = x - ReduceMax(x), over the one axis that `total` is over."""
    node = interior(value, rewriter, "Sub", uses=uses)
    highest = None if node is None else interior(node.inputs[1], rewriter, "ReduceMax")
    if node is None or highest is None or highest.inputs != node.inputs[:1]:
        return None
    one_axis = len(ints_attr(total.attrs, "axes")) == 1 and bool(total.attrs["keepdims"])
    return highest.present_inputs[0] if one_axis and highest.attrs == total.attrs else None
