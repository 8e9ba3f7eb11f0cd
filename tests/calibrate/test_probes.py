"""The loops that measure the machine compute what they should."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from foretell.calibrate.barrier import Barrier
from foretell.calibrate.probes import (
    CHAINED_FMAS,
    CYCLES,
    STREAMS,
    UNROLL,
    emit_probes,
    fma_chains,
    host_probes,
    vector_bytes,
)  # fmt: skip
from foretell.codegen.compile_module import compile_module
from foretell.target.read_spec import cpu_names
from foretell.target.resolve import resolve_target

TARGET = resolve_target("native")
LANES = vector_bytes(TARGET) // 4


def run(name: str, source: np.ndarray, steps: int, passes: int = 1, size: int = 64) -> np.ndarray:
    destination = np.zeros(size, np.float32)
    host_probes(TARGET).run(name, destination.ctypes.data, source.ctypes.data, steps, passes)
    return destination


def test_memory_is_copied_and_filled() -> None:
    source = np.arange(3 * STREAMS * LANES, dtype=np.float32)
    np.testing.assert_array_equal(run("copy", source, 3, 2, source.size), source)
    filled = run("write", source, 3, 2, source.size)
    np.testing.assert_array_equal(filled.reshape(-1, LANES), np.tile(source[:LANES], (3 * STREAMS, 1)))
    for name in ("read", "broadcast"):
        np.testing.assert_array_equal(run(name, source, 3), 0)


@pytest.mark.parametrize(("steps", "passes"), [(0, 3), (1, 1), (3, 2)])
def test_multiply_adds_go_on_as_long_as_asked(steps: int, passes: int) -> None:
    source = np.ones((64, LANES), np.float32)
    source[1] = 2
    chains, count = fma_chains(TARGET), steps * passes
    np.testing.assert_array_equal(run("fma", source, steps, passes)[:LANES], chains * (1 + 2 * UNROLL * count))
    np.testing.assert_array_equal(run("fma_latency", source, steps, passes)[:LANES], 1 + 2 * CHAINED_FMAS * count)


def test_cycles_wait_for_one_another() -> None:
    source = np.ones(64 * LANES, np.float32)
    added = value = int(source[:2].view(np.uint64)[0])
    for _ in range(2 * CYCLES // 2):
        value = ((value + added) % 2**64) ^ added
    assert int(run("cycles", source, 2)[:2].view(np.uint64)[0]) == value


@pytest.mark.parametrize("name", cpu_names())
def test_every_cpu_has_probes(name: str) -> None:
    target = resolve_target(name)
    assert compile_module(emit_probes(target), target)


@pytest.mark.parametrize("name", ["haswell", "icelake-server", "neoverse-n1"])
def test_chains_stay_in_registers(name: str) -> None:
    """A spilled accumulator would be measured as a store and a load."""
    target = resolve_target(name)
    module = emit_probes(target)
    compile_module(module, target)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(target.cpu, target.llvm_features, opt=3)
    parsed = llvm.parse_assembly(str(module))
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(parsed, builder)
    assert "spill" not in machine.emit_assembly(parsed).lower()


def test_all_threads_meet() -> None:
    barrier = Barrier(TARGET, 2)
    assert (barrier.times_s(3) > 0).all()
    barrier.close()
