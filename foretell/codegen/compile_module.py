"""From an LLVM module to machine code: verify, optimise, emit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
import llvmlite.ir as ir


@dataclass(frozen=True, slots=True)
class MachineTarget:
    """What LLVM generates code for."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int


@cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def target_machine(target: MachineTarget) -> llvm.TargetMachine:
    _initialise()
    machine = llvm.Target.from_triple(target.triple)
    return machine.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )


def native_machine() -> MachineTarget:
    _initialise()
    features = llvm.get_host_cpu_features()
    wide = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return MachineTarget(llvm.get_default_triple(), llvm.get_host_cpu_name(), features.flatten(), wide)


def compile_module(module: ir.Module, target: MachineTarget) -> bytes:
    """Relocatable object code. Our loops are vectors already, so LLVM's own vectorisers stay off."""
    machine = target_machine(target)
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
