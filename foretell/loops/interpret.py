"""Executable semantics of the loop IR: plain Python loops over numpy arrays, for small sizes.

What lowering made is checked with this, without LLVM. It is unkind on purpose: parallel loops run backwards, fresh
memory holds garbage, and an index outside its buffer is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.graph.interpret import FUNCTIONS, convert, evaluate_dim
from foretell.graph.nodes import Array
from foretell.ir import expr
from foretell.ir.expr import Dim, Op, Sym
from foretell.ir.tensor_expr import REDUCTION_OPERATIONS, Apply, Buffer, Cast, Const, Index, Load, Scalar, Select
from foretell.loops.nodes import Accumulate, Allocate, Block, Fetch, For, Guard, Kernel, Statement, Store


def interpret(kernels: Sequence[Kernel], arrays: Mapping[str, Array], symbols: Mapping[Sym, int]) -> dict[str, Array]:
    """All arrays by buffer name after running the kernels in order, those given and those they write."""
    memory: dict[str, Array] = dict(arrays)
    with np.errstate(all="ignore"):
        for kernel in kernels:
            for buffer in kernel.writes:
                memory.setdefault(buffer.name, _fresh(buffer, symbols))
            parameters = {b: _seen_as(memory[b.name], b, symbols) for b in (*kernel.reads, *kernel.writes)}
            _run(kernel.body, _State(parameters, dict(symbols)))
    return memory


@dataclass(slots=True)
class _State:
    """Buffers and symbols while a kernel runs."""

    arrays: dict[Buffer, Array]
    symbols: dict[Sym, int]


def _fresh(buffer: Buffer, symbols: Mapping[Sym, int]) -> Array:
    """Memory full of ones: NaN in floats, -1 or the largest number in integers."""
    array = np.empty([evaluate_dim(dim, symbols) for dim in buffer.shape], buffer.dtype.numpy)
    raw = array.reshape(-1).view(np.uint8)
    raw[...] = 1 if array.dtype == np.bool_ else 0xFF
    return array


def _seen_as(array: Array, buffer: Buffer, symbols: Mapping[Sym, int]) -> Array:
    """The same memory with the dimensions that a kernel sees in it."""
    return array.reshape([evaluate_dim(dim, symbols) for dim in buffer.shape])


def _run(statement: Statement, state: _State) -> None:
    match statement:
        case Block(statements):
            for inner in statements:
                _run(inner, state)
        case For(sym, extent, kind, body):
            points = range(_number(extent, state.symbols))
            for state.symbols[sym] in reversed(points) if kind == "parallel" else points:
                _run(body, state)
        case Store(buffer, indices, value):
            stored = convert(_value(value, state), buffer.dtype, saturate=False)
            state.arrays[buffer][_place(buffer, indices, state)] = stored
        case Accumulate(buffer, indices, reduction, value):
            place, added = _place(buffer, indices, state), _value(value, state)
            array = state.arrays[buffer]
            array[place] = FUNCTIONS[REDUCTION_OPERATIONS[reduction]](np.asarray(array[place]), added)
        case Fetch():
            return
        case Guard(condition, body):
            if _value(condition, state):
                _run(body, state)
        case Allocate(buffer, body):
            state.arrays[buffer] = _fresh(buffer, state.symbols)
            _run(body, state)


def _value(scalar: Scalar, state: _State) -> Array:
    """The scalar in its compute type, as an array of rank 0."""
    match scalar:
        case Const(value, dtype):
            return np.asarray(value, dtype.compute.numpy)
        case Index(value):
            return np.asarray(_number(value, state.symbols), np.int64)
        case Load(source, indices, dtype):
            assert isinstance(source, Buffer)
            loaded = state.arrays[source][_place(source, indices, state)]
            return np.asarray(loaded).astype(dtype.compute.numpy)
        case Cast(value, dtype, saturate):
            return convert(_value(value, state), dtype, saturate).astype(dtype.compute.numpy)
        case Select(condition, then, otherwise):
            return _value(then if _value(condition, state) else otherwise, state)
        case Apply(op, arguments):
            return np.asarray(FUNCTIONS[op](*(_value(argument, state) for argument in arguments)))


def _place(buffer: Buffer, indices: tuple[Dim | Scalar, ...], state: _State) -> tuple[int, ...]:
    shape = state.arrays[buffer].shape
    return tuple(_index(buffer, index, extent, state) for index, extent in zip(indices, shape, strict=True))


def _index(buffer: Buffer, index: Dim | Scalar, extent: int, state: _State) -> int:
    """One index. What comes from data is kept inside the buffer; what we computed must be inside."""
    if not isinstance(index, (int, expr.Expr)):
        return min(max(int(_value(index, state)), 0), extent - 1)
    number = _number(index, state.symbols)
    assert 0 <= number < extent, f"index {index} of {buffer} is {number}, outside {extent}"
    return number


def _number(value: Dim, symbols: Mapping[Sym, int]) -> int:
    if isinstance(value, int):
        return value
    total = 0
    for monomial, coefficient in expr.terms_of(value):
        for atom in monomial:
            coefficient *= symbols[atom] if isinstance(atom, Sym) else _operation(atom, symbols)
        total += coefficient
    return total


def _operation(atom: Op, symbols: Mapping[Sym, int]) -> int:
    return _OPERATIONS[atom.kind](_number(atom.left, symbols), _number(atom.right, symbols))


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
    "min": min,
    "max": max,
}
