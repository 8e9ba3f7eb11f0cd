"""Operators that run other graphs, and the call into the ONNX reference: typed by their makers, without a definition.

- If(condition, captured...){then_branch, else_branch}: both graphs take the captured values.
- Loop(trips?, condition?, state..., captured...){body, states}: the body takes (iteration, condition, state...,
  captured...) and returns (condition, state..., scanned...); scanned values are stacked on a new first axis.
- Scan(state..., sequences..., captured...){body, states, axes, directions, output_axes, output_directions}: the body
  takes (state..., slices..., captured...) and returns (state..., slices...).
- Onnx(inputs...){domain, op_type, version, node}: an operator without a definition of ours, run by the
  ONNX reference; `node` is its serialised NodeProto.
"""

from __future__ import annotations

from foretell.graph.ops.op import Attrs, OpDef, Operands
from foretell.ir.tensor_expr import TensorType


def _typed_by_maker(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    raise AssertionError("the maker of this node gives its output types: use Builder.typed")


CONTROL: dict[str, OpDef] = {name: OpDef(name, _typed_by_maker, None) for name in ("If", "Loop", "Scan", "Onnx")}

RANDOM_OPERATORS = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
)
"""What `Onnx` nodes may hold that gives another result each time."""
