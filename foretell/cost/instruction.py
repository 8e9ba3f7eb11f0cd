"""What an instruction is to the bounds: the classes of its micro-operations, and what it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

VECTOR_ARITHMETIC = frozenset("add mul max div sqrt logic shift compare convert blend".split())


@dataclass(frozen=True, slots=True)
class Decoded:
    """One instruction. Registers are named alike whatever part of them is used; a spill slot is a register too."""

    operation: str
    """Class of what it computes; "" where it only moves to or from memory, or does nothing."""
    loads: int = 0
    stores: int = 0
    """Accesses of memory, each as wide as a register at most."""
    is_broadcast: bool = False
    reads: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    """Registers that only say where memory is accessed."""
    accumulator: str = ""
    """The register that a multiply-add adds to, which may be needed later than the others."""
    writes: tuple[str, ...] = ()
    width_bytes: int = 0
    """Of the vectors it works on; 0 for scalar integers."""
    size_bytes: int = 4
    slots: int = 1
    """Of the front end."""
    spills: str = ""
    """Whether it is a "load" or "store" that exists because registers ran out."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """How it is counted: a multiply-add that loads is both."""
        if self.operation == "prefetch":
            return ("prefetch",)
        spills = f"spill_{self.spills}" if self.spills and self.width_bytes else ""
        found: list[str] = []
        if self.operation in VECTOR_ARITHMETIC:
            found.append("vector" if self.width_bytes else "scalar")
        elif self.operation in ("integer", "integer_multiply"):
            found.append("scalar")
        elif self.operation:
            found.append(self.operation)
        if self.loads:
            load = "broadcast_load" if self.is_broadcast else "load" if self.width_bytes else "scalar"
            found.append(spills or load)
        if self.stores:
            found.append(spills or ("store" if self.width_bytes else "scalar"))
        return tuple(dict.fromkeys(found))
