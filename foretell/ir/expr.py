"""Integer expressions over symbols: dimensions of tensors and indices into them.

An expression is a plain `int` or an `Expr`. Values are kept in one normal form, a polynomial with integer
coefficients over *atoms*; an atom is a symbol or an opaque floor division, remainder, minimum or maximum of
expressions. So `a + b - a` is `b`, equality is `==`, and a result that is constant is an `int` again.

    n, m = Sym("n", 1), Sym("m", 1)
    (n + m) * 2 - m     ->  2*n + m
    (n * 4) // 2        ->  2*n
    (4 * n + 3) // 4    ->  n

An expression has at most `MAX_WEIGHT` atoms, `MAX_DEPTH` inside one another, and coefficients of `MAX_BITS` bits: a
few nodes that square a dimension again and again would otherwise ask for any amount of time (`ShapeTooComplex`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from math import gcd
from typing import TypeAlias

from foretell.support.errors import ShapeTooComplex
from foretell.support.frozen import frozen, slot_setter

MAX_WEIGHT = 512
MAX_DEPTH = 32
MAX_BITS = 256

Dim: TypeAlias = "int | Expr"
"""A dimension or an index: known now, or an expression over symbols."""

Bounds: TypeAlias = tuple[int | None, int | None]

Terms: TypeAlias = "tuple[tuple[tuple[Atom, ...], int], ...]"
"""(monomial, coefficient) pairs, sorted, coefficients not zero; the empty monomial is the constant term."""


class Expr:
    """Base of everything that is not a plain int; gives Python's operators their symbolic meaning."""

    __slots__ = ()

    def __add__(self, other: Dim) -> Dim:
        return add(self, other)

    def __radd__(self, other: Dim) -> Dim:
        return add(other, self)

    def __sub__(self, other: Dim) -> Dim:
        return add(self, mul(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return add(other, mul(self, -1))

    def __mul__(self, other: Dim) -> Dim:
        return mul(self, other)

    def __rmul__(self, other: Dim) -> Dim:
        return mul(other, self)

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __neg__(self) -> Dim:
        return mul(self, -1)


class Hashed(Expr):
    """What is looked up often: its hash, and the symbols in it, are found once."""

    __slots__ = ("_hash", "_symbols")
    _hash: int
    _symbols: frozenset[Sym] | None

    def symbols(self) -> frozenset[Sym]:
        if self._symbols is None:
            _set_symbols(self, _find_symbols(self))
        assert self._symbols is not None
        return self._symbols


_set_hash, _set_symbols = slot_setter(Hashed, "_hash"), slot_setter(Hashed, "_symbols")


@frozen
class Sym(Hashed):
    """A named integer in [lo, hi] (hi None: unbounded), a multiple of `multiple_of`."""

    name: str
    lo: int = 0
    hi: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        _set_hash(self, hash((self.name, self.lo, self.hi, self.multiple_of)))
        _set_symbols(self, None)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Most that is compared is one object, or has another hash."""
        if self is other:
            return True
        if not isinstance(other, Sym) or self._hash != other._hash:
            return False
        return (self.name, self.lo, self.hi, self.multiple_of) == (other.name, other.lo, other.hi, other.multiple_of)

    def __reduce__(self) -> tuple[type[Sym], tuple[str, int, int | None, int]]:
        """Made anew where it is read: hashes differ from process to process."""
        return Sym, (self.name, self.lo, self.hi, self.multiple_of)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class Compound(Hashed):
    """What is made of other expressions. What is asked of it often is found once, and takes no longer as it grows."""

    __slots__ = ("_bounds", "depth", "weight")
    weight: int
    depth: int
    _bounds: Bounds | None

    def _settle(self, key: object, weight: int, depth: int, bits: int = 0) -> None:
        _check_size(weight, depth, bits)
        _set_weight(self, weight)
        _set_depth(self, depth)
        _set_hash(self, hash(key))
        _set_bounds(self, None)
        _set_symbols(self, None)

    def bounds(self) -> Bounds:
        if self._bounds is None:
            _set_bounds(self, _find_bounds(self))
        assert self._bounds is not None
        return self._bounds


_set_weight, _set_depth, _set_bounds = (slot_setter(Compound, name) for name in ("weight", "depth", "_bounds"))


@frozen
class Op(Compound):
    """An opaque atom: `kind` is one of //, %, min, max."""

    kind: str
    left: Dim
    right: Dim

    def __post_init__(self) -> None:
        weight = 1 + weight_of(self.left) + weight_of(self.right)
        depth = 1 + max(depth_of(self.left), depth_of(self.right))
        self._settle((self.kind, self.left, self.right), weight, depth)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Op) or self._hash != other._hash:
            return False
        return (self.kind, self.left, self.right) == (other.kind, other.left, other.right)

    def __reduce__(self) -> tuple[type[Op], tuple[str, Dim, Dim]]:
        """Made anew where it is read: hashes differ from process to process."""
        return Op, (self.kind, self.left, self.right)

    def __str__(self) -> str:
        if self.kind in ("min", "max"):
            return f"{self.kind}({self.left}, {self.right})"
        return f"{_parenthesised(self.left)} {self.kind} {_parenthesised(self.right)}"

    __repr__ = __str__


Atom: TypeAlias = "Sym | Op"


@frozen
class Poly(Compound):
    """A sum of at least two terms, or one term that is not just an atom."""

    terms: Terms

    def __post_init__(self) -> None:
        weight, depth, bits = len(self.terms), 0, 0
        for monomial, coefficient in self.terms:
            bits |= abs(coefficient)
            for atom in monomial:
                if isinstance(atom, Sym):
                    weight += 1
                else:
                    weight += atom.weight
                    depth = max(depth, atom.depth)
        self._settle(self.terms, weight, depth, bits.bit_length())

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Poly) and self._hash == other._hash and self.terms == other.terms

    def __reduce__(self) -> tuple[type[Poly], tuple[Terms]]:
        return Poly, (self.terms,)

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            sign = "-" if coefficient < 0 else "+"
            factors = [_parenthesised_atom(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            text += f" {sign} " + "*".join(factors) if text else ("-" if coefficient < 0 else "") + "*".join(factors)
        return text

    __repr__ = __str__


def in_order(symbols: Iterable[Sym]) -> tuple[Sym, ...]:
    """The same order whatever they come in."""
    return tuple(sorted(symbols, key=lambda symbol: (symbol.name, symbol.lo, symbol.hi or 0, symbol.multiple_of)))


def without_constant(value: Dim) -> Dim:
    """The expression less its constant term."""
    return _from_sorted(terms_of(value)[:-1]) if constant_term(value) else value


def constant_term(value: Dim) -> int:
    terms = terms_of(value)
    return terms[-1][1] if terms and not terms[-1][0] else 0  # Products of fewer factors come later.


def weight_of(value: Dim) -> int:
    """How many atoms there are to look at."""
    return value.weight if isinstance(value, Compound) else int(isinstance(value, Sym))


def depth_of(value: Dim) -> int:
    """How deep divisions, remainders, minima and maxima stand in one another."""
    return value.depth if isinstance(value, Compound) else 0


def _check_size(weight: int, depth: int = 0, bits: int = 0) -> None:
    if weight > MAX_WEIGHT or depth > MAX_DEPTH or bits > MAX_BITS:
        raise ShapeTooComplex(
            "a dimension is too complicated an expression",
            expected=f"at most {MAX_WEIGHT} symbols and operations, {MAX_DEPTH} deep, and numbers of {MAX_BITS} bits",
            got=f"{weight}, {depth} deep, {bits} bits",
            hint="bind the symbolic dimensions of the inputs: shapes={...}",
        )


def _parenthesised(value: Dim) -> str:
    return str(value) if isinstance(value, (int, Sym)) else f"({value})"


def _parenthesised_atom(atom: Atom) -> str:
    return f"({atom})" if isinstance(atom, Op) and atom.kind in ("//", "%") else str(atom)


def terms_of(value: Dim) -> Terms:
    """The normal form of any expression."""
    if isinstance(value, int):
        return (((), value),) if value else ()
    if isinstance(value, Poly):
        return value.terms
    assert isinstance(value, (Sym, Op))
    return (((value,), 1),)


def _from_terms(terms: Mapping[tuple[Atom, ...], int]) -> Dim:
    if len(terms) > 1:
        terms = _joined_remainders(terms)
    kept = [(m, c) for m, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=_term_order)
    return _from_sorted(tuple(kept))


def _from_sorted(terms: Terms) -> Dim:
    """The same for terms that are in normal form already."""
    if not terms:
        return 0
    if len(terms) == 1:
        monomial, coefficient = terms[0]
        if not monomial:
            return coefficient
        if len(monomial) == 1 and coefficient == 1:
            return monomial[0]
    return Poly(terms)


def _term_order(term: tuple[tuple[Atom, ...], int]) -> tuple[int, list[str]]:
    """Products of more factors first, then by name."""
    return -len(term[0]), [_atom_order(atom) for atom in term[0]]


def _atom_order(atom: Atom) -> str:
    return atom.name if isinstance(atom, Sym) else str(atom)


def _joined_remainders(terms: Mapping[tuple[Atom, ...], int]) -> Mapping[tuple[Atom, ...], int]:
    """c*a*(x // a) + c*(x % a) is c*x: what makes a reshape of a reshape disappear from addresses."""
    for monomial, coefficient in terms.items():
        for position, atom in enumerate(monomial):
            if not (isinstance(atom, Op) and atom.kind == "%" and coefficient):
                continue
            quotient, rest = floordiv(atom.left, atom.right), monomial[:position] + monomial[position + 1 :]
            whole = mul(mul(quotient, atom.right), _from_terms({rest: coefficient}))
            partner = terms_of(whole)
            if len(partner) == 1 and terms.get(partner[0][0]) == partner[0][1]:
                left = {m: c for m, c in terms.items() if m not in (monomial, partner[0][0])}
                joined = mul(atom.left, _from_terms({rest: coefficient}))
                return dict(terms_of(add(_from_terms(left), joined)))
    return terms


def add(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int):
        if isinstance(right, int):
            return left + right
        if left == 0:
            return right
    elif right == 0:
        return left
    total = dict(terms_of(left))
    for monomial, coefficient in terms_of(right):
        total[monomial] = total.get(monomial, 0) + coefficient
    return _from_terms(total)


def weighted_sum(parts: Iterable[tuple[Dim, int]]) -> Dim:
    """The sum of expressions times numbers."""
    total: dict[tuple[Atom, ...], int] = {}
    for value, weight in parts:
        for monomial, coefficient in terms_of(value):
            total[monomial] = total.get(monomial, 0) + weight * coefficient
    return _from_terms(total)


def mul(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int):
        if isinstance(right, int):
            return left * right
        left, right = right, left
    if isinstance(right, int):
        if right in (0, 1):
            return left if right else 0
        return _from_terms({monomial: coefficient * right for monomial, coefficient in terms_of(left)})
    left_terms, right_terms = terms_of(left), terms_of(right)
    _check_size(len(left_terms) * len(right_terms))
    product: dict[tuple[Atom, ...], int] = {}
    for left_monomial, left_coefficient in left_terms:
        for right_monomial, right_coefficient in right_terms:
            monomial = tuple(sorted(left_monomial + right_monomial, key=_atom_order))
            product[monomial] = product.get(monomial, 0) + left_coefficient * right_coefficient
    return _from_terms(product)


def floordiv(left: Dim, right: Dim) -> Dim:
    """Floor division, as Python's `//`; the divisor must not be zero."""
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if isinstance(left, Op) and left.kind == "//" and _is_positive(left.right) and _is_positive(right):
        return floordiv(left.left, mul(left.right, right))  # (x // a) // b is x // (a * b)
    quotient, rest = _divide_terms(left, right)
    if rest == 0:
        return quotient
    if isinstance(right, int) and right > 0:
        low, high = bounds(rest)
        if low is not None and high is not None and low // right == high // right:
            return add(quotient, low // right)
        common = _content(rest, right)
        return add(quotient, Op("//", _scaled_down(rest, common), right // common))
    return Op("//", left, right)


def _is_positive(value: Dim) -> bool:
    low, _ = bounds(value)
    return low is not None and low > 0


def mod(left: Dim, right: Dim) -> Dim:
    """Remainder with the sign of the divisor, as Python's `%`."""
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    _, rest = _divide_terms(left, right)
    if rest == 0 or (isinstance(right, int) and is_divisible(rest, right)):
        return 0
    if isinstance(right, int) and right > 0:
        low, high = bounds(rest)
        if low is not None and high is not None and low // right == high // right:
            return add(rest, -(low // right) * right)
        return Op("%", rest, right)
    return Op("%", left, right)


def _divide_terms(left: Dim, right: Dim) -> tuple[Dim, Dim]:
    """(q, r) with left == q * right + r, moving every term that a one-term divisor divides into q."""
    divisor = terms_of(right)
    if left == right:
        return 1, 0
    if len(divisor) != 1:
        return 0, left
    (monomial, coefficient) = divisor[0]
    quotient: dict[tuple[Atom, ...], int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for term, factor in terms_of(left):
        reduced = _without(term, monomial)
        if reduced is not None and factor % coefficient == 0:
            quotient[reduced] = factor // coefficient
        else:
            rest[term] = factor
    return _from_terms(quotient), _from_terms(rest)


def _without(term: tuple[Atom, ...], monomial: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    left = list(term)
    for atom in monomial:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _content(value: Dim, divisor: int) -> int:
    common = divisor
    for _, coefficient in terms_of(value):
        common = gcd(common, coefficient)
    return common


def _scaled_down(value: Dim, factor: int) -> Dim:
    return _from_terms({monomial: coefficient // factor for monomial, coefficient in terms_of(value)})


def minimum(left: Dim, right: Dim) -> Dim:
    return _extreme("min", left, right)


def maximum(left: Dim, right: Dim) -> Dim:
    return _extreme("max", left, right)


def _extreme(kind: str, left: Dim, right: Dim) -> Dim:
    low, high = bounds(add(left, mul(right, -1)))
    if low is not None and low >= 0:
        return left if kind == "max" else right
    if high is not None and high <= 0:
        return right if kind == "max" else left
    first, second = sorted((left, right), key=str)
    return Op(kind, first, second)


def ceildiv(left: Dim, right: Dim) -> Dim:
    return floordiv(add(left, add(right, -1)), right)


def product(values: tuple[Dim, ...]) -> Dim:
    total: Dim = 1
    for value in values:
        total = mul(total, value)
    return total


def bounds(value: Dim) -> Bounds:
    """Inclusive bounds of the expression over all values of its symbols; None where there is none."""
    return value.bounds() if isinstance(value, Compound) else _find_bounds(value)


def _find_bounds(value: Dim) -> Bounds:
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in terms_of(value):
        term_low, term_high = _monomial_bounds(monomial)
        if coefficient < 0:
            term_low, term_high = term_high, term_low
        low = None if low is None or term_low is None else low + coefficient * term_low
        high = None if high is None or term_high is None else high + coefficient * term_high
    return low, high


def _monomial_bounds(monomial: tuple[Atom, ...]) -> tuple[int | None, int | None]:
    if len(monomial) == 1:
        return _atom_bounds(monomial[0])  # may be bounded on one side only: min(n - b, 8)
    low, high = 1, 1
    unbounded = False
    for atom in monomial:
        atom_low, atom_high = _atom_bounds(atom)
        if atom_low is None or (atom_high is None and (atom_low < 0 or low < 0)):
            return None, None
        unbounded |= atom_high is None
        if unbounded and (atom_low < 0 or low < 0):
            return None, None
        last = atom_low if atom_high is None else atom_high
        corners = (low * atom_low, low * last, high * atom_low, high * last)
        low, high = min(corners), max(corners)
    return low, None if unbounded else high


def _atom_bounds(atom: Atom) -> tuple[int | None, int | None]:
    if isinstance(atom, Sym):
        return atom.lo, atom.hi
    left_low, left_high = bounds(atom.left)
    right_low, right_high = bounds(atom.right)
    match atom.kind:
        case "min":
            highs = [bound for bound in (left_high, right_high) if bound is not None]
            return _both(min, left_low, right_low), min(highs) if highs else None
        case "max":
            lows = [bound for bound in (left_low, right_low) if bound is not None]
            return max(lows) if lows else None, _both(max, left_high, right_high)
        case "%":
            if right_low is None or right_low <= 0:
                return None, None
            return 0, None if right_high is None else right_high - 1
        case _:
            if right_low is None or right_low <= 0:
                return None, None
            if left_low is not None and left_low >= 0:
                low = 0 if right_high is None else left_low // right_high
                return low, None if left_high is None else left_high // right_low
            if right_high != right_low:
                return None, None
            return (
                None if left_low is None else left_low // right_low,
                None if left_high is None else left_high // right_low,
            )


def _both(pick: Callable[[int, int], int], left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else pick(left, right)


def is_divisible(value: Dim, divisor: int) -> bool:
    """Whether `divisor` divides the expression whatever its symbols are, as far as declared facts tell."""
    for monomial, coefficient in terms_of(value):
        factor = coefficient
        for atom in monomial:
            factor *= atom.multiple_of if isinstance(atom, Sym) else 1
        if factor % divisor:
            return False
    return True


def substitute(value: Dim, bindings: Mapping[Sym, Dim]) -> Dim:
    """The expression with symbols replaced, in normal form again."""
    if isinstance(value, Sym):
        return bindings.get(value, value)
    if isinstance(value, int) or symbols(value).isdisjoint(bindings):
        return value
    return weighted_sum((_substitute_monomial(monomial, bindings), factor) for monomial, factor in terms_of(value))


def _substitute_monomial(monomial: tuple[Atom, ...], bindings: Mapping[Sym, Dim]) -> Dim:
    return product(tuple([_substitute_atom(atom, bindings) for atom in monomial]))


def _substitute_atom(atom: Atom, bindings: Mapping[Sym, Dim]) -> Dim:
    if isinstance(atom, Sym):
        return bindings.get(atom, atom)
    return _APPLY[atom.kind](substitute(atom.left, bindings), substitute(atom.right, bindings))


_APPLY: dict[str, Callable[[Dim, Dim], Dim]] = {"//": floordiv, "%": mod, "min": minimum, "max": maximum}


def symbols(value: Dim) -> frozenset[Sym]:
    """Every symbol the expression mentions."""
    return value.symbols() if isinstance(value, Hashed) else frozenset()


def _find_symbols(value: Hashed) -> frozenset[Sym]:
    if isinstance(value, Sym):
        return frozenset((value,))
    if isinstance(value, Op):
        return symbols(value.left) | symbols(value.right)
    found: set[Sym] = set()
    for monomial, _ in terms_of(value):
        for atom in monomial:
            found |= symbols(atom)
    return frozenset(found)


def mentions(value: Dim, variables: Set[Sym]) -> bool:
    """Whether the expression mentions any of them."""
    return isinstance(value, Hashed) and not value.symbols().isdisjoint(variables)


def try_linear(value: Dim, variables: frozenset[Sym]) -> tuple[dict[Sym, int], Dim] | None:
    """(coefficient per variable, the rest) if the expression is linear in `variables`, else None."""
    if not mentions(value, variables):
        return {}, value
    coefficients: dict[Sym, int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for monomial, coefficient in terms_of(value):
        if len(monomial) == 1 and isinstance(monomial[0], Sym) and monomial[0] in variables:
            coefficients[monomial[0]] = coefficient
        elif _mentions(monomial, variables):
            return None
        else:
            rest[monomial] = coefficient
    return coefficients, _from_terms(rest)


def try_step(value: Dim, sym: Sym) -> int | None:
    """How far a linear expression moves per step of a symbol; None if it is not linear in that."""
    step, variables = 0, symbols(sym)
    for monomial, coefficient in terms_of(value):
        if monomial == (sym,):
            step = coefficient
        elif _mentions(monomial, variables):
            return None
    return step


def split(value: Dim, variables: frozenset[Sym]) -> tuple[Dim, Dim]:
    """(the terms that mention none of `variables`, the others); their sum is the value."""
    if not mentions(value, variables):
        return value, 0
    without: dict[tuple[Atom, ...], int] = {}
    within: dict[tuple[Atom, ...], int] = {}
    for monomial, coefficient in terms_of(value):
        (within if _mentions(monomial, variables) else without)[monomial] = coefficient
    return _from_terms(without), _from_terms(within)


def _mentions(monomial: tuple[Atom, ...], variables: frozenset[Sym]) -> bool:
    for atom in monomial:  # noqa: SIM110 - a generator for one atom takes as long as all the rest
        if not atom.symbols().isdisjoint(variables):
            return True
    return False
