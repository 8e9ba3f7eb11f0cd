"""From an LLVM module to machine code: verify, optimise, emit; or find it in the cache."""

from __future__ import annotations

from functools import cache
from importlib import metadata

import llvmlite.binding as llvm
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


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def compile_module(module: ir.Module, target: Target) -> bytes:
    """Relocatable object code, the same for the same text, target and version whether it was cached or not."""
    _initialise()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.llvm_features, **MACHINE
    )
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    text = str(module)
    settings = (target.cpu, target.llvm_features, repr((MACHINE, SPEED_LEVEL, TUNING)))
    key = cache_key(text, *settings, VERSION, metadata.version("llvmlite"))
    found = try_cached(key)
    if found is None:
        found = _compile(text, machine)
        keep(key, found)
    return found


def _compile(text: str, machine: llvm.TargetMachine) -> bytes:
    parsed = llvm.parse_assembly(text, llvm.create_context())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    for name, value in TUNING.items():
        setattr(options, name, value)
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(parsed, builder)
    return machine.emit_object(parsed)
