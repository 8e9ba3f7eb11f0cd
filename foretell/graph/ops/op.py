"""What the op table holds for each canonical operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from foretell.graph.nodes import Attr
from foretell.ir.tensor_expr import Definition, TensorType

Operands: TypeAlias = tuple[TensorType | None, ...]
"""The types of a node's inputs; None for an absent optional one."""
Attrs: TypeAlias = Mapping[str, Attr]


@dataclass(frozen=True, slots=True)
class OpDef:
    """A canonical operator: its types and its meaning, both functions of input types and attributes alone.

    `infer` raises ValueError when the operands do not fit (the front end turns that into an error that names the
    ONNX node). `define` is None only for operators that run other graphs or call the ONNX reference.
    """

    name: str
    infer: Callable[[Operands, Attrs], tuple[TensorType, ...]]
    define: Callable[[Operands, Attrs], Definition] | None


def present(operand: TensorType | None) -> TensorType:
    """An operand that the operator requires."""
    if operand is None:
        raise ValueError("a required input is missing")
    return operand
