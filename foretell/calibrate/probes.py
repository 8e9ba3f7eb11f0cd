"""Small loops that keep one part of a core busy, as LLVM IR: the same for every architecture.

void (destination, source, steps, passes): so many passes over the same memory, each of so many steps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import llvmlite.ir as ir

from foretell.codegen.compile_module import compile_module
from foretell.codegen.control_flow import break_if, loop, variable
from foretell.codegen.types import FLOAT, I32, I64, POINTER
from foretell.runtime.native_code import NativeCode
from foretell.target.resolve import Target

PROBE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
STREAMS = 16
"""Vectors that are read or written in one step."""
CYCLES = 64
"""That one step of `cycles` takes: as many integer operations, each of which waits for the one before."""
CHAINED_FMAS = 16
"""In one step of `fma_latency`."""
UNROLL = 4
SPARE_REGISTERS = 4
REGISTER_CONSTRAINT = {"x86_64": "v", "aarch64": "w", "riscv64": "f"}


def fma_chains(target: Target) -> int:
    """Independent multiply-adds of `fma`: more than ports times latency anywhere, and few enough for the registers."""
    return target.spec.vector_registers - SPARE_REGISTERS


def fmas_per_step(target: Target) -> int:
    return UNROLL * fma_chains(target)


def vector_bytes(target: Target) -> int:
    """Of what the probes call a vector: a float where the CPU has none."""
    return max(4, target.spec.vector_bytes)


class Probes:
    """The loops, compiled for this machine, by name: `probes.run("read", destination, source, steps, passes)`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._code = NativeCode(compile_module(emit_probes(target), target))

    def run(self, name: str, destination: int, source: int, steps: int, passes: int = 1) -> None:
        """`destination` and `source` are addresses; other Python threads run meanwhile."""
        PROBE(self._code.address(name))(destination, source, steps, passes)


@cache
def host_probes(target: Target) -> Probes:
    return Probes(target)


def emit_probes(target: Target) -> ir.Module:
    """cycles, fma, fma_latency, read, write, copy, broadcast."""
    module = ir.Module("probes")
    lanes = vector_bytes(target) // 4
    vector = ir.VectorType(FLOAT, lanes) if lanes > 1 else FLOAT
    emitter = _Emitter(module, vector, lanes, REGISTER_CONSTRAINT[target.architecture])
    emitter.emit_cycles()
    emitter.emit_fma(fma_chains(target))
    emitter.emit_fma_latency()
    emitter.emit_memory("read", lambda builder, _, source: emitter.keep(builder, emitter.load(builder, source)))
    emitter.emit_memory("copy", lambda builder, to, source: emitter.store(builder, emitter.load(builder, source), to))
    emitter.emit_write()
    emitter.emit_broadcast()
    return module


