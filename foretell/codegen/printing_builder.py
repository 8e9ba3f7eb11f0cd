"""A builder that prints the instructions of kernels as it makes them.

llvmlite keeps an instruction as an object that knows its operands, and prints all of them at the end. A kernel is tens
of thousands of instructions of few kinds. These are text from the start, and what remains of one is the name of its
result; places in memory, which loops that are written out ask for again and again, are computed once in a block. Other
kinds are llvmlite's own. Nothing is checked here: LLVM does, as it reads the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ir


class Result(ir.Value):
    """What an instruction computes, by name."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, type: ir.Type) -> None:
        self.name = name
        self.type = type

    def get_reference(self) -> str:
        return self.name


def _binary(operation: str) -> Callable[..., ir.Value]:
    """An instruction of two operands of one type; `name` is what llvmlite's `neg` passes, and empty."""

    def emit(
        self: PrintingBuilder, left: ir.Value, right: ir.Value, name: str = "", flags: Sequence[str] = ()
    ) -> ir.Value:
        words = " ".join((operation, *flags)) if flags else operation
        return self.once(left.type, f"{words} {left.type} {left.get_reference()}, {right.get_reference()}")

    return emit


class PrintingBuilder(ir.IRBuilder):
    """The only builder of its function: names of results are numbered here, and are none that llvmlite makes."""

    def __init__(self, block: ir.Block) -> None:
        super().__init__(block)
        self.results = 0
        self.known: dict[tuple[ir.Block, str], ir.Value] = {}

    def once(self, type: ir.Type, text: str) -> ir.Value:
        """The result of an instruction that has no effect besides: made once in a block."""
        found = self.known.get((self._block, text))
        if found is None:
            found = self.known[self._block, text] = self.result(type, text)
        return found

    def result(self, type: ir.Type, text: str) -> ir.Value:
        """Add an instruction that has a result."""
        self.results += 1
        name = f"%v{self.results}"
        self._insert(f"{name} = {text}")
        return Result(name, type)

    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    fadd, fsub, fmul = _binary("fadd"), _binary("fsub"), _binary("fmul")

    def load(self, address: ir.Value, *, typ: ir.Type, align: int | None = None) -> ir.Value:
        return self.result(typ, f"load {typ}, ptr {address.get_reference()}{_aligned(align)}")

    def store(self, value: ir.Value, address: ir.Value, align: int | None = None) -> None:
        self._insert(f"store {_typed(value)}, ptr {address.get_reference()}{_aligned(align)}")

    def stream(self, value: ir.Value, address: ir.Value, align: int) -> None:
        """A store that goes past the caches."""
        once = self.module.add_metadata([ir.Constant(ir.IntType(32), 1)]).get_reference()
        self._insert(f"store {_typed(value)}, ptr {address.get_reference()}{_aligned(align)}, !nontemporal {once}")

    def gep(
        self, address: ir.Value, indices: Sequence[ir.Value], *, source_etype: ir.Type, inbounds: bool = False
    ) -> ir.Value:
        words = "getelementptr inbounds" if inbounds else "getelementptr"
        places = ", ".join([_typed(index) for index in indices])
        return self.once(address.type, f"{words} {source_etype}, ptr {address.get_reference()}, {places}")

    def call(self, function: ir.Function, arguments: Sequence[ir.Value]) -> ir.Value:
        """What a function computes that returns nothing has no name."""
        type = function.ftype.return_type
        text = f"call {type} {function.get_reference()}({', '.join([_typed(argument) for argument in arguments])})"
        if not isinstance(type, ir.VoidType):
            return self.result(type, text)
        self._insert(text)
        return Result("", type)

    def select(self, condition: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
        return self.result(then.type, f"select {_typed(condition)}, {_typed(then)}, {_typed(otherwise)}")

    def insert_element(self, vector: ir.Value, value: ir.Value, lane: ir.Value) -> ir.Value:
        return self.result(vector.type, f"insertelement {_typed(vector)}, {_typed(value)}, {_typed(lane)}")

    def shuffle_vector(self, left: ir.Value, right: ir.Value, order: ir.Constant) -> ir.Value:
        type = ir.VectorType(left.type.element, order.type.count)
        return self.result(type, f"shufflevector {_typed(left)}, {_typed(right)}, {_typed(order)}")


def _typed(value: ir.Value) -> str:
    return f"{value.type} {value.get_reference()}"


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"
