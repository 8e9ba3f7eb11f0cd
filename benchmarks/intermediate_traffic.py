"""What intermediate tensors move through memory, and what of it fusing saves: counted, not measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from foretell.runtime.program import Program


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that the tensors between kernels move where no kernels are fused, and those that fusing saves."""

    apart_bytes: int
    saved_bytes: int

    @property
    def details(self) -> dict[str, float]:
        """As rows store it."""
        return {"intermediate_mb": self.apart_bytes / 1e6, "saved_mb": self.saved_bytes / 1e6}


def traffic_saved(fused: Program, apart: Program) -> Traffic:
    """Of the same model: what the tensors that only the second program has move there.

    A tensor that both programs have counts as not saved, though fewer kernels may read it.
    """
    moved, left = intermediate_bytes(apart), intermediate_bytes(fused)
    return Traffic(sum(moved.values()), sum(count for name, count in moved.items() if name not in left))


def intermediate_bytes(program: Program) -> dict[str, int]:
    """What each tensor moves that is neither input, constant nor output: its size when it is filled, by however many
    kernels, and again for each kernel that reads it."""
    reads = [slot for step in program.steps for _, read in step.kernels for slot in read]
    return {
        slot.name: prod(slot.type.static_shape) * slot.dtype.itemsize * (1 + reads.count(number))
        for number, slot in enumerate(program.slots)
        if slot.role == "temporary"
    }
