"""x86-64 instructions, in AT&T syntax: the destination comes last."""

from __future__ import annotations

import re
from functools import lru_cache

from foretell.cost.assembly import Instruction
from foretell.cost.instruction import Decoded

_OPERATIONS = [
    (re.compile(pattern), operation)
    for pattern, operation in (
        (r"prefetch", "prefetch"),
        (r"nop|vzero|endbr|[sml]fence|data16", ""),
        (r"j|call|ret", "branch"),
        (r"vfn?m(add|sub)|vdpbf16", "fma"),
        (r"v?(add|sub|hadd|addsub)[ps][sdh]", "add"),
        (r"v?mul[ps][sdh]|v?pmul|v?pmadd|vpdp", "mul"),
        (r"v?(max|min)[ps][sdh]", "max"),
        (r"v?div[ps][sdh]", "div"),
        (r"v?sqrt[ps][sdh]", "sqrt"),
        (r"v?cvt|v?r?(rcp|sqrt)|vrndscale|v?round|vscalef|vgetexp|vgetmant|vreduce|vrange|vfixup", "convert"),
        (r"v?cmp[a-z_]*[ps][sdh]$|v?u?comis|v?pcmp|v?ptest|v?p?movmsk|vfpclass|vtest", "compare"),
        (r"k[a-z]+[bwdq]$", "compare"),
        (r"v?p?blend", "blend"),
        (r"v?(p?shuf|perm|unpck|punpck|pack|palign|insert|extract|pinsr|pextr|p?broadcast)", "shuffle"),
        (r"v?(movddup|mov[sh][hl]dup|movs[hl]dup|movlh|movhl|pmov[zs]x|expand|compress)|valign|vpmov|vpexp", "shuffle"),
        (r"v?p?(and|or|xor)n?[ps]?[sdq]?$|v?andn|vpternlog|v?p(add|sub|min|max|abs|avg|sign|cnt|opcnt)", "logic"),
        (r"v?ps[lr][la]|vpro[lr]|vpsh", "shift"),
        (r"v?p?gather|vgather", "gather"),
        (r"v?mov|push|pop", "move"),
        (r"i?mul", "integer_multiply"),
        (r"i?div", "div"),
    )
]
_REGISTER = re.compile(r"%([a-z]+\d*[a-z]*)")
_VECTOR = re.compile(r"[xyz]mm(\d+)")
_WIDTHS = {"x": 16, "y": 32, "z": 64}
_NAMED = re.compile(r"[re]?([abcd])[xlh]$|[re]?(si|di|bp|sp)l?$|(r\d+)[dwb]?$")
_GENERAL = re.compile(r"%[er].*")
_NO_RESULT = re.compile(r"cmp|test|v?u?comis|vptest$|vtest|j|ret|push|prefetch|k?ortest|ktest|nop|bt")
_KEEPS = re.compile(r"vfn?m|vpdp|vdpbf16|vpternlog|cmov|set|vfixup|vpermi2|vpermt2")
"""Instructions that read what they write, though they look like those of three operands that do not."""
_ZERO = re.compile(r"v?p?xor|xor|v?p?sub[bwdq]|sub[lq]?$")


def decode_x86(instruction: Instruction) -> Decoded:
    mnemonic, operands, note = instruction
    spills = "store" if "Spill" in note else "load" if "Reload" in note else ""
    return _decode(mnemonic, operands, spills)


@lru_cache(1 << 16)
def _decode(mnemonic: str, operands: tuple[str, ...], spills: str) -> Decoded:
    operation = _operation(mnemonic)
    if not operands:
        return Decoded(operation, size_bytes=_size_bytes(mnemonic, operands, None), slots=int(operation != ""))
    places = [operand for operand in operands if "(" in operand]
    place = places[0] if places and not mnemonic.startswith(("lea", "j", "call", "nop")) else None
    named = _VECTOR.search(" ".join(operands))
    width = _WIDTHS[named[0][0]] if named and "zmm" not in "".join(operands) else 64 if named else 0
    if operation == "integer" and width:
        operation = "logic"
    last = operands[-1]
    has_result = not _NO_RESULT.match(mnemonic)
    is_store = place is not None and place is last and has_result
    is_plain = operation == "move" or (operation == "shuffle" and "broadcast" in mnemonic)
    loads = int(place is not None and not (is_store and is_plain))
    if is_store and mnemonic.startswith(("vextract", "vpextr", "extract", "vcvtps2ph", "vpmov")):
        loads = 0
    if operation == "gather":
        loads, operation = width // 4, "shuffle"
    slot = place.split(" ")[0] if place and re.search(r"\(%rsp\)", place) else ""
    address = () if slot or place is None else _registers(place.split("{")[0])
    reads = [name for operand in operands[:-1] if operand is not place for name in _registers(operand)]
    writes = () if not has_result or is_store else _registers(last.split("{")[0])
    if is_store or not has_result:
        reads += () if last is place else _registers(last)
    elif _reads_result(mnemonic, operands, operation):
        reads += writes
    reads += _registers(last[last.index("{") :]) if "{%" in last else ()
    if slot and loads:
        reads.append(slot)
    if is_store and slot:
        writes = (slot,)
    if _ZERO.match(mnemonic) and len(set(operands)) == 1:
        operation, reads = "move", []
    if is_plain and place is not None:
        operation = ""
    elif operation == "move" and not width and operands[0].startswith("$"):
        operation = "integer"
    elif operation == "move" and width and any(_GENERAL.fullmatch(operand) for operand in operands):
        operation = "shuffle"
    is_fma = operation == "fma"
    return Decoded(
        operation,
        loads,
        int(is_store),
        bool(loads) and ("broadcast" in mnemonic or "{1to" in (place or "")),
        tuple(name for name in reads if not (is_fma and name == _added(mnemonic, operands))),
        address,
        _added(mnemonic, operands) if is_fma else "",
        writes,
        width,
        _size_bytes(mnemonic, operands, place),
        int(operation != "" or loads > 0 or is_store),
        spills,
    )


