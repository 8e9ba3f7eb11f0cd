from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from foretell.support.errors import UsageError
from foretell.target.features import KERNEL_NAMES
from foretell.target.hardware_spec import Coefficients
from foretell.target.read_spec import cpu_aliases, cpu_names, read_named, read_spec
from foretell.target.resolve import Target

PROMISED = """
    x86-64-v2 x86-64-v3 x86-64-v4 haswell skylake skylake-avx512 icelake-server sapphirerapids
    znver2 znver3 znver4 znver5
    neoverse-n1 neoverse-v1 neoverse-v2 cortex-a53 cortex-a55 cortex-a76 cortex-x1 apple-m1 riscv64
""".split()

TEXT = """
name = "tiny"
triple = "riscv64-unknown-linux-gnu"
cpu = "generic-rv64"
features = ["m", "a"]
vector_bytes = 0
vector_registers = 32
fma_ports = 1
fma_latency_cycles = 5
load_ports = 1
loads_per_cycle = 1
store_ports = 1
frequency_hz = 1e9
cores = 2
dram_bandwidth_bytes_per_s = 4e9
dram_core_bandwidth_bytes_per_s = 2e9
barrier_cost_s = 3e-6
[[caches]]
size_bytes = 32_768
line_bytes = 64
shared_by_cores = 1
bandwidth_bytes_per_cycle = 8
"""
FITTED = "[coefficients]\n{}\n[[caches]]"


def test_promised_cpus_are_here() -> None:
    assert set(PROMISED) <= set(cpu_names())


@pytest.mark.parametrize("name", cpu_names())
def test_numbers_of_named_cpus_are_plausible(name: str) -> None:
    spec = read_named(name)
    assert spec.name == name
    assert spec.vector_bytes in (0, 16, 32, 64) and spec.vector_registers in (16, 32)
    assert 1e9 <= spec.frequency_hz <= 5e9
    assert spec.dram_core_bandwidth_bytes_per_s <= spec.dram_bandwidth_bytes_per_s
    assert 1e-7 < spec.barrier_cost_s < 1e-4
    bandwidths = [level.bandwidth_bytes_per_cycle for level in spec.caches]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert bandwidths[0] <= spec.load_ports * max(8, spec.vector_bytes)
    assert all(level.line_bytes in (64, 128) and level.shared_by_cores <= spec.cores for level in spec.caches)


@pytest.mark.parametrize("name", cpu_names())
def test_llvm_knows_every_name(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM only warns, on the process's stderr, about a CPU or a feature it does not know."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = Target(read_named(name))
    every = ",".join(f"+{feature}" for feature in KERNEL_NAMES[target.architecture])
    machine = llvm.Target.from_triple(target.triple).create_target_machine(target.cpu, target.llvm_features)
    llvm.Target.from_triple(target.triple).create_target_machine(target.cpu, every)
    module = llvm.parse_assembly("define float @f(float %x) { ret float %x }")
    module.triple = target.triple
    assert machine.emit_object(module)
    assert capfd.readouterr().err == ""


def test_aliases_are_not_names() -> None:
    assert not cpu_aliases().keys() & set(cpu_names())
    assert set(cpu_aliases().values()) <= set(cpu_names())


def test_read_spec() -> None:
    spec = read_spec(TEXT, "tiny.toml")
    assert (spec.name, spec.features, spec.caches[0].bandwidth_bytes_per_cycle) == ("tiny", ("a", "m"), 8.0)


def test_coefficients_that_were_fitted() -> None:
    assert read_spec(TEXT, "tiny.toml").coefficients == Coefficients()
    text = TEXT.replace("[[caches]]", FITTED.format("slabs = 0"))
    assert read_spec(text, "tiny.toml").coefficients == Coefficients(slabs=0.0)


@pytest.mark.parametrize(
    ("old", "new", "where", "expected"),
    [
        ("cores = 2", "", "tiny.toml, cores", "a whole number, at least 1"),
        ("cores = 2", "cores = true", "tiny.toml, cores", "a whole number, at least 1"),
        ("fma_ports = 1", "fma_ports = 0", "tiny.toml, fma_ports", "a whole number, at least 1"),
        ("1e9", "inf", "tiny.toml, frequency_hz", "a positive number"),
        ("1e9", "nan", "tiny.toml, frequency_hz", "a positive number"),
        ("vector_bytes = 0", "vector_bytes = 24", "tiny.toml, vector_bytes", "0 or 16 or 32 or 64"),
        (
            "vector_bytes = 0",
            "vector_bytes = 0\nunit_bytes = 8",
            "tiny.toml, unit_bytes",
            "vector_bytes, or half of it",
        ),
        ('"tiny"', "7", "tiny.toml, name", "a word"),
        ('["m", "a"]', '"m"', "tiny.toml, features", "a list of words"),
        ('"m"', '"avx"', "tiny.toml, features", "names listed in foretell/target/features.py"),
        ("riscv64-", "mips-", "tiny.toml, triple", "one of x86_64, aarch64, riscv64 first"),
        ("cores = 2", "cores = 2\ncolour = 1", "tiny.toml, colour", "no such key"),
        ("line_bytes = 64", "", "tiny.toml, caches[0], line_bytes", "a whole number, at least 1"),
        ("[[caches]]", "[caches]", "tiny.toml, caches", "one or more tables [[caches]]"),
        (
            "[[caches]]",
            "[coefficients]\ntiles = -1\n[[caches]]",
            "tiny.toml, coefficients, tiles",
            "a number, at least 0",
        ),
        ("[[caches]]", "[coefficients]\nsand = 1\n[[caches]]", "tiny.toml, coefficients, sand", "no such key"),
        ("cores = 2", "cores = ", "tiny.toml", "TOML"),
    ],
)
def test_a_wrong_spec_is_refused(old: str, new: str, where: str, expected: str) -> None:
    with pytest.raises(UsageError, match="the description of a CPU cannot be read") as caught:
        read_spec(TEXT.replace(old, new, 1), "tiny.toml")
    assert (caught.value.where, caught.value.expected) == (where, expected)
