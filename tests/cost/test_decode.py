"""What single instructions are: their class, what they read and write, how they are counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foretell.cost.assembly import Instruction, split_operands
from foretell.cost.decode_aarch64 import decode_aarch64
from foretell.cost.decode_x86 import decode_x86
from foretell.cost.instruction import Decoded

X86 = [
    ("vfmadd231ps %zmm1, %zmm2, %zmm3", ("fma",), "v1 v2", "v3", "v3"),
    ("vfmadd213ps %ymm21, %ymm28, %ymm22", ("fma",), "v28 v22", "v22", "v21"),
    ("vfmadd231ps (%rax,%rdi){1to16}, %zmm2, %zmm3", ("fma", "broadcast_load"), "v2", "v3", "v3"),
    ("vaddps 64(%rsi), %zmm2, %zmm3", ("vector", "load"), "v2", "v3", ""),
    ("vmovups -4(%r9), %ymm1 {%k2} {z}", ("load",), "k2", "v1", ""),
    ("vmovups %zmm1, (%r9)", ("store",), "v1", "", ""),
    ("vbroadcastss (%r9), %zmm1", ("broadcast_load",), "", "v1", ""),
    ("vbroadcastss %xmm0, %zmm1", ("shuffle",), "v0", "v1", ""),
    ("vxorps %xmm4, %xmm4, %xmm4", ("move",), "", "v4", ""),
    ("vmovaps %zmm4, %zmm5", ("move",), "v4", "v5", ""),
    ("addps %xmm1, %xmm2", ("vector",), "v1 v2", "v2", ""),
    ("addq $64, %r9", ("scalar",), "r9", "r9", ""),
    ("leaq (%rcx,%rcx,2), %rax", ("scalar",), "c", "a", ""),
    ("cmpl %r8d, %ecx", ("scalar",), "r8 c", "", ""),
    ("imulq %rcx, %rax", ("scalar",), "c a", "a", ""),
    ("prefetcht0 512(%rdi)", ("prefetch",), "", "", ""),
    ("vmovq %xmm1, %rax", ("shuffle",), "v1", "a", ""),
]
AARCH64 = [
    ("fmla v30.4s, v9.4s, v8.s[0]", ("fma",), "v9 v8", "v30", "v30"),
    ("fmadd s0, s1, s2, s3", ("fma",), "v1 v2", "v0", "v3"),
    ("ldr q9, [x6, #16]", ("load",), "", "v9", ""),
    ("ldp q0, q1, [x6], #32", ("scalar", "load"), "", "v0 v1 x6", ""),
    ("ld1r { v3.4s }, [x2]", ("broadcast_load",), "", "v3", ""),
    ("str q9, [x6, x7]", ("store",), "v9", "", ""),
    ("fadd v0.4s, v1.4s, v2.4s", ("vector",), "v1 v2", "v0", ""),
    ("bif v0.16b, v1.16b, v2.16b", ("vector",), "v1 v2 v0", "v0", ""),
    ("dup v8.4s, v8.s[0]", ("shuffle",), "v8", "v8", ""),
    ("mov v0.s[1], v1.s[0]", ("shuffle",), "v1 v0", "v0", ""),
    ("mov v0.16b, v1.16b", ("move",), "v1", "v0", ""),
    ("add x17, x16, x9, lsl #2", ("scalar",), "x16 x9", "x17", ""),
    ("madd x17, x16, x9, x0", ("scalar",), "x16 x9 x0", "x17", ""),
    ("cmp w3, #4", ("scalar",), "x3", "", ""),
    ("b.ne .LBB0_1", ("branch",), "", "", ""),
    ("prfm pldl1keep, [x0]", ("prefetch",), "", "", ""),
]


def instruction(text: str) -> Instruction:
    mnemonic, _, operands = text.partition(" ")
    return Instruction(mnemonic, split_operands(operands))


@pytest.mark.parametrize(("decode", "case"), [(decode_x86, c) for c in X86] + [(decode_aarch64, c) for c in AARCH64])
def test_an_instruction(
    decode: Callable[[Instruction], Decoded], case: tuple[str, tuple[str, ...], str, str, str]
) -> None:
    text, kinds, reads, writes, accumulator = case
    found = decode(instruction(text))
    assert (found.kinds, " ".join(found.reads), " ".join(found.writes)) == (kinds, reads, writes)
    assert found.accumulator == accumulator


def test_a_spilled_register_is_read_back_from_its_place() -> None:
    stored = decode_x86(Instruction("vmovups", ("%zmm3", "64(%rsp)"), " 64-byte Spill"))
    loaded = decode_x86(Instruction("vmovups", ("64(%rsp)", "%zmm4"), " 64-byte Reload"))
    assert stored.writes == loaded.reads == ("64(%rsp)",)
    assert (stored.kinds, loaded.kinds) == (("spill_store",), ("spill_load",))
