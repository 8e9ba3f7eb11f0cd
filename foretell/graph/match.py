"""Reading a graph as algebra: the questions that recognisers ask about what stands upstream of a node.

A pattern is written as a law over products. `monomial` sees through every spelling of one (Mul, Div, Neg, Sqrt,
Reciprocal, Pow by a constant, constants anywhere), so that

    0.5 * x * g,   x * (g / 2),   (x * g) * 0.5      are all      coefficient 0.5, {x: 1, g: 1}
    d / sqrt(v),   d * (1 / sqrt(v)),   d * v ** -0.5   are all   coefficient 1.0, {d: 1, v: -0.5}

Only values that nothing else reads are looked through: what a recogniser absorbs is never needed elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from foretell.graph.nodes import Attr, Node, Value
from foretell.graph.optable import OPS
from foretell.graph.rewrite import Rewriter
from foretell.ir.dtypes import BF16, F16, F32, F64, DType

EPSILON = {F64: 2.0**-52, F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7}
"""The distance from 1 to the next number of a float type."""
MAX_DEPTH = 5
"""How many operators deep a product is followed; no law needs more."""


def number(value: Value | None, rewriter: Rewriter) -> float | None:
    """The value of a constant that has one element, whatever its rank."""
    array = rewriter.array(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def agrees(found: float | None, expected: float, dtype: DType) -> bool:
    """Whether a constant is `expected`, as well as its type can say."""
    return found is not None and abs(found - expected) <= 2 * EPSILON.get(dtype, 0.0) * abs(expected)


def interior(value: Value | None, rewriter: Rewriter, *ops: str, uses: int = 1) -> Node | None:
    """The node that makes `value`, if it applies one of `ops` and the value has exactly that many readers."""
    if value is None or rewriter.use_count(value) != uses:
        return None
    return rewriter.producer(value, *ops)


def try_stand_in(node: Node, rewriter: Rewriter, op: str, *inputs: Value | None, **attrs: Attr) -> list[Value] | None:
    """An operator in place of a node, if it fits its operands and has the very type of the node's output."""
    try:
        types = OPS[op].infer(tuple(None if value is None else value.type for value in inputs), attrs)
    except ValueError:
        return None
    if types != tuple(value.type for value in node.outputs):
        return None
    return [*rewriter.typed(op, inputs, attrs, types)]


# --- sums with a constant ------------------------------------------------------------------------------------


def with_constant(node: Node | None, rewriter: Rewriter) -> tuple[Value, float] | None:
    """(x, c) of a two-operand node that applies its operator to x and a one-element constant c, in either order."""
    if node is None or len(node.present_inputs) != 2:
        return None
    left, right = node.present_inputs
    for value, other in ((left, right), (right, left)):
        constant = number(other, rewriter)
        if constant is not None:
            return value, constant
    return None


def shifted(value: Value, rewriter: Rewriter) -> tuple[Value, float] | None:
    """(x, c) where value = x + c."""
    return with_constant(interior(value, rewriter, "Add"), rewriter) or _lowered(value, rewriter)


def _lowered(value: Value, rewriter: Rewriter) -> tuple[Value, float] | None:
    """(x, -c) where value = x - c."""
    node = interior(value, rewriter, "Sub")
    constant = None if node is None else number(node.inputs[1], rewriter)
    return None if node is None or constant is None else (node.present_inputs[0], -constant)


def one_plus(value: Value, rewriter: Rewriter, *ops: str) -> Node | None:
    """The node f of one of `ops` where value = 1 + f(...)."""
    found = shifted(value, rewriter)
    if found is None or not agrees(found[1], 1.0, value.dtype):
        return None
    return interior(found[0], rewriter, *ops)


def clipped(value: Value, rewriter: Rewriter, low: float, high: float) -> Value | None:
    """x where value = min(max(x, low), high), in either order; a Relu is a max with 0."""
    first = _bounded(value, rewriter)
    second = None if first is None else _bounded(first[0], rewriter)
    if first is None or second is None:
        return None
    found = {first[1]: first[2], second[1]: second[2]}
    dtype = value.dtype
    if agrees(found.get("Max"), low, dtype) and agrees(found.get("Min"), high, dtype):
        return second[0]
    return None


