"""Reading assembly: labels, branches, operands and places, of both architectures."""

from __future__ import annotations

from foretell.cost.assembly import parse_assembly

X86 = """
	.p2align	4                               # -- Begin function k.body
	.type	k.body,@function
k.body:                                 # @k.body
.Lfunc_begin0:
	.cfi_startproc
# %bb.0:                                # %entry
	cmpq	%r8, %rcx
.Ltmp0:
	.loc	1 1 1 prologue_end              # loops:1:1
	jge	.LBB0_3
	.loc	1 0 1 is_stmt 0                 # :0:1
.LBB0_2:                                # %s0.body
                                        # =>This Inner Loop Header: Depth=1
	vfmadd231ps	-32(%rax,%rdi,4){1to16}, %zmm1, %zmm0 # zmm0 = (zmm1 * mem) + zmm0
	vmovups	%zmm3, 64(%rsp)                 # 64-byte Spill
	addq	$4, %rdi
	.loc	1 7 16 is_stmt 1                # loops:7:16
	jne	.LBB0_2
.LBB0_3:                                # %s0.end
	vzeroupper
	retq
.Lfunc_end0:
	.size	k.body, .Lfunc_end0-k.body
                                        # -- End function
"""
AARCH64 = """
	.p2align	4                               // -- Begin function k.body
k.body:                                 // @k.body
// %bb.0:                               // %entry
	cbz	x3, .LBB0_2
.LBB0_1:                                // %s0.body
	ldp	q0, q1, [x1], #32
	fmla	v30.4s, v0.4s, v8.s[0]
	st1	{ v0.4s, v1.4s }, [x2]
	subs	x3, x3, #1
	.loc	1 3 4                           // loops:3:4
	b.ne	.LBB0_1
.LBB0_2:                                // %s0.end
	ret
                                        // -- End function
"""


def test_x86_is_read_into_blocks() -> None:
    (function,) = parse_assembly(X86, "x86_64")
    assert function.name == "k.body"
    assert [block.label for block in function.blocks] == ["", ".LBB0_2", ".LBB0_3"]
    assert [block.targets for block in function.blocks] == [(2, 1), (1, 2), ()]
    assert [block.mark for block in function.blocks][:2] == [(1, 1), (7, 16)]
    multiply_add, spill, *_ = function.blocks[1].instructions
    assert multiply_add.operands == ("-32(%rax,%rdi,4){1to16}", "%zmm1", "%zmm0")
    assert spill.note.strip() == "64-byte Spill"
    assert [instruction.mnemonic for instruction in function.blocks[2].instructions] == ["vzeroupper", "retq"]


def test_aarch64_is_read_into_blocks() -> None:
    (function,) = parse_assembly(AARCH64, "aarch64")
    assert [block.targets for block in function.blocks] == [(2, 1), (1, 2), ()]
    assert function.blocks[1].mark == (3, 4)
    pair, multiply_add, store, subtract, _ = function.blocks[1].instructions
    assert pair.operands == ("q0", "q1", "[x1]", "#32")
    assert multiply_add.operands == ("v30.4s", "v0.4s", "v8.s[0]")
    assert store.operands == ("{ v0.4s, v1.4s }", "[x2]")
    assert subtract.operands == ("x3", "x3", "#1")
