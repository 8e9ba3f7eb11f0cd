"""From an LLVM module to machine code: verify, optimise, emit; or find it in the cache."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from importlib import metadata

import llvmlite.binding as llvm
import llvmlite.binding.ffi as ffi
import llvmlite.ir as ir

from foretell.codegen.object_cache import cache_key, keep, try_cached
from foretell.support.version import VERSION
from foretell.target.resolve import Target

MACHINE = {"opt": 3, "reloc": "pic", "codemodel": "default"}
SPEED_LEVEL = 2
TUNING = {
    "loop_vectorization": False,
    "slp_vectorization": False,
    "loop_interleaving": False,
    "loop_unrolling": False,
}
"""Our loops are vectors already, so LLVM's own vectorisers stay off."""
LONG_CALLS = ("LLVMPY_RunNewModulePassManager", "LLVMPY_TargetMachineEmitToMemory")
"""Nearly all of LLVM's time. Each touches nothing but its module and its machine, which only one thread knows."""


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    _let_threads_in()


def _let_threads_in() -> None:
    """llvmlite has one lock for all calls of LLVM, which itself needs none between modules of different contexts; a
    llvmlite that keeps its lock elsewhere is only slower."""
    for name in LONG_CALLS:
        call = getattr(ffi.lib, name)
        if hasattr(call, "_lock"):
            call._lock = nullcontext()


def compile_module(module: ir.Module, target: Target) -> bytes:
    """Relocatable object code, the same for the same text, target and version whether it was cached or not."""
    return compile_text(module_text(module, target), target)


def compile_text(text: str, target: Target) -> bytes:
    """The same for a module's text. Python runs meanwhile, in other threads, and so does LLVM on other modules."""
    machine = _machine(target)
    settings = (target.cpu, target.llvm_features, repr((MACHINE, SPEED_LEVEL, TUNING)))
    key = cache_key(text, *settings, VERSION, metadata.version("llvmlite"))
    found = try_cached(key)
    if found is None:
        found = machine.emit_object(_optimised(text, machine))
        keep(key, found)
    return found


def assemble_module(module: ir.Module, target: Target) -> str:
    """The same code as LLVM prints it, with its comments, for reading; AT&T syntax where there are two."""
    machine = _machine(target)
    machine.set_asm_verbosity(True)
    return machine.emit_assembly(_optimised(module_text(module, target), machine))


def _machine(target: Target) -> llvm.TargetMachine:
    _initialise()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.llvm_features, **MACHINE
    )


def module_text(module: ir.Module, target: Target) -> str:
    module.triple = target.triple
    module.data_layout = _data_layout(target)
    return str(module)


@cache
def _data_layout(target: Target) -> str:
    """Asked for once: whoever calls LLVM waits for those who called it before."""
    return str(_machine(target).target_data)


def _optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    parsed = llvm.parse_assembly(text, llvm.create_context())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    for name, value in TUNING.items():
        setattr(options, name, value)
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(parsed, builder)
    return parsed
