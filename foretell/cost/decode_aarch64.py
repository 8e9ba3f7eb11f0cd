"""AArch64 instructions: the destination comes first, every one is four bytes long."""

from __future__ import annotations

import re
from functools import lru_cache

from foretell.cost.assembly import Instruction
from foretell.cost.instruction import Decoded

_VECTOR_OPERATIONS = [
    (re.compile(pattern), operation)
    for pattern, operation in (
        (r"fn?m(la|ls|add|sub)|bfmla|bfdot", "fma"),
        (r"f(add|sub|abd)", "add"),
        (r"fn?mul|mul|ml[as]|[su](mul|mla|mls|dot)|sq", "mul"),
        (r"f(max|min)", "max"),
        (r"fdiv", "div"),
        (r"fsqrt", "sqrt"),
        (r"fcvt|[su]cvtf|frint|frecp|frsqrt|bfcvt", "convert"),
        (r"fcm|fcc|fac|cm[a-z]{2}|cmtst", "compare"),
        (r"bsl|bit|bif|fcsel|sel", "blend"),
        (r"dup|zip|uzp|trn|ext|tb[lx]|ins|rev|[su]mov|[us]?q?xtu?n|[su]xtl|[su]shll|movprfx", "shuffle"),
        (r"shl|[su]sh[lr]|[su]r?sra|s[lr]i", "shift"),
    )
]
_SCALAR_OPERATIONS = [
    (re.compile(pattern), operation)
    for pattern, operation in (
        (r"b$|b\.|bl|br$|cbn?z|tbn?z|ret", "branch"),
        (r"n?mul|[us]mul|m(add|sub)|[us]m(add|sub)", "integer_multiply"),
        (r"[us]div", "div"),
        (r"mov$", "move"),
        (r"nop|dmb|hint|bti", ""),
    )
]
_REGISTER = re.compile(r"\b([wxvqdshbzp])(\d+)\b")
_FILES = {"w": "x", "x": "x", "p": "p"}
"""Registers by the letter of their name; all other letters are parts of vectors."""
_VECTOR = re.compile(r"(?<![#\w])([vqdshbz])\d+")
_WIDTHS = {"v": 16, "q": 16, "z": 16, "d": 8, "s": 4, "h": 2, "b": 1}
_NO_RESULT = re.compile(r"cmp|cmn|ccmp|tst|fcmp|fccmp|b$|b\.|bl|br|cbn?z|tbn?z|ret|prfm|st|nop|dmb")
_KEEPS = re.compile(r"fml|ml[as]$|[su]ml|[su]dot|bsl|bit|bif|ins|s[lr]i$|[su]r?sra|movk|\w+n2$|tbx|bfi|bfxil|bfm")


def decode_aarch64(instruction: Instruction) -> Decoded:
    mnemonic, operands, note = instruction
    spills = "store" if "Spill" in note else "load" if "Reload" in note else ""
    return _decode(mnemonic, operands, spills)


@lru_cache(1 << 16)
def _decode(mnemonic: str, operands: tuple[str, ...], spills: str) -> Decoded:
    named = _VECTOR.search(" ".join(operand for operand in operands if not operand.startswith("[")))
    width = _WIDTHS[named[1]] if named else 0
    if mnemonic == "prfm":
        return Decoded("prefetch", 1, address=_registers(operands[-1]))
    if re.match(r"ld|st", mnemonic):
        return _access(mnemonic, operands, width, spills)
    operation = _operation(mnemonic, bool(width), operands)
    has_result = not _NO_RESULT.match(mnemonic)
    writes = _registers(operands[0]) if has_result and operands else ()
    reads = [name for operand in operands[1 if has_result else 0 :] for name in _registers(operand)]
    accumulator = ""
    if operation == "fma":
        accumulator = _registers(operands[0 if mnemonic.startswith(("fml", "bf")) else 3])[0]
        reads = [name for operand in operands[1:3] for name in _registers(operand)]
    elif has_result and (_KEEPS.match(mnemonic) or (operands and "[" in operands[0])):
        reads += writes
    return Decoded(operation, 0, 0, False, tuple(reads), (), accumulator, writes, width, slots=int(operation != ""))


def _access(mnemonic: str, operands: tuple[str, ...], width: int, spills: str) -> Decoded:
    """A load or a store, of a pair or a list too; an address may move along."""
    number = next(number for number, operand in enumerate(operands) if operand.startswith("["))
    place, data = operands[number], [name for operand in operands[:number] for name in _registers(operand)]
    moves = place.endswith("!") or number + 1 < len(operands)
    address = _registers(place)
    slot = "".join(operands[number : number + 1]) if re.match(r"\[sp", place) and not moves else ""
    count = max(1, len(data)) if width == 16 or mnemonic.startswith(("ld1", "st1")) else 1
    is_store = mnemonic.startswith("st")
    is_lane = bool(re.search(r"\}\s*\[", operands[0]))
    reads = [*(data if is_store or is_lane else ()), *((slot,) if slot and not is_store else ())]
    writes = [*(() if is_store else data), *((slot,) if slot and is_store else ()), *(address[:1] if moves else ())]
    return Decoded(
        "integer" if moves else "",
        0 if is_store else count,
        count if is_store else 0,
        bool(re.match(r"ld\dr", mnemonic)),
        tuple(reads),
        address,
        "",
        tuple(writes),
        width,
        slots=count + int(moves),
        spills=spills,
    )


def _operation(mnemonic: str, is_vector: bool, operands: tuple[str, ...]) -> str:
    if not is_vector:
        return next((operation for pattern, operation in _SCALAR_OPERATIONS if pattern.match(mnemonic)), "integer")
    if mnemonic in ("mov", "fmov"):
        between = any(_registers(operand)[:1] and operand[0] in "wx" for operand in operands)
        return "shuffle" if between or any("[" in operand for operand in operands) else "move"
    return next((operation for pattern, operation in _VECTOR_OPERATIONS if pattern.match(mnemonic)), "logic")


@lru_cache(1 << 12)
def _registers(operand: str) -> tuple[str, ...]:
    found = _REGISTER.findall(operand)
    return tuple(dict.fromkeys(f"{_FILES.get(kind, 'v')}{number}" for kind, number in found))
