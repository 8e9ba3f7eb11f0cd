"""Object code in memory, ready to be called."""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.binding as llvm

STEP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""A step: (table of addresses, values of symbols, thread pool)."""


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


class NativeCode:
    """Linked machine code; its functions stay valid as long as this object lives."""

    def __init__(self, object_code: bytes, steps: int) -> None:
        _initialise()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", llvm.create_context()), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
        self._engine.finalize_object()
        self.steps = tuple(STEP(self._address(f"foretell_step_{number}")) for number in range(steps))

    def _address(self, name: str) -> int:
        address = self._engine.get_function_address(name)
        assert address, f"{name} is not in the object code"
        return address

    def address(self, name: str) -> int:
        """The address of an exported function."""
        return self._address(name)
