"""Instruction-set features: those that LLVM may use of its own accord in code we generate, and who has them.

A feature that only an intrinsic reaches (AES, AMX, transactional memory, ...) is not listed: its absence cannot
fault. LLVM and the Linux kernel spell many of them differently; archspec follows the kernel.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path

from foretell.target.hardware_spec import ARCHITECTURES

X86_64 = {
    "avx": "avx",
    "avx2": "avx2",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512f": "avx512f",
    "avx512fp16": "avx512_fp16",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "cx16": "cx16",
    "f16c": "f16c",
    "fma": "fma",
    "gfni": "gfni",
    "lzcnt": "abm",
    "movbe": "movbe",
    "popcnt": "popcnt",
    "prfchw": "3dnowprefetch",
    "sahf": "lahf_lm",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "ssse3": "ssse3",
}
AARCH64 = {
    "altnzcv": "flagm2",
    "bf16": "bf16",
    "complxnum": "fcma",
    "crc": "crc32",
    "dotprod": "asimddp",
    "flagm": "flagm",
    "fp-armv8": "fp",
    "fp16fml": "asimdfhm",
    "fptoint": "frint",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "jsconv": "jscvt",
    "lse": "atomics",
    "lse2": "uscat",
    "neon": "asimd",
    "rcpc": "lrcpc",
    "rcpc-immo": "ilrcpc",
    "rdm": "asimdrdm",
    "sha3": "sha3",
    "sve": "sve",
    "sve2": "sve2",
}
RISCV64 = {letter: letter for letter in "macdfv"}
KERNEL_NAMES = {"x86_64": X86_64, "aarch64": AARCH64, "riscv64": RISCV64}
"""For each architecture, LLVM's name of a feature -> the Linux kernel's."""
UNWANTED = {"x86_64": ("sse4a",)}
"""What LLVM takes a CPU's name to promise and must not use: there are no forms for wide registers of SSE4a's
instructions, and between those that have them one takes 110 ns on Zen 3."""


def from_kernel_names(architecture: str, names: frozenset[str]) -> frozenset[str]:
    """The features that LLVM knows by another name, or by the same."""
    return frozenset(feature for feature, name in KERNEL_NAMES[architecture].items() if name in names)


def host_architecture() -> str:
    """One of `KERNEL_NAMES`, or what Python calls this machine."""
    machine = platform.machine().lower()
    return ARCHITECTURES.get(machine, machine)


def host_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What the CPU and the system running this process support.

    Linux answers by itself, so that loading an artifact does not import LLVM; elsewhere LLVM is asked.
    """
    architecture = host_architecture()
    if architecture not in KERNEL_NAMES:
        return frozenset()
    try:
        words = _cpuinfo_words(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        words = frozenset()
    if words:
        return from_kernel_names(architecture, words)
    return frozenset(KERNEL_NAMES[architecture]) & _llvm_host_features()


def _cpuinfo_words(text: str) -> frozenset[str]:
    """The features every core has, from the `flags` (x86), `Features` (Arm) or `isa` (RISC-V) lines."""
    lines = re.findall(r"^(?:flags|Features)[ \t]*:(.*)$", text, re.MULTILINE)
    sets = [frozenset(line.split()) for line in lines]
    sets += [frozenset(letters) for letters in re.findall(r"^isa[ \t]*:\s*rv64([a-z]*)", text, re.MULTILINE)]
    return frozenset.intersection(*sets) if sets else frozenset()


def _llvm_host_features() -> frozenset[str]:
    import llvmlite.binding

    return frozenset(name for name, present in llvmlite.binding.get_host_cpu_features().items() if present)
