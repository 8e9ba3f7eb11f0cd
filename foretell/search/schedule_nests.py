"""Schedules for the nests of a whole program: layers repeat, and each distinct nest is scheduled once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from foretell.ir.tensor_expr import Buffer
from foretell.loops.canonical import canonical
from foretell.loops.nodes import Kernel
from foretell.loops.plain_nests import map_accesses
from foretell.schedule.pack import Part, packed_buffer
from foretell.schedule.steps import Pack, apply_schedule
from foretell.search.schedule_contraction import try_schedule
from foretell.target.hardware_spec import HardwareSpec

Packing: TypeAlias = tuple[Buffer, tuple[Part, ...]]
"""A constant and the order in which it is stored."""


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """A nest between operands called b0, b1, ...; and how those are packed that are."""

    kernel: Kernel
    packed: dict[str, tuple[Part, ...]]


@dataclass(slots=True)
class NestScheduler:
    """Call it with a plain nest; `packed` tells what nests read in another order than constants have."""

    spec: HardwareSpec
    constants: frozenset[str]
    packed: dict[str, Packing] = field(default_factory=dict)
    known: dict[tuple[str, tuple[bool, ...]], _Scheduled | None] = field(default_factory=dict)

    def __call__(self, kernel: Kernel) -> Kernel | None:
        """The nest that should be fastest; None if no schedule suits it."""
        shared = canonical(kernel)
        key = (str(shared), tuple(buffer.name in self.constants for buffer in kernel.reads))
        if key not in self.known:
            self.known[key] = self._schedule(shared, key[1])
        found = self.known[key]
        return None if found is None else self._between(found, shared, kernel)

    def _schedule(self, shared: Kernel, are_constant: tuple[bool, ...]) -> _Scheduled | None:
        constants = [buffer.name for buffer, is_constant in zip(shared.reads, are_constant, strict=True) if is_constant]
        steps = try_schedule(shared, self.spec, frozenset(constants))
        if steps is None:
            return None
        packed = {step.buffer: step.parts for step in steps if isinstance(step, Pack)}
        return _Scheduled(apply_schedule(shared, steps), packed)

    def _between(self, found: _Scheduled, shared: Kernel, kernel: Kernel) -> Kernel:
        """The scheduled nest with a kernel's own operands."""
        own: dict[Buffer, Buffer] = {}
        for old, new in zip((*shared.reads, *shared.writes), (*kernel.reads, *kernel.writes), strict=True):
            parts = found.packed.get(old.name)
            if parts is None:
                own[old] = new
            else:
                own[packed_buffer(old, parts)] = packed_buffer(new, parts)
                self.packed[packed_buffer(new, parts).name] = (new, parts)
        body = map_accesses(found.kernel.body, lambda buffer, indices: (own.get(buffer, buffer), indices))
        reads, writes = (tuple(own[buffer] for buffer in some) for some in (found.kernel.reads, found.kernel.writes))
        return replace(kernel, reads=reads, writes=writes, body=body)
