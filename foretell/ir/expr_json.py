"""Dimensions as JSON: numbers, numbered symbols, and lists that begin with an operation.

7                               7
["symbol", 0]                   symbols[0]
["//", ["symbol", 0], 2]        symbols[0] // 2, and so "%", "min" and "max"
["+", [3, ["symbol", 0]], [1]]  3*symbols[0] + 1: a list of products, each with its coefficient first
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from foretell.ir import expr
from foretell.ir.expr import MAX_BITS, MAX_DEPTH, Dim, Op, Sym

Json: TypeAlias = "int | str | list[Json]"

MAX_TERMS = expr.MAX_WEIGHT
BINARY: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "//": expr.floordiv,
    "%": expr.mod,
    "min": expr.minimum,
    "max": expr.maximum,
}


def dim_to_json(dim: Dim, symbols: Sequence[Sym]) -> Json:
    """The dimension as plain data; `symbols` must hold every symbol it mentions."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        return ["symbol", symbols.index(dim)]
    if isinstance(dim, Op):
        return [dim.kind, dim_to_json(dim.left, symbols), dim_to_json(dim.right, symbols)]
    products: list[Json] = [
        [coefficient, *(dim_to_json(atom, symbols) for atom in monomial)]
        for monomial, coefficient in expr.terms_of(dim)
    ]
    return ["+", *products]


def dim_from_json(value: object, symbols: Sequence[Sym], depth: int = 0) -> Dim:
    """The dimension again; whatever is not one is a `ValueError`, or `ShapeTooComplex`."""
    if _is_number(value):
        return cast(int, value)
    parts = _parts(value)
    if depth > 2 * MAX_DEPTH or not parts:
        raise ValueError(f"{_shortened(value)} is not a dimension")
    head, *rest = parts
    if head == "symbol":
        return _symbol(rest, symbols)
    if head == "+":
        return _sum(rest, symbols, depth)
    if isinstance(head, str) and head in BINARY and len(rest) == 2:
        left, right = (dim_from_json(part, symbols, depth + 1) for part in rest)
        if head in ("//", "%") and right == 0:
            raise ValueError("a dimension divides by zero")
        return BINARY[head](left, right)
    raise ValueError(f"{_shortened(value)} is not a dimension")


def _symbol(rest: Sequence[object], symbols: Sequence[Sym]) -> Sym:
    number = rest[0] if len(rest) == 1 else None
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(symbols):
        return symbols[number]
    raise ValueError(f"there is no symbol {_shortened(list(rest))}")


def _sum(products: Sequence[object], symbols: Sequence[Sym], depth: int) -> Dim:
    total: Dim = 0
    for product in products:
        term: Dim = 1
        factors = _parts(product)
        if not factors:
            raise ValueError(f"{_shortened(product)} is not a product")
        for factor in factors:
            term = expr.mul(term, dim_from_json(factor, symbols, depth + 1))
        total = expr.add(total, term)
    return total


def _parts(value: object) -> list[object]:
    """What a list holds; nothing if it is no list, or too long to be of any use."""
    parts = cast("list[object]", value) if isinstance(value, list) else []
    return parts if len(parts) <= MAX_TERMS + 1 else []


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= MAX_BITS


def _shortened(value: object) -> str:
    return repr(value)[:60]
