"""Schedules for the nests of a whole program: layers repeat, and each distinct nest is scheduled once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer
from foretell.loops.canonical import canonical
from foretell.loops.nodes import Kernel, free_symbols, substitute_statement
from foretell.loops.plain_nests import map_accesses
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.pack import Part, packed_buffer
from foretell.schedule.steps import Pack, Parallelise, Schedule, apply_schedule
from foretell.search.records import workload_name
from foretell.search.schedule_contraction import try_schedule
from foretell.target.hardware_spec import HardwareSpec, with_cores

Packing: TypeAlias = tuple[Buffer, tuple[Part, ...]]
"""A constant and the order in which it is stored."""


Recorded: TypeAlias = Callable[[str], Schedule | None]
"""The schedule that was measured to be fastest for a workload, if any was measured."""


@dataclass(frozen=True, slots=True)
class Nest:
    """A plain nest between operands called b0, b1, ..., as a schedule is asked for it."""

    workload: str
    kernel: Kernel
    constants: frozenset[str]

    @property
    def title(self) -> str:
        """What it reads and writes, for people."""
        reads, writes = (", ".join(str(b.type) for b in some) for some in (self.kernel.reads, self.kernel.writes))
        return f"{reads} -> {writes}"


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
    recorded: Recorded | None = None
    is_inside: bool = False
    """Whether nests run inside tiles of a kernel, which threads share already."""
    packed: dict[str, Packing] = field(default_factory=dict)
    nests: dict[str, Nest] = field(default_factory=dict)
    """Distinct nests that schedules were asked for, by workload."""
    counts: dict[str, int] = field(default_factory=dict)
    """How often each was asked for."""
    _known: dict[str, _Scheduled | None] = field(default_factory=dict)

    def __call__(self, kernel: Kernel) -> Kernel | None:
        """The nest that should be fastest; None if no schedule suits it."""
        shared = canonical(kernel)
        are_constant = tuple(buffer.name in self.constants for buffer in kernel.reads)
        name = workload_name(shared, are_constant)
        if name not in self.nests:
            constants = (
                buffer.name for buffer, is_constant in zip(shared.reads, are_constant, strict=True) if is_constant
            )
            alone = _at_first_tile(shared) if self.is_inside else shared
            self.nests[name] = Nest(name, alone, frozenset(constants))
            self._known[name] = self._schedule(self.nests[name], shared)
        self.counts[name] = self.counts.get(name, 0) + 1
        found = self._known[name]
        return None if found is None else self._between(found, shared, kernel)

    def _schedule(self, nest: Nest, shared: Kernel) -> _Scheduled | None:
        recorded = self.recorded(nest.workload) if self.recorded is not None else None
        if recorded is not None:
            try:
                return self._scheduled(shared, recorded)
            except IllegalStep:  # it was recorded by a version whose steps were others
                pass
        steps = try_schedule(shared, with_cores(self.spec, 1) if self.is_inside else self.spec, nest.constants)
        return None if steps is None else self._scheduled(shared, steps)

    def _scheduled(self, nest: Kernel, steps: Schedule) -> _Scheduled:
        if self.is_inside:
            steps = tuple(step for step in steps if not isinstance(step, Parallelise))
        packed = {step.buffer: step.parts for step in steps if isinstance(step, Pack)}
        return _Scheduled(apply_schedule(nest, steps), packed)

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


def _at_first_tile(nest: Kernel) -> Kernel:
    """A nest that runs inside tiles, by itself: its only free symbols are the numbers of tiles."""
    first: dict[Sym, Dim] = dict.fromkeys(free_symbols(nest), 0)
    return replace(nest, body=substitute_statement(nest.body, first))
