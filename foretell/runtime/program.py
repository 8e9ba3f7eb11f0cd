"""What the executor needs to know of a compiled model: tensors, symbols and steps, all plain data."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import TensorType
from foretell.target.resolve import Target

ROLES = ("input", "constant", "output", "temporary")


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor, and its entry of the address table. `role` is input, constant, output or temporary."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    role: str

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Step:
    """Either a native function or, if `fallback` is a number, a Python callable; reads and writes are slot numbers.

    `kernels` lists what each kernel of a native step writes and reads, in order: liveness for the arena.
    """

    native: int | None
    fallback: int | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    kernels: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    operator: str = ""
    """What a fallback runs, as ONNX calls it."""


@dataclass(frozen=True, slots=True)
class Check:
    """What kernels rely on where shapes are symbolic: that `value`, an expression over symbols, is not negative."""

    value: Dim
    where: str
    """The node or kernel that asks for it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled graph without its code and constants."""

    name: str
    slots: tuple[Slot, ...]
    symbols: tuple[Sym, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_names: tuple[str, ...]
    checks: tuple[Check, ...] = ()

    @property
    def is_native(self) -> bool:
        """Whether every step is machine code."""
        return all(step.native is not None for step in self.steps)

    @property
    def kernel_count(self) -> int:
        return sum(len(step.kernels) for step in self.steps)

    @property
    def fallback_operators(self) -> tuple[str, ...]:
        """Operators that run in Python, each once."""
        return tuple(sorted({step.operator for step in self.steps if step.native is None}))


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code of a program and of the thread pool it runs on, as relocatable objects."""

    target: Target
    kernels: tuple[bytes, ...]
    """They call each other's functions."""
    pool: bytes
