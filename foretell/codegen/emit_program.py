"""All kernels of a program as modules, and in the last of them a function per native step.

Kernels that do the same share a body, and modules of bodies are of about one size, so that LLVM can work on some while
the next kernels are lowered and emitted. The thread pool is a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import count

import llvmlite.ir as ir

from foretell.codegen.compile_module import compile_module, compile_text, module_text
from foretell.codegen.emit_kernel import KERNEL, Layout, Registers, declare_body, emit_body, emit_kernel, own_symbols
from foretell.codegen.thread_pool import emit_thread_pool
from foretell.codegen.types import I64, POINTER
from foretell.ir.expr import Sym
from foretell.loops.canonical import canonical
from foretell.loops.nodes import Kernel
from foretell.support.collect_later import collect_now
from foretell.support.stage_times import StageTimes
from foretell.target.resolve import Target
from foretell.target.threads import default_threads

MODULE_TEXT = 1 << 13
"""Characters of kernels, as they are printed, that fill a module: LLVM needs some tenths of a second for it."""
PARALLEL_FOR = ir.FunctionType(ir.VoidType(), [POINTER] * 3 + [I64])


def emit_program(steps: Sequence[Sequence[Kernel]], layout: Layout, target: Target) -> tuple[bytes, ...]:
    """Object code with `foretell_step_0`, `foretell_step_1`, ... (table, dims, pool); needs `foretell_parallel_for`."""
    with ProgramEmitter(target) as emitter:
        for step in steps:
            for kernel in step:
                emitter.add(kernel)
        return emitter.finish(steps, layout)()


@dataclass(slots=True)
class _Body:
    """What kernels do that do the same to other buffers."""

    name: str
    kernel: Kernel
    """With names that all of them have in common (`loops/canonical.py`)."""
    symbols: tuple[Sym, ...]
    size: int
    """Characters, as it is printed."""


class ProgramEmitter:
    """Kernels become machine code as they are added, while others are still being lowered.

    with ProgramEmitter(target) as emitter:
        emitter.add(kernel)                      # for each of them, in any order
        code = emitter.finish(steps, layout)     # LLVM may still be at work
        ...
        objects = code()
    """

    def __init__(self, target: Target, times: StageTimes | None = None) -> None:
        self._target = target
        self._times = StageTimes() if times is None else times
        self._registers = Registers.of(target.spec)
        self._llvm = ThreadPoolExecutor(max(1, default_threads() - 1))  # Whoever adds kernels has a core too.
        self._bodies: dict[str, _Body] = {}
        """By what they do, as it is printed."""
        self._known: dict[int, tuple[Kernel, _Body]] = {}
        """By the identity of kernels, which are kept lest another one has it."""
        self._next: list[_Body] = []
        self._modules: list[tuple[str, Future[bytes]]] = []
        """Texts, and the code that comes of them."""

    def __enter__(self) -> ProgramEmitter:
        self._llvm.submit(emit_pool, self._target)  # Whoever asks for it later finds it; LLVM has nothing to do yet.
        return self

    def __exit__(self, *_: object) -> None:
        self._llvm.shutdown(wait=False, cancel_futures=True)

    def add(self, kernel: Kernel) -> None:
        """A kernel in its final form; a module is begun where the one before is full."""
        with self._times.measure("emit"):
            self._body(kernel)
            if sum(body.size for body in self._next) >= MODULE_TEXT:
                module = _module(self._target)
                self._emit_bodies(module)
                self._compile(module)

    def finish(self, steps: Sequence[Sequence[Kernel]], layout: Layout) -> Callable[[], tuple[bytes, ...]]:
        """All kernels under names of their own, and a function for each step; call the result to wait for the code."""
        with self._times.measure("emit"):
            module = _module(self._target)
            parallel_for = ir.Function(module, PARALLEL_FOR, "foretell_parallel_for")
            bodies = {id(kernel): self._body(kernel) for step in steps for kernel in step}
            functions = self._emit_bodies(module)
            numbers = count()
            for number, step in enumerate(steps):
                function = ir.Function(module, KERNEL, f"foretell_step_{number}")
                builder = ir.IRBuilder(function.append_basic_block("entry"))
                for kernel in step:
                    body = bodies[id(kernel)]
                    if body.name not in functions:
                        functions[body.name] = declare_body(module, body.name, body.kernel, body.symbols)
                    name = f"foretell_kernel_{next(numbers)}"
                    own = functions[body.name]
                    entry = emit_kernel(module, name, kernel, body.symbols, layout, own, parallel_for)
                    builder.call(entry, function.args)
                builder.ret_void()
            self._compile(module)
        return self._code

    def _body(self, kernel: Kernel) -> _Body:
        if id(kernel) not in self._known:
            shared = canonical(kernel)
            text = str(shared)
            if text not in self._bodies:
                name = f"foretell_body_{len(self._bodies)}"
                self._bodies[text] = _Body(name, shared, own_symbols(shared), len(text))
                self._next.append(self._bodies[text])
            self._known[id(kernel)] = kernel, self._bodies[text]
        return self._known[id(kernel)][1]

    def _emit_bodies(self, module: ir.Module) -> dict[str, ir.Function]:
        """Add those that no module has yet."""
        bodies, self._next = self._next, []
        return {b.name: emit_body(module, b.name, b.kernel, b.symbols, self._registers) for b in bodies}

    def _compile(self, module: ir.Module) -> None:
        if self._modules:  # The module before, which refers to itself, while LLVM works on it.
            collect_now()
        text = module_text(module, self._target)
        self._modules.append((text, self._llvm.submit(compile_text, text, self._target)))

    def _code(self) -> tuple[bytes, ...]:
        """Who waits takes the last module that nobody works on."""
        with self._times.measure("llvm"):
            taken = {
                text: compile_text(text, self._target) for text, waiting in reversed(self._modules) if waiting.cancel()
            }
            return tuple(taken[text] if text in taken else waiting.result() for text, waiting in self._modules)


def emit_module(kernel: Kernel, layout: Layout, target: Target, *, mark_loops: bool = False) -> ir.Module:
    """One kernel by itself, for reading; its body is called like it.

    With `mark_loops` its assembly tells which loop of a kernel each branch is of (`codegen/mark_loops.py`).
    """
    module = _module(target)
    parallel_for = ir.Function(module, PARALLEL_FOR, "foretell_parallel_for")
    shared, symbols = replace(canonical(kernel), name=kernel.name), own_symbols(kernel)
    registers = Registers.of(target.spec)
    body = emit_body(module, f"{kernel.name}.body", shared, symbols, registers, mark_loops=mark_loops)
    emit_kernel(module, "foretell_kernel_0", kernel, symbols, layout, body, parallel_for)
    return module


@cache
def emit_pool(target: Target) -> bytes:
    """Object code of the thread pool: the same for every program of a target."""
    module = _module(target)
    emit_thread_pool(module)
    return compile_module(module, target)


def _module(target: Target) -> ir.Module:
    module = ir.Module("foretell")
    module.triple = target.triple
    return module
