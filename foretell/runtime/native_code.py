"""Object code in memory, ready to be called."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import llvmlite.binding as llvm

STEP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""A step: (table of addresses, values of symbols, thread pool)."""
_CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def _context() -> llvm.ContextRef:
    """One context that outlives every engine: the garbage collector frees the members of a cycle in any order."""
    return llvm.create_context()


class NativeCode:
    """Linked machine code; its functions stay valid as long as this object lives."""

    def __init__(self, *objects: bytes) -> None:
        _initialise()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", _context()), machine)
        for code in objects:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of an exported function."""
        found = self._engine.get_function_address(name)
        assert found, f"{name} is not in the object code"
        return found

    def steps(self, count: int) -> tuple[Any, ...]:
        """The functions of a program's native steps."""
        return tuple(STEP(self.address(f"foretell_step_{number}")) for number in range(count))


class ThreadPools:
    """The pools of this process: one per number of threads, shared by all models.

    The first pool's code serves every model: `foretell_parallel_for` is found by name from then on.
    """

    def __init__(self) -> None:
        self._code: NativeCode | None = None
        self._pools: dict[int, int] = {}
        self._lock = threading.Lock()

    def load(self, object_code: bytes) -> None:
        """Make the parallel loop known to programs that are loaded later."""
        with self._lock:
            if self._code is None:
                code = NativeCode(object_code)
                llvm.add_symbol("foretell_parallel_for", code.address("foretell_parallel_for"))
                self._code = code

    def get(self, threads: int) -> int:
        """The address of the pool of so many threads; 0 for one, which needs none."""
        assert self._code is not None, "load the pool's code first"
        with self._lock:
            if threads not in self._pools:
                create = _CREATE(self._code.address("foretell_pool_create"))
                self._pools[threads] = create(threads) or 0
            return self._pools[threads]


POOLS = ThreadPools()
