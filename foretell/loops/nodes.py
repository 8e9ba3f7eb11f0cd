"""The loop IR: loop nests over typed buffers, immutable, printable, executable.

Semantics, once for all
- A `Kernel` is a statement that reads and writes buffers; it touches nothing else. Its scalar expressions are those of
  tensor expressions (`ir/tensor_expr.py`), with loads from `Buffer`s.
- `For` runs its body for sym = 0 .. extent - 1. The kind says how, never what: `serial` in order, `parallel` in any
  order on any thread, `vector` several at a time, `unroll` written out. A vector loop handles its remainder itself.
  `stream` is a vector loop too, one that stores past the caches.
- `Accumulate` combines a value into an element with a reduction; the element must hold a value already. In a vector
  loop whose variable does not index the target, partial results are combined after the loop.
- `Store` rounds to the buffer's type, once; buffers of scope `register` hold compute types.
- `Guard` runs its body if the condition holds. Every load and store that runs is in bounds.
- `Fetch` asks for the lines of elements that will be read or written later. It changes nothing, in bounds or not.
- `Allocate` makes a buffer of scope `stack` or `register` for the duration of its body; its contents start undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import is_
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.dtypes import BOOL, DType
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Cast, Const, Index, Load, Scalar, Select
from foretell.support.frozen import frozen

VECTOR_KINDS = ("vector", "stream")
LOOP_KINDS = ("serial", "parallel", *VECTOR_KINDS, "unroll")


@frozen
class For:
    sym: Sym
    extent: Dim
    kind: str
    body: Statement


@frozen
class Store:
    buffer: Buffer
    indices: tuple[Dim | Scalar, ...]
    value: Scalar


@frozen
class Accumulate:
    buffer: Buffer
    indices: tuple[Dim, ...]
    reduction: str
    value: Scalar


@frozen
class Fetch:
    buffer: Buffer
    indices: tuple[Dim, ...]
    to_write: bool
    cache: int = 1
    """Into which: 1 is the nearest."""


@frozen
class Guard:
    condition: Scalar
    body: Statement


@frozen
class Allocate:
    buffer: Buffer
    body: Statement


@frozen
class Block:
    statements: tuple[Statement, ...]


Statement: TypeAlias = For | Store | Accumulate | Fetch | Guard | Allocate | Block


@frozen
class Kernel:
    """One native function: the buffers it reads and writes, and its loops."""

    name: str
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    body: Statement
    location: str = ""

    def __str__(self) -> str:
        head = f"kernel {self.name}({', '.join(map(_parameter, self.reads))}) -> "
        return head + ", ".join(map(_parameter, self.writes)) + " {\n" + _text(self.body, 1) + "}"


def _parameter(buffer: Buffer) -> str:
    return f"{buffer}: {buffer.type}"


def _text(statement: Statement, depth: int) -> str:
    pad = "  " * depth
    match statement:
        case For(sym, extent, kind, body):
            return f"{pad}for {sym} < {extent} {kind}:\n" + _text(body, depth + 1)
        case Store(buffer, indices, value):
            return f"{pad}{_place(buffer, indices)} = {value}\n"
        case Accumulate(buffer, indices, reduction, value):
            return f"{pad}{_place(buffer, indices)} {reduction}= {value}\n"
        case Fetch(buffer, indices, to_write, cache):
            into = f" into cache {cache}" if cache > 1 else ""
            return f"{pad}fetch {_place(buffer, indices)} to {'write' if to_write else 'read'}{into}\n"
        case Guard(condition, body):
            return f"{pad}if {condition}:\n" + _text(body, depth + 1)
        case Allocate(buffer, body):
            return f"{pad}{_parameter(buffer)} in {buffer.scope}\n" + _text(body, depth)
        case Block(statements):
            return "".join(_text(inner, depth) for inner in statements)


def _place(buffer: Buffer, indices: tuple[Dim | Scalar, ...]) -> str:
    return f"{buffer}[{', '.join(map(str, indices))}]"


def offset(shape: tuple[Dim, ...], indices: tuple[Dim, ...]) -> Dim:
    """The place of an element in row-major order."""
    inner: Dim = 1
    known: list[tuple[Dim, int]] = []
    others: Dim = 0
    for dim, index in zip(reversed(shape), reversed(indices), strict=True):
        if isinstance(inner, int):
            known.append((index, inner))
        else:
            others = others + inner * index
        inner = inner * dim
    return others + expr.weighted_sum(known)


def at_origin(load: Load) -> Load:
    """The load without the constant terms of its indices: those that move alike are equal."""
    moved = tuple(
        0 if isinstance(index, int) else expr.without_constant(index) if isinstance(index, expr.Expr) else index
        for index in load.indices
    )
    return Load(load.source, moved, load.dtype)


def loops_in(statement: Statement) -> Iterator[For]:
    """Every loop, outer before inner."""
    match statement:
        case For(_, _, _, body):
            yield statement
            yield from loops_in(body)
        case Block(statements):
            for inner in statements:
                yield from loops_in(inner)
        case Guard(_, body) | Allocate(_, body):
            yield from loops_in(body)
        case Store() | Accumulate() | Fetch():
            return


# Walks through expressions ask for what there is most of first: `match` would take as long again.


def loads_in(scalar: Scalar) -> Iterator[Load]:
    """Every load of a scalar expression, those inside indices included."""
    waiting = [scalar]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Apply):
            waiting += reversed(part.arguments)
        elif isinstance(part, Load):
            yield part
            for index in reversed(part.indices):
                if not isinstance(index, (int, expr.Expr)):
                    waiting.append(index)
        elif isinstance(part, Select):
            waiting += (part.otherwise, part.then, part.condition)
        elif isinstance(part, Cast):
            waiting.append(part.value)


def loads_once(scalar: Scalar) -> Iterator[Load]:
    """The same in the same order, each object once: there is much less to look at where parts are shared."""
    seen: dict[int, Scalar] = {}
    waiting = [scalar]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, Apply):
            waiting += reversed(part.arguments)
        elif isinstance(part, Load):
            yield part
            for index in reversed(part.indices):
                if not isinstance(index, (int, expr.Expr)):
                    waiting.append(index)
        elif isinstance(part, Select):
            waiting += (part.otherwise, part.then, part.condition)
        elif isinstance(part, Cast):
            waiting.append(part.value)


def distinct_loads(scalars: Iterable[Scalar]) -> list[Load]:
    """The loads of expressions that may share parts, each object once."""
    seen: dict[int, Scalar] = {}
    found: list[Load] = []
    waiting = list(scalars)
    while waiting:
        scalar = waiting.pop()
        if id(scalar) in seen:
            continue
        seen[id(scalar)] = scalar
        if isinstance(scalar, Apply):
            waiting += scalar.arguments
        elif isinstance(scalar, Load):
            found.append(scalar)
            for index in scalar.indices:
                if not isinstance(index, (int, expr.Expr)):
                    waiting.append(index)
        elif isinstance(scalar, Select):
            waiting += (scalar.condition, scalar.then, scalar.otherwise)
        elif isinstance(scalar, Cast):
            waiting.append(scalar.value)
    return found


Done: TypeAlias = "dict[int, Scalar]"
"""What parts of expressions became, by identity, so that what is one object before is one after: keep it only as long
as the expressions themselves."""


def map_loads(scalar: Scalar, function: Callable[[Load], Scalar], done: Done | None = None) -> Scalar:
    """The scalar with every load replaced, innermost first; expressions that share parts may share `done`.

    What no load is replaced in stays the same object.
    """
    done = {} if done is None else done
    found = done.get(id(scalar))
    if found is not None:
        return found
    if isinstance(scalar, Apply):
        arguments = [map_loads(argument, function, done) for argument in scalar.arguments]
        made = scalar if all(map(is_, arguments, scalar.arguments)) else Apply(scalar.op, tuple(arguments))
    elif isinstance(scalar, Load):
        made = function(_map_indices(scalar, function, done))
    elif isinstance(scalar, (Const, Index)):
        return scalar
    elif isinstance(scalar, Select):
        parts = [map_loads(part, function, done) for part in (scalar.condition, scalar.then, scalar.otherwise)]
        made = Select(*parts)
    else:
        made = Cast(map_loads(scalar.value, function, done), scalar.dtype, scalar.saturate)
    done[id(scalar)] = made
    return made


def _map_indices(load: Load, function: Callable[[Load], Scalar], done: Done) -> Load:
    for index in load.indices:
        if not isinstance(index, (int, expr.Expr)):
            break
    else:
        return load
    mapped = [i if isinstance(i, (int, expr.Expr)) else map_loads(i, function, done) for i in load.indices]
    return Load(load.source, tuple(mapped), load.dtype)


@dataclass(slots=True)
class Substituted:
    """What parts of expressions became as symbols were replaced. Few indices are different, of many loads."""

    scalars: Done = field(default_factory=dict[int, Scalar])
    indices: dict[expr.Expr, Dim] = field(default_factory=dict[expr.Expr, Dim])


def substitute_scalar(scalar: Scalar, bindings: dict[Sym, Dim], done: Substituted | None = None) -> Scalar:
    """The scalar with symbols of its indices replaced; expressions that share parts may share `done`.

    What mentions none of them stays the same object.
    """
    if not bindings:
        return scalar
    done = Substituted() if done is None else done
    found = done.scalars.get(id(scalar))
    if found is not None:
        return found
    if isinstance(scalar, Apply):
        arguments = [substitute_scalar(argument, bindings, done) for argument in scalar.arguments]
        made = scalar if all(map(is_, arguments, scalar.arguments)) else Apply(scalar.op, tuple(arguments))
    elif isinstance(scalar, Load):
        indices = [substitute_index(index, bindings, done) for index in scalar.indices]
        same = all(map(is_, indices, scalar.indices))
        made = scalar if same else Load(scalar.source, tuple(indices), scalar.dtype)
    elif isinstance(scalar, Const):
        return scalar
    elif isinstance(scalar, Index):
        made = Index(expr.substitute(scalar.value, bindings))
    elif isinstance(scalar, Select):
        parts = [substitute_scalar(part, bindings, done) for part in (scalar.condition, scalar.then, scalar.otherwise)]
        made = Select(*parts)
    else:
        made = Cast(substitute_scalar(scalar.value, bindings, done), scalar.dtype, scalar.saturate)
    done.scalars[id(scalar)] = made
    return made


def substitute_index(index: Dim | Scalar, bindings: dict[Sym, Dim], done: Substituted | None = None) -> Dim | Scalar:
    if isinstance(index, int):
        return index
    if not isinstance(index, expr.Expr):
        return substitute_scalar(index, bindings, done)
    if done is None:
        return expr.substitute(index, bindings)
    found = done.indices.get(index)
    if found is None:
        found = done.indices[index] = expr.substitute(index, bindings)
    return found


def free_symbols(kernel: Kernel) -> frozenset[Sym]:
    """Symbols that a kernel uses without running a loop over them: dimensions of the model."""
    bound: set[Sym] = set()
    used: set[Sym] = set()
    _collect_symbols(kernel.body, bound, used, {})
    for buffer in (*kernel.reads, *kernel.writes):
        for dim in buffer.shape:
            used |= expr.symbols(dim)
    return frozenset(used - bound)


def _collect_symbols(statement: Statement, bound: set[Sym], used: set[Sym], seen: dict[int, Scalar]) -> None:
    match statement:
        case For(sym, extent, _, body):
            bound.add(sym)
            used |= expr.symbols(extent)
            _collect_symbols(body, bound, used, seen)
        case Store(_, indices, value) | Accumulate(_, indices, _, value):
            for index in indices:
                used |= expr.symbols(index) if isinstance(index, (int, expr.Expr)) else scalar_symbols(index)
            _collect_scalar_symbols(value, used, seen)
        case Fetch(_, indices):
            for index in indices:
                used |= expr.symbols(index)
        case Guard(condition, body):
            used |= scalar_symbols(condition)
            _collect_symbols(body, bound, used, seen)
        case Allocate(_, body):
            _collect_symbols(body, bound, used, seen)
        case Block(statements):
            for inner in statements:
                _collect_symbols(inner, bound, used, seen)


def scalar_symbols(scalar: Scalar) -> frozenset[Sym]:
    """Every symbol that a scalar expression mentions."""
    used: set[Sym] = set()
    _collect_scalar_symbols(scalar, used, {})
    return frozenset(used)


def _collect_scalar_symbols(scalar: Scalar, used: set[Sym], seen: dict[int, Scalar]) -> None:
    """Those of expressions that may share parts: what is in `seen` has been looked at."""
    waiting = [scalar]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, Apply):
            waiting += part.arguments
        elif isinstance(part, Load):
            for index in part.indices:
                if isinstance(index, expr.Expr):
                    used |= expr.symbols(index)
                elif not isinstance(index, int):
                    waiting.append(index)
        elif isinstance(part, Index):
            used |= expr.symbols(part.value)
        elif isinstance(part, Select):
            waiting += (part.condition, part.then, part.otherwise)
        elif isinstance(part, Cast):
            waiting.append(part.value)


def substitute_statement(statement: Statement, bindings: dict[Sym, Dim], done: Substituted | None = None) -> Statement:
    """The statement with symbols replaced everywhere."""
    if not bindings:
        return statement
    done = Substituted() if done is None else done
    match statement:
        case For(sym, extent, kind, body):
            return For(sym, expr.substitute(extent, bindings), kind, substitute_statement(body, bindings, done))
        case Store(buffer, indices, value):
            plain = tuple(substitute_index(index, bindings) for index in indices)
            return Store(buffer, plain, substitute_scalar(value, bindings, done))
        case Accumulate(buffer, indices, reduction, value):
            places = tuple(expr.substitute(index, bindings) for index in indices)
            return Accumulate(buffer, places, reduction, substitute_scalar(value, bindings, done))
        case Fetch(_, indices):
            return replace(statement, indices=tuple(expr.substitute(index, bindings) for index in indices))
        case Allocate(buffer, body):
            return Allocate(buffer, substitute_statement(body, bindings, done))
        case Block(statements):
            return Block(tuple(substitute_statement(inner, bindings, done) for inner in statements))
        case Guard(condition, body):
            asked = substitute_scalar(condition, bindings, done)
            return Guard(asked, substitute_statement(body, bindings, done))


def identity(reduction: str, dtype: DType) -> Const:
    """The value that a reduction starts from, in the compute type."""
    compute = dtype.compute
    if reduction in ("sum", "prod"):
        return Const(0 if reduction == "sum" else 1, compute)
    lowest = reduction == "max"
    if compute is BOOL:
        return Const(not lowest, compute)
    if compute.is_float:
        return Const(float("-inf") if lowest else float("inf"), compute)
    signed = compute.kind == "int"
    low, high = (-(1 << (compute.bits - 1)), (1 << (compute.bits - 1)) - 1) if signed else (0, (1 << compute.bits) - 1)
    return Const(low if lowest else high, compute)