def _bounded(value: Value, rewriter: Rewriter) -> tuple[Value, str, float] | None:
    """(x, Max or Min, bound) where value = that of x and the bound."""
    node = interior(value, rewriter, "Max", "Min", "Relu")
    if node is not None and node.op == "Relu":
        return node.present_inputs[0], "Max", 0.0
    found = with_constant(node, rewriter)
    return None if node is None or found is None else (found[0], node.op, found[1])


# --- products ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Monomial:
    """coefficient * product of value ** exponent."""

    coefficient: float
    powers: Mapping[Value, float]

    def split(self, *exponents: float) -> Iterator[tuple[Value, ...]]:
        """Every way to name the factors so that they have these exponents."""
        if sorted(self.powers.values()) == sorted(exponents):
            for values in permutations(self.powers):
                if all(self.powers[value] == exponent for value, exponent in zip(values, exponents, strict=True)):
                    yield values

    def try_times(self, other: Monomial) -> Monomial | None:
        """The product, unless a factor meets its own root or inverse: x / x is not 1 at 0, and sqrt(x) ** 2 not x."""
        powers = dict(self.powers)
        for value, exponent in other.powers.items():
            met = powers.get(value)
            if met is not None and not (met * exponent > 0 and met.is_integer() and exponent.is_integer()):
                return None
            powers[value] = exponent if met is None else met + exponent
        return Monomial(self.coefficient * other.coefficient, powers)

    def try_inverse(self) -> Monomial | None:
        if self.coefficient == 0:
            return None
        return Monomial(1 / self.coefficient, {value: -exponent for value, exponent in self.powers.items()})

    def try_root(self) -> Monomial | None:
        """The square root of one bare factor; roots of products and powers do not distribute over negative numbers."""
        if self.coefficient != 1 or [abs(exponent) for exponent in self.powers.values()] != [1.0]:
            return None
        return Monomial(1.0, {value: exponent / 2 for value, exponent in self.powers.items()})


def monomial(node: Node, rewriter: Rewriter) -> Monomial:
    """What a node computes, as a product."""
    return _of_node(node, rewriter, MAX_DEPTH) or Monomial(1.0, {node.outputs[0]: 1.0})


def monomial_of(value: Value, rewriter: Rewriter, depth: int = MAX_DEPTH) -> Monomial:
    """A value as a product; a value that is not one, or that others read too, is its own only factor."""
    constant = number(value, rewriter)
    if constant is not None:
        return Monomial(constant, {})
    node = interior(value, rewriter)
    found = None if node is None else _of_node(node, rewriter, depth - 1)
    return found or Monomial(1.0, {value: 1.0})


def _of_node(node: Node, rewriter: Rewriter, depth: int) -> Monomial | None:
    """The product that a node computes, or None if it computes something else."""
    if depth == 0 or node.op not in _PRODUCTS or not node.output.dtype.is_float:
        return None
    first, *rest = (monomial_of(value, rewriter, depth) for value in node.present_inputs)
    match node.op, rest:
        case "Mul", [second]:
            return first.try_times(second)
        case "Div", [second]:
            divisor = second.try_inverse()
            return None if divisor is None else first.try_times(divisor)
        case "Neg", []:
            return Monomial(-first.coefficient, first.powers)
        case "Reciprocal", []:
            return first.try_inverse()
        case "Sqrt", []:
            return first.try_root()
        case "Pow", [Monomial(exponent, powers)] if not powers:
            return _try_power(first, exponent)
        case _:
            return None


_PRODUCTS = frozenset({"Mul", "Div", "Neg", "Reciprocal", "Sqrt", "Pow"})


def _try_power(base: Monomial, exponent: float) -> Monomial | None:
    """base ** exponent, for the exponents that occur in laws."""
    if exponent in (0.5, -0.5):
        root = base.try_root()
        return root if exponent > 0 or root is None else root.try_inverse()
    if exponent not in (1.0, 2.0, 3.0):
        return None
    power: Monomial | None = base
    for _ in range(int(exponent) - 1):
        power = None if power is None else power.try_times(base)
    return power
