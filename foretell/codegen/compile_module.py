"""From an LLVM module to machine code: verify, optimise, emit."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm
import llvmlite.ir as ir

from foretell.target.resolve import Target


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def compile_module(module: ir.Module, target: Target) -> bytes:
    """Relocatable object code. Our loops are vectors already, so LLVM's own vectorisers stay off."""
    _initialise()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.llvm_features, opt=3, reloc="pic", codemodel="default"
    )
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    parsed = llvm.parse_assembly(str(module), llvm.create_context())
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(parsed, builder)
    return machine.emit_object(parsed)
