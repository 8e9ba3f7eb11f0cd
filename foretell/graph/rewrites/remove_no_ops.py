from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from foretell.graph.match import try_stand_in
from foretell.graph.nodes import Graph, Node, Value
from foretell.graph.ops.attrs import dims_attr, ints_attr
from foretell.graph.ops.elementwise import ELEMENTWISE, is_scalar_shape
from foretell.graph.rewrite import Rewriter, rewrite
from foretell.ir.dtypes import BF16, BOOL, F16, F32, F64, DType

Law: TypeAlias = Callable[[Node, Rewriter], Value | None]

SMALL_ELEMENTS = 1 << 16
"""Larger constants are not searched for zeros and ones."""


def remove_no_ops(graph: Graph) -> Graph:
    """Remove operators that return what they are given; the laws are in the table below.

    before: y = Relu(Relu(x * 1 + 0))
    after:  y = Relu(x)

    declines when: the operator changes the type of its operand, as x + 0 does when it broadcasts.
    """
    return rewrite(graph, _remove)


def _remove(node: Node, rewriter: Rewriter) -> list[Value] | None:
    laws = LAWS.get(node.op, ())
    for law in (*laws, _without_broadcast) if node.op in ELEMENTWISE else laws:
        value = law(node, rewriter)
        if value is not None and value.type == node.output.type:
            return [value]
    return None


def _without(neutral: float, *positions: int) -> Law:
    """The other operand, where every element of the operand at one of the positions is the neutral number."""

    def law(node: Node, rewriter: Rewriter) -> Value | None:
        for position in positions:
            array = rewriter.array(node.inputs[position])
            if array is not None and 0 < array.size <= SMALL_ELEMENTS and bool(np.all(array == neutral)):
                return node.inputs[1 - position]
        return None

    return law


def _of_booleans(law: Law) -> Law:
    """The law where And and Or are not bitwise."""
    return lambda node, rewriter: law(node, rewriter) if node.output.dtype == BOOL else None


def _if_equal(first: int, second: int) -> Law:
    """One operand, where another is the same value."""
    return lambda node, rewriter: node.inputs[first] if node.inputs[first] == node.inputs[second] else None


def _undone(node: Node, rewriter: Rewriter) -> Value | None:
    """x, where the node applies an operator that is its own inverse to its own result."""
    inner = rewriter.producer(node.inputs[0], node.op)
    return None if inner is None else inner.inputs[0]


def _done(node: Node, rewriter: Rewriter) -> Value | None:
    """The operand, where it is the result of the same operator and applying that again changes nothing."""
    return node.inputs[0] if rewriter.producer(node.inputs[0], node.op) else None


def _operand(node: Node, rewriter: Rewriter) -> Value | None:
    """The operand, which the check of types makes sure is all there is to the result."""
    return node.inputs[0]


def _narrowed_back(node: Node, rewriter: Rewriter) -> Value | None:
    """x, where it was cast to a type that holds all of its values, and back."""
    inner = rewriter.producer(node.inputs[0], "Cast")
    x = None if inner is None else inner.present_inputs[0]
    return x if inner is not None and x is not None and _holds_all(inner.output.dtype, x.dtype) else None


def _holds_all(wide: DType, narrow: DType) -> bool:
    if narrow.is_integer and wide.kind == narrow.kind:
        return wide.bits >= narrow.bits
    return (wide in (F32, F64) and narrow in (F16, BF16)) or (wide, narrow) == (F64, F32)


def _chosen(node: Node, rewriter: Rewriter) -> Value | None:
    """The branch that a constant condition always takes."""
    array = rewriter.array(node.inputs[0])
    if array is None or array.size == 0 or not (array.all() or not array.any()):
        return None
    return node.inputs[1 if array.all() else 2]


def _order_kept(node: Node, rewriter: Rewriter) -> Value | None:
    perm = ints_attr(node.attrs, "perm")
    return node.inputs[0] if perm == tuple(sorted(perm)) else None


def _taken_whole(node: Node, rewriter: Rewriter) -> Value | None:
    forward = all(step == 1 for step in ints_attr(node.attrs, "steps"))
    return node.inputs[0] if forward and not any(dims_attr(node.attrs, "starts")) else None


