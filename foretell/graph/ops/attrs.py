"""Typed access to attributes: a canonical node's attributes are ours, so a wrong type is a bug, not an error."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.graph.nodes import Attr, Graph
from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim, Expr


def int_attr(attrs: Mapping[str, Attr], name: str) -> int:
    value = attrs[name]
    assert isinstance(value, int), f"{name}={value!r}"
    return value


def float_attr(attrs: Mapping[str, Attr], name: str) -> float:
    value = attrs[name]
    assert isinstance(value, (int, float)), f"{name}={value!r}"
    return float(value)


def text_attr(attrs: Mapping[str, Attr], name: str) -> str:
    value = attrs[name]
    assert isinstance(value, str), f"{name}={value!r}"
    return value


def dtype_attr(attrs: Mapping[str, Attr], name: str) -> DType:
    value = attrs[name]
    assert isinstance(value, DType), f"{name}={value!r}"
    return value


def graph_attr(attrs: Mapping[str, Attr], name: str) -> Graph:
    value = attrs[name]
    assert isinstance(value, Graph), f"{name} is not a graph"
    return value


def ints_attr(attrs: Mapping[str, Attr], name: str) -> tuple[int, ...]:
    value = attrs[name]
    assert isinstance(value, tuple), f"{name}={value!r}"
    items: list[int] = []
    for item in value:
        assert isinstance(item, int), f"{name}={value!r}"
        items.append(item)
    return tuple(items)


def dims_attr(attrs: Mapping[str, Attr], name: str) -> tuple[Dim, ...]:
    value = attrs[name]
    assert isinstance(value, tuple), f"{name}={value!r}"
    items: list[Dim] = []
    for item in value:
        assert isinstance(item, (int, Expr)), f"{name}={value!r}"
        items.append(item)
    return tuple(items)
