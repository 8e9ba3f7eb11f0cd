"""ONNX Attention as the canonical one: heads apart, caches joined, every mask in one operand.

Grouped heads need no copies of keys and values: queries get an axis for the members of a group, along which keys and
values broadcast.

    q [b, h, i, d] with k [b, g, j, d]     ->     q [b, g, h / g, i, d] with k [b, g, 1, j, d]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import sqrt

from foretell.frontend.onnx_node import OnnxNode
from foretell.frontend.onnx_types import DTYPE_OF_ONNX
from foretell.frontend.operators.importer import Importer
from foretell.graph.build import Builder
from foretell.graph.nodes import Value
from foretell.ir.dtypes import BOOL, I64
from foretell.ir.expr import Dim


@dataclass(frozen=True, slots=True)
class _Operands:
    """Queries [b, h, i, d], keys [b, g, j, d] and values [b, g, j, e], caches included."""

    node: OnnxNode
    queries: Value
    keys: Value
    values: Value
    past: Dim
    """How many of the keys come from the cache."""

    @property
    def build(self) -> Builder:
        return self.node.build

    @property
    def members(self) -> int:
        """Query heads per key head."""
        heads, groups = self.queries.shape[1], self.keys.shape[1]
        return heads // groups if isinstance(heads, int) and isinstance(groups, int) else 1

    @property
    def scale(self) -> float:
        depth = self.queries.shape[3]
        assert isinstance(depth, int)
        return self.node.float("scale", 1 / sqrt(depth or 1))

    def grouped(self, value: Value) -> Value:
        """Queries, or a mask, with heads split into groups and members."""
        batch, heads, *rest = value.shape
        split = (1, 1) if heads == 1 and self.members > 1 else (self.keys.shape[1], self.members)
        return self.build.reshape(value, (batch, *split, *rest)) if self.members > 1 else value

    def shared(self, value: Value) -> Value:
        """Keys or values, which all members of a group see."""
        return self.build.reshape(value, (*value.shape[:2], 1, *value.shape[2:])) if self.members > 1 else value


def _attention(node: OnnxNode) -> tuple[Value, ...] | None:
    if not _fits(node):
        return None
    operands = _operands(node)
    build, causal = node.build, _is_plainly_causal(node)
    mask = _mask(operands, causal)
    y = build.op(
        "Attention",
        operands.grouped(operands.queries),
        operands.shared(operands.keys),
        operands.shared(operands.values),
        *(() if mask is None else (mask,)),
        scale=operands.scale,
        causal=causal,
        softcap=max(node.float("softcap", 0.0), 0.0),
        # A query that may see no key at all gets zeros.
        nan_to_zero=mask is not None,
    )
    outputs = [_joined_heads(operands, y), operands.keys, operands.values]
    return *outputs, *([_scores(operands, mask)] if node.has_output(3) else [])


# --- what fits -----------------------------------------------------------------------------------------------


def _fits(node: OnnxNode) -> bool:
    """Whether sizes that decide the form are known, and the arithmetic is in our compute type; ValueError if wrong."""
    q, k, v, mask = node.input(0), node.input(1), node.input(2), node.optional(3)
    if not (q.type.rank == k.type.rank == v.type.rank and q.type.rank in (3, 4)):
        raise ValueError(f"queries, keys and values must have 3 or 4 axes, got {q.type}, {k.type}, {v.type}")
    if (node.optional(4) is None) != (node.optional(5) is None):
        raise ValueError("past_key and past_value come together")
    if mask is not None and mask.type.rank > 4:
        raise ValueError(f"the mask {mask.type} has more than 4 axes")
    heads, groups = _heads(node, "q_num_heads", q), _heads(node, "kv_num_heads", k)
    depth = q.shape[-1]
    if not isinstance(depth, int) or (heads != groups and not (isinstance(heads, int) and isinstance(groups, int))):
        return False
    if isinstance(heads, int) and isinstance(groups, int) and (groups < 1 or heads % groups):
        raise ValueError(f"{heads} heads of queries do not divide into {groups} groups")
    if heads != groups and mask is not None and mask.type.rank > 2 and not isinstance(mask.shape[-3], int):
        return False
    precision = DTYPE_OF_ONNX.get(node.int("softmax_precision", 0), q.dtype)
    return v.dtype == q.dtype and precision.bits <= q.dtype.compute.bits


def _heads(node: OnnxNode, attribute: str, value: Value) -> Dim:
    """The number of heads: an axis, or an attribute that divides the last axis."""
    if value.type.rank == 4:
        return value.shape[1]
    heads, width = node.int(attribute), value.shape[2]
    if heads < 1 or (isinstance(width, int) and (width % heads or heads > max(width, 1))):
        raise ValueError(f"{value.type} does not divide into {heads} heads")
    return heads


def _is_plainly_causal(node: OnnxNode) -> bool:
    """Whether query i sees keys 0..i, which the canonical operator knows by itself."""
    cached = node.optional(4) is not None or node.optional(6) is not None
    return bool(node.int("is_causal", 0)) and not cached and not node.has_output(3)


# --- operands ------------------------------------------------------------------------------------------------


def _operands(node: OnnxNode) -> _Operands:
    q = _apart(node.build, node.input(0), _heads(node, "q_num_heads", node.input(0)))
    groups = _heads(node, "kv_num_heads", node.input(1))
    k, v = (_apart(node.build, node.input(number), groups) for number in (1, 2))
    past_key, past_value = node.optional(4), node.optional(5)
    if past_key is None or past_value is None:
        return _Operands(node, q, k, v, 0)
    keys, values = node.build.op("Concat", past_key, k, axis=2), node.build.op("Concat", past_value, v, axis=2)
    return _Operands(node, q, keys, values, past_key.shape[2])


def _apart(build: Builder, value: Value, heads: Dim) -> Value:
    """[b, i, h * d] as [b, h, i, d]"""
    if value.type.rank == 4:
        return value
    batch, length, width = value.shape
    return build.transpose(build.reshape(value, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _joined_heads(operands: _Operands, y: Value) -> Value:
    """The result in the form of the inputs."""
    build, (batch, heads, length, _), width = operands.build, operands.queries.shape, operands.values.shape[3]
    y = build.reshape(y, (batch, heads, length, width))
    if operands.node.input(0).type.rank == 4:
        return y
    return build.reshape(build.transpose(y, (0, 2, 1, 3)), (batch, length, heads * width))


# --- masks ---------------------------------------------------------------------------------------------------


def _mask(operands: _Operands, causal: bool) -> Value | None:
    """Everything that hides keys, as booleans (true: seen) or as numbers to add; None if nothing does."""
    build, allowed, added = operands.build, _visible(operands, causal), _given_mask(operands)
    if added is not None and added.dtype == BOOL:
        allowed, added = added if allowed is None else build.op("And", added, allowed), None
    if added is None or allowed is None:
        mask = allowed if added is None else added
    else:
        mask = build.op("Where", allowed, added, build.scalar(float("-inf"), added.dtype))
    if mask is None or mask.type.rank < 3:
        return mask
    return operands.grouped(build.reshape(mask, (*(1,) * (4 - mask.type.rank), *mask.shape)))


def _given_mask(operands: _Operands) -> Value | None:
    """The node's mask; where it is shorter than the keys, the rest is hidden."""
    mask, build = operands.node.optional(3), operands.build
    if mask is None:
        return None
    if mask.dtype.is_integer:
        mask = build.cast(mask, operands.queries.dtype)
    missing = operands.keys.shape[2] - mask.shape[-1]
    if missing == 0:
        return mask
    if isinstance(missing, int) and missing < 0:
        raise ValueError(f"the mask {mask.type} is longer than the keys {operands.keys.type}")
    fill = build.scalar(False if mask.dtype == BOOL else float("-inf"), mask.dtype)
    nothing = (0,) * (mask.type.rank - 1)
    return build.op("Pad", mask, fill, before=(*nothing, 0), after=(*nothing, missing), mode="constant")