def _padded_by_nothing(node: Node, rewriter: Rewriter) -> Value | None:
    return None if any((*dims_attr(node.attrs, "before"), *dims_attr(node.attrs, "after"))) else node.inputs[0]


def _of_one(node: Node, rewriter: Rewriter) -> Value | None:
    """The one operand of a concatenation that has elements."""
    full = [value for value in node.present_inputs if 0 not in value.shape]
    return full[0] if len(full) == 1 else None


def _over_one_element(node: Node, rewriter: Rewriter) -> Value | None:
    """The operand in the shape of the result, where every axis that is reduced has extent 1."""
    x = node.present_inputs[0]
    single = all(x.shape[axis] == 1 for axis in ints_attr(node.attrs, "axes"))
    return rewriter.reshape(x, node.output.shape) if single else None


def _moved_alike(node: Node, rewriter: Rewriter) -> Value | None:
    """One element broadcast to the shape of the result, where that many copies of it were moved around."""
    broadcast = rewriter.producer(node.inputs[0], "Broadcast")
    one = None if broadcast is None else broadcast.present_inputs[0]
    if one is None or not is_scalar_shape(one.shape) or one.type.rank > node.output.type.rank:
        return None
    return rewriter.op("Broadcast", one, shape=node.output.shape)


def _without_broadcast(node: Node, rewriter: Rewriter) -> Value | None:
    """The node on an operand that is not yet broadcast, as elementwise operators do that themselves."""
    for position, value in enumerate(node.inputs):
        broadcast = rewriter.producer(value, "Broadcast")
        if broadcast is not None:
            inputs = (*node.inputs[:position], broadcast.inputs[0], *node.inputs[position + 1 :])
            stand_in = try_stand_in(node, rewriter, node.op, *inputs, **node.attrs)
            if stand_in is not None:
                return stand_in[0]
    return None


LAWS: dict[str, tuple[Law, ...]] = {
    "Add": (_without(0, 0, 1),),  # x + 0 -> x
    "Sub": (_without(0, 1),),  # x - 0 -> x
    "Mul": (_without(1, 0, 1),),  # x * 1 -> x
    "Div": (_without(1, 1),),  # x / 1 -> x
    "Pow": (_without(1, 1),),  # x ** 1 -> x
    "And": (_if_equal(0, 1), _of_booleans(_without(True, 0, 1))),  # x & x -> x, x & true -> x
    "Or": (_if_equal(0, 1), _of_booleans(_without(False, 0, 1))),  # x | x -> x, x | false -> x
    "Xor": (_without(0, 0, 1),),  # x ^ 0 -> x
    "Max": (_if_equal(0, 1),),  # max(x, x) -> x
    "Min": (_if_equal(0, 1),),  # min(x, x) -> x
    "Neg": (_undone,),  # -(-x) -> x
    "Not": (_undone,),  # ~(~x) -> x
    **{name: (_done,) for name in ("Relu", "Abs", "Sign", "Floor", "Ceil", "Round")},  # f(f(x)) -> f(x)
    "Where": (_if_equal(1, 2), _chosen),  # where(c, x, x) -> x, where(true, x, y) -> x
    "Cast": (_operand, _narrowed_back),  # f32(x: f32) -> x, f16(f32(x: f16)) -> x
    "Transpose": (_order_kept, _moved_alike),  # transpose(x){0, 1, 2} -> x, transpose(broadcast(1)) -> broadcast(1)
    "Reshape": (_operand, _moved_alike),  # reshape(x){shape of x} -> x, reshape(broadcast(1)) -> broadcast(1)
    "Broadcast": (_operand, _moved_alike),  # broadcast(x){shape of x} -> x, broadcast(broadcast(1)) -> broadcast(1)
    "Slice": (_taken_whole, _moved_alike),  # x[0:n] -> x, broadcast(1)[0:n] -> broadcast(1)
    "Pad": (_padded_by_nothing,),  # pad(x){0, 0} -> x
    "Concat": (_of_one,),  # concat(x) -> x
    **{f"Reduce{name}": (_over_one_element,) for name in ("Sum", "Mean", "Prod", "Max", "Min")},  # sum of one -> it
}
"""By operator. x + 0.0 keeps a negative zero where the sum would not: ONNX promises nothing about signs of zeros."""
