"""How many bytes a kernel brings into each cache, by what its loops touch and what stays between their iterations.

A part of a nest whose data fits in a cache brings each byte in once. A loop of which only an iteration fits keeps, from
one iteration to the next, what both touch; around such a loop nothing stays. Stores count as loads do: a line is
fetched before it is written, and leaves later.
"""

from __future__ import annotations

from collections.abc import Mapping

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.loops.analysis import touched
from foretell.loops.nodes import Allocate, Block, For, Guard, Kernel, Statement

KEPT_SHARE = 0.75
"""The part of a cache that is still there when it is read again."""


def traffic_bytes(kernel: Kernel, cache_bytes: int, symbols: Mapping[Sym, int] | None = None) -> float:
    """Bytes that come into a cache of that size from the next one, all iterations of all loops together."""
    return _Traffic(kernel, symbols or {}).into(kernel.body, KEPT_SHARE * cache_bytes)


def touched_bytes(kernel: Kernel, symbols: Mapping[Sym, int] | None = None) -> float:
    """Bytes of everything that a kernel touches."""
    return _Traffic(kernel, symbols or {}).footprint(kernel.body)


class _Traffic:
    def __init__(self, kernel: Kernel, symbols: Mapping[Sym, int]) -> None:
        self.kernel, self.symbols = kernel, dict(symbols)
        self.known: dict[int, float] = {}

    def into(self, statement: Statement, room: float) -> float:
        """What comes in while a statement runs that finds none of its data."""
        if self.footprint(statement) <= room:
            return self.footprint(statement)
        match statement:
            case For(_, extent, _, body):
                if self.footprint(body) <= room:
                    return self.footprint(statement)
                return self.number(extent) * self.into(body, room)
            case Block(statements):
                return sum(self.into(inner, room) for inner in statements)
            case Guard(_, body) | Allocate(_, body):
                return self.into(body, room)
            case _:
                return self.footprint(statement)

    def footprint(self, statement: Statement) -> float:
        """Bytes touched, each once; symbols of loops around the statement stand for one value."""
        found = self.known.get(id(statement))
        if found is None:
            found = sum(
                self.number(elements) * buffer.dtype.itemsize
                for buffer, elements in touched(statement).items()
                if buffer.scope != "register"
            )
            self.known[id(statement)] = found
        return found

    def number(self, dim: Dim) -> float:
        """Unbound symbols, of loops around, are taken at the middle of their range."""
        value = expr.substitute(dim, dict(self.symbols))
        if isinstance(value, int):
            return float(value)
        low, high = expr.bounds(value)
        return (low + high) / 2 if low is not None and high is not None else float(high or low or 1)