@dataclass(frozen=True, slots=True)
class _Emitter:
    module: ir.Module
    vector: ir.Type
    lanes: int
    constraint: str

    def emit_cycles(self) -> None:
        """A chain of integer operations of one cycle each, beside multiply-adds that slow down a core that must."""
        builder, (destination, source, steps, passes) = self._begin("cycles")
        factor, term = (self.load(builder, source) for _ in range(2))
        added, flipped = (builder.load(source, typ=I64) for _ in range(2))
        number = variable(builder, added)
        chains = self._chains(builder, source, 8)
        with _repeat(builder, passes), _repeat(builder, steps):
            value = builder.load(number, typ=I64)
            for _ in range(CYCLES // 2):
                value = builder.xor(builder.add(value, added), flipped)
            builder.store(value, number)
            self._advance(builder, chains, lambda chain: self.multiply_add(builder, chain, factor, term))
        builder.store(builder.load(number, typ=I64), destination, align=4)
        self._finish(builder, chains, builder.gep(destination, [I64(8)], source_etype=FLOAT))

    def emit_fma(self, count: int) -> None:
        """x := x * factor + term in independent chains; without such an instruction, a multiply and an add."""
        builder, (destination, source, steps, passes) = self._begin("fma")
        factor, term = (self.load(builder, self._element(builder, source, index)) for index in range(2))
        chains = self._chains(builder, source, count)
        with _repeat(builder, passes), _repeat(builder, steps):
            self._advance(builder, chains, lambda chain: self.multiply_add(builder, chain, factor, term))
        self._finish(builder, chains, destination)

    def emit_fma_latency(self) -> None:
        """x := factor * factor + x in one chain."""
        builder, (destination, source, steps, passes) = self._begin("fma_latency")
        first, second = (self.load(builder, self._element(builder, source, index)) for index in range(2))
        chains = self._chains(builder, source, 1)
        with _repeat(builder, passes), _repeat(builder, steps):
            for _ in range(CHAINED_FMAS // UNROLL):
                self._advance(builder, chains, lambda chain: self.multiply_add(builder, first, second, chain))
        self._finish(builder, chains, destination)

    def emit_memory(self, name: str, body: Callable[[ir.IRBuilder, ir.Value, ir.Value], None]) -> None:
        """`body` for each vector of the destination and of the source."""
        builder, (destination, source, steps, passes) = self._begin(name)
        with _repeat(builder, passes), _repeat(builder, steps) as step:
            for stream in range(STREAMS):
                index = builder.add(builder.mul(step, I64(STREAMS)), I64(stream))
                places = (builder.gep(base, [index], source_etype=self.vector) for base in (destination, source))
                body(builder, *places)
        builder.ret_void()

    def emit_write(self) -> None:
        """The first vector of the source, all over the destination."""
        builder, (destination, source, steps, passes) = self._begin("write")
        value = self.load(builder, source)
        with _repeat(builder, passes), _repeat(builder, steps) as step:
            for stream in range(STREAMS):
                index = builder.add(builder.mul(step, I64(STREAMS)), I64(stream))
                self.store(builder, value, builder.gep(destination, [index], source_etype=self.vector))
        builder.ret_void()

    def emit_broadcast(self) -> None:
        """Each float of the source, in all lanes of a vector."""
        builder, (_, source, steps, passes) = self._begin("broadcast")
        with _repeat(builder, passes), _repeat(builder, steps) as step:
            for stream in range(STREAMS):
                index = builder.add(builder.mul(step, I64(STREAMS)), I64(stream))
                number = builder.load(builder.gep(source, [index], source_etype=FLOAT), typ=FLOAT)
                self.keep(builder, self._splat(builder, number))
        builder.ret_void()

    def load(self, builder: ir.IRBuilder, place: ir.Value) -> ir.Value:
        return builder.load(place, align=4, typ=self.vector)

    def store(self, builder: ir.IRBuilder, value: ir.Value, place: ir.Value) -> None:
        builder.store(value, place, align=4)

    def keep(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        """Need a value in a register, with no instruction that uses it."""
        type = ir.FunctionType(ir.VoidType(), [self.vector])
        builder.asm(type, "", self.constraint, [value], side_effect=True)

    def multiply_add(self, builder: ir.IRBuilder, *operands: ir.Value) -> ir.Value:
        name = f"llvm.fmuladd.v{self.lanes}f32" if self.lanes > 1 else "llvm.fmuladd.f32"
        type = ir.FunctionType(self.vector, [self.vector] * 3)
        return builder.call(self.module.globals.get(name) or ir.Function(self.module, type, name), operands)

    def _splat(self, builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
        if self.lanes == 1:
            return number
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = builder.insert_element(undefined, number, I32(0))
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(first, undefined, zeros)

    def _begin(self, name: str) -> tuple[ir.IRBuilder, tuple[ir.Value, ...]]:
        type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I64])
        function = ir.Function(self.module, type, name)
        return ir.IRBuilder(function.append_basic_block("entry")), function.args

    def _element(self, builder: ir.IRBuilder, base: ir.Value, index: int) -> ir.Value:
        return builder.gep(base, [I64(index)], source_etype=self.vector)

    def _chains(self, builder: ir.IRBuilder, source: ir.Value, count: int) -> list[ir.Value]:
        """Variables whose values LLVM cannot know: vectors of the source, after the first two."""
        return [
            variable(builder, self.load(builder, self._element(builder, source, 2 + index))) for index in range(count)
        ]

    def _advance(self, builder: ir.IRBuilder, chains: list[ir.Value], step: Callable[[ir.Value], ir.Value]) -> None:
        values = [builder.load(chain, typ=self.vector) for chain in chains]
        for _ in range(UNROLL):
            values = [step(value) for value in values]
        for chain, value in zip(chains, values, strict=True):
            builder.store(value, chain)

    def _finish(self, builder: ir.IRBuilder, chains: list[ir.Value], destination: ir.Value) -> None:
        """The sum of the chains, so that each of them is needed."""
        total = builder.load(chains[0], typ=self.vector)
        for chain in chains[1:]:
            total = builder.fadd(total, builder.load(chain, typ=self.vector))
        self.store(builder, total, destination)
        builder.ret_void()


@contextmanager
def _repeat(builder: ir.IRBuilder, count: ir.Value) -> Iterator[ir.Value]:
    """Repeat what is emitted inside `count` times, and give the number of the turn."""
    index = variable(builder, I64(0))
    with loop(builder) as done:
        turn = builder.load(index, typ=I64)
        break_if(builder, builder.icmp_signed(">=", turn, count), done)
        builder.store(builder.add(turn, I64(1)), index)
        yield turn
