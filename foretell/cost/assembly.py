"""A kernel's assembly for a target, and its text read into blocks of instructions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from foretell.codegen.compile_module import assemble_module
from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_module
from foretell.loops.nodes import Kernel, free_symbols
from foretell.target.resolve import Target

COMMENTS = {"x86_64": "#", "aarch64": r"//|;"}
BRANCHES = {"x86_64": r"j[a-z]+", "aarch64": r"b|b\.[a-z]+|cbn?z|tbn?z|br"}
RETURNS = {"x86_64": "retq?", "aarch64": "ret"}
ALWAYS = {"jmp", "b", "br"}
_FUNCTION = re.compile(r"-- Begin function (?P<name>.*)\n(?P<body>[\s\S]*?)-- End function")
_OPERAND = re.compile(r"(?:[^,(\[{]|\([^)]*\)|\[[^\]]*\]|\{[^}]*\})+")


class Instruction(NamedTuple):
    mnemonic: str
    operands: tuple[str, ...]
    """In the order in which they are printed: AT&T's on x86."""
    note: str = ""
    """LLVM's comment, which tells what is spilled."""


@dataclass(slots=True)
class BasicBlock:
    """Instructions that run one after the other; only the last may be a branch."""

    label: str
    instructions: list[Instruction]
    targets: tuple[int, ...] = ()
    """Blocks that may follow, by number."""
    mark: tuple[int, int] = (0, 0)
    """The number of the loop that the branch at the end is of, and its step (`codegen/mark_loops.py`)."""


@dataclass(frozen=True, slots=True)
class MachineFunction:
    name: str
    architecture: str
    blocks: tuple[BasicBlock, ...]


def assemble_kernel(kernel: Kernel, target: Target) -> str:
    """The assembly of a kernel by itself, its loops marked."""
    slots = {buffer.name: number for number, buffer in enumerate((*kernel.reads, *kernel.writes))}
    symbols = sorted(free_symbols(kernel), key=lambda symbol: symbol.name)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    layout = Layout(slots, numbers)
    return assemble_module(emit_module(kernel, layout, target, mark_loops=True), target)


def parse_assembly(text: str, architecture: str) -> list[MachineFunction]:
    """The functions of a module's assembly, in order."""
    return [
        MachineFunction(found["name"].strip(), architecture, tuple(_blocks(found["body"], architecture)))
        for found in _FUNCTION.finditer(text)
    ]


def _blocks(body: str, architecture: str) -> list[BasicBlock]:
    blocks = [BasicBlock("", [])]
    place = (0, 0)
    is_end = re.compile(f"{BRANCHES[architecture]}|{RETURNS[architecture]}").fullmatch
    for label, line, column, mnemonic, operands, note in _line(architecture).findall(body):
        if label:
            if "BB" in label:
                blocks.append(BasicBlock(label, []))
                place = (0, 0)
        elif line:
            place = (int(line), int(column))
        else:
            blocks[-1].instructions.append(Instruction(mnemonic, split_operands(operands), note))
            if is_end(mnemonic):
                blocks[-1].mark = place
                blocks.append(BasicBlock("", []))
                place = (0, 0)
    kept = _joined(blocks)
    _link(kept, architecture)
    return kept


@lru_cache
def _line(architecture: str) -> re.Pattern[str]:
    """One line: a label, a place, or an instruction with its operands and comment."""
    comment = COMMENTS[architecture]
    return re.compile(
        r"^(?:\"?([\w.$]+)\"?:"
        r"|\t\.loc\t\d+ (\d+) (\d+)"
        rf"|\t([a-z][\w.]*)(?:[ \t]+((?:(?!{comment})[^\n])*?))?[ \t]*(?:(?:{comment})([^\n]*))?$)",
        re.MULTILINE,
    )


@lru_cache(1 << 16)
def split_operands(text: str) -> tuple[str, ...]:
    return tuple(operand.strip() for operand in _OPERAND.findall(text))


def _joined(blocks: Sequence[BasicBlock]) -> list[BasicBlock]:
    """Without empty blocks that nothing names."""
    return [block for block in blocks if block.instructions or block.label]


def _link(blocks: list[BasicBlock], architecture: str) -> None:
    """Find the blocks that may follow each block."""
    numbers = {block.label: number for number, block in enumerate(blocks) if block.label}
    is_branch, is_return = (re.compile(pattern[architecture]).fullmatch for pattern in (BRANCHES, RETURNS))
    for number, block in enumerate(blocks):
        following = (number + 1,) if number + 1 < len(blocks) else ()
        last = block.instructions[-1] if block.instructions else Instruction("", ())
        if is_return(last.mnemonic):
            following = ()
        elif is_branch(last.mnemonic):
            taken = tuple(numbers[operand] for operand in last.operands if operand in numbers)
            following = taken if last.mnemonic in ALWAYS else taken + following
        block.targets = tuple(dict.fromkeys(following))