def _visible(operands: _Operands, causal: bool) -> Value | None:
    """Which keys a query sees by its place: not the future, within the window, and no padding."""
    node, build, lengths = operands.node, operands.build, operands.node.optional(6)
    left, right = node.int("left_window_size", -1), node.int("right_window_size", -1)
    if left < -1 or right < -1:
        raise ValueError(f"windows of {left} and {right} keys")
    bounds: list[tuple[str, Value]] = []
    if node.int("is_causal", 0) and not causal:
        bounds.append(("LessOrEqual", _places(operands)))
    if left >= 0:
        bounds.append(("GreaterOrEqual", build.op("Sub", _places(operands), build.scalar(left, I64))))
    if right >= 0:
        bounds.append(("LessOrEqual", build.op("Add", _places(operands), build.scalar(right, I64))))
    if lengths is not None:
        bounds.append(("Less", build.reshape(lengths, (*lengths.shape, 1, 1, 1))))
    if not bounds:
        return None
    keys = build.op("Iota", shape=(operands.keys.shape[2],), axis=0, dtype=I64)
    conditions = [build.op(relation, keys, bound) for relation, bound in bounds]
    return reduce(lambda one, other: build.op("And", one, other), conditions)


def _places(operands: _Operands) -> Value:
    """Where each query stands among the keys, as a column: behind the cache, or at the end of what is not padding."""
    build, count, lengths = operands.build, operands.queries.shape[2], operands.node.optional(6)
    rows = build.op("Iota", shape=(count, 1), axis=0, dtype=I64)
    if operands.past != 0:
        return build.op("Add", rows, build.op("Dims", values=(operands.past,), shape=(), dtype=I64))
    if lengths is None:
        return rows
    ends = build.reshape(lengths, (*lengths.shape, 1, 1, 1))
    first = build.op("Sub", ends, build.op("Dims", values=(count,), shape=(), dtype=I64))
    return build.op("Add", rows, first)


# --- the fourth output ---------------------------------------------------------------------------------------


def _scores(operands: _Operands, mask: Value | None) -> Value:
    """What the softmax is made from, up to the point that qk_matmul_output_mode names."""
    node, build, mode = operands.node, operands.build, operands.node.int("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise ValueError(f"unknown qk_matmul_output_mode {mode}")
    q, k = operands.grouped(operands.queries), operands.shared(operands.keys)
    last = q.type.rank - 1
    flipped = build.transpose(k, (*range(last - 1), last, last - 1))
    scores = build.op("Mul", build.op("MatMul", q, flipped), node.scalar(operands.scale, q))
    cap = node.float("softcap", 0.0)
    if mode >= 1 and cap > 0:
        limit = node.scalar(cap, q)
        scores = build.op("Mul", limit, build.op("Tanh", build.op("Div", scores, limit)))
    if mode >= 2 and mask is not None:
        hidden = node.scalar(float("-inf"), q)
        scores = build.op("Where", mask, scores, hidden) if mask.dtype == BOOL else build.op("Add", scores, mask)
    if mode == 3:
        scores = build.op("Softmax", scores, axis=last)
        scores = build.op("Where", build.op("IsNaN", scores), node.scalar(0, q), scores)
    return build.reshape(scores, (*operands.queries.shape[:3], operands.keys.shape[2]))


ATTENTION_IMPORTERS: dict[str, Importer] = {"Attention": _attention}