@lru_cache
def _operation(mnemonic: str) -> str:
    return next((operation for pattern, operation in _OPERATIONS if pattern.match(mnemonic)), "integer")


def _reads_result(mnemonic: str, operands: tuple[str, ...], operation: str) -> bool:
    """Whether the destination is a source as well."""
    if _KEEPS.match(mnemonic) or ("{%k" in operands[-1] and "{z}" not in operands[-1]):
        return True
    if mnemonic.startswith(("v", "k", "lea")) or operation == "move":
        return False
    return len(operands) <= 2 and not mnemonic.startswith(("sqrt", "cvt", "pshuf", "lzcnt", "tzcnt", "popcnt", "pabs"))


def _added(mnemonic: str, operands: tuple[str, ...]) -> str:
    """231 adds to its destination; 213 and 132 to what is printed first or second."""
    place = {"231": -1, "213": -3, "132": -2}.get(next(iter(re.findall(r"\d{3}", mnemonic)), ""), -1)
    found = _registers(operands[place].split("{")[0]) if "(" not in operands[place] else ()
    return found[0] if found else ""


@lru_cache(1 << 12)
def _registers(operand: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for found in _REGISTER.findall(operand) if (name := _whole(found))))


def _whole(name: str) -> str:
    """The register that a name is a part of; "" for what never makes anyone wait."""
    if vector := _VECTOR.match(name):
        return f"v{vector[1]}"
    if part := _NAMED.match(name):
        return "".join(filter(None, part.groups()))
    return "" if name == "rip" else name


def _size_bytes(mnemonic: str, operands: tuple[str, ...], place: str | None) -> int:
    """About how long the instruction is: prefixes by its registers, then how address and constant are written."""
    text = " ".join(operands)
    if mnemonic.startswith(("j", "ret", "vzero")):
        return {"j": 2, "r": 1, "v": 3}[mnemonic[0]]
    vectors = [int(number) for number in _VECTOR.findall(text)]
    is_evex = "zmm" in text or "{" in text or any(number > 15 for number in vectors)
    is_long = is_evex or re.match(r"vfn?m|vbroadcast|vperm|vp?blendv|vextract|vinsert|vround|vpmul", mnemonic)
    size = 6 if is_evex else 5 if is_long else 4 if mnemonic.startswith("v") else 3
    if not mnemonic.startswith("v") and "%r" not in text and not re.search(r"%e?\w*\d", text):
        size = 2
    if memory := re.search(r"(-?\d*)(\(([^)]*)\))", place or (text if mnemonic.startswith("lea") else "")):
        size += _address_bytes(memory[1], memory[3], (_scale(text, mnemonic) if is_evex else 1))
    if constant := re.search(r"\$(-?\d+)", text):
        is_small = -128 <= int(constant[1]) <= 127 and not mnemonic.startswith("mov")
        size += 1 if is_small or vectors or re.match(r"sh|sa|ro", mnemonic) else 4
    return size


def _scale(text: str, mnemonic: str) -> int:
    """What EVEX counts short distances in."""
    if "{1to" in text or "broadcast" in mnemonic or mnemonic.endswith(("ss", "sd")):
        return 8 if mnemonic.endswith("d") else 4
    return 64 if "zmm" in text else 32 if "ymm" in text else 16


def _address_bytes(distance: str, inside: str, scale: int) -> int:
    base, *index = inside.split(",")
    size = 1 if index or base in ("%rsp", "%r12") else 0
    if base == "%rip" or not base:
        return size + 4
    steps, rest = divmod(int(distance or 0), scale)
    if not steps and not rest and base not in ("%rbp", "%r13"):
        return size
    return size + (1 if not rest and -128 <= steps <= 127 else 4)
