"""What a kernel takes: one nest, or several fused tile by tile.

Fusing saves the way of intermediate results through far caches and other cores, and a barrier; it costs what
neighbouring tiles compute twice, tiles of registers that fit smaller nests less well, and constants that are read again
for each tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from foretell.ir.tensor_expr import Axis, Buffer
from foretell.loops.cluster import Cluster
from foretell.loops.fuse import EACH, FIRST, LATER, Tiling
from foretell.loops.restrict import Restricted
from foretell.partition.nest_cost import NestCost, NestCosts, Operand
from foretell.search.near_memory import cycles_of_one, missed_share, second_cache_bytes

CROSS_BYTES_PER_CYCLE = 3.0
"""What one core reads of lines that another one has written; estimated from what pairs of kernels lose on Ice Lake."""
WRITING = 2.0
"""What writing takes over reading; picked by the speed of kernels so chosen on Zen 4, among 1, 1.5 and 2. Stores in a
row run as fast as loads there, so that it is not the lines themselves that take longer."""
NEST_CYCLES = 30.0
"""Beginning a nest of a tile: its addresses and the ends of its loops; estimated from one kernel on Zen 4."""
JUMP_CYCLES = 400.0
"""Waiting for the first lines of a run that is stored, if they are not near; estimated from one kernel on Ice Lake."""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Seconds of a core that a kernel keeps busy, or idle: the mean of running it on one core and on all.

    How many threads a model will have is not known, and what it computes must not depend on that.
    """

    seconds: float
    compute_s: float
    """What computing takes of it, whatever the caches do."""
    one_core_s: float
    """What it takes on one core alone."""


@dataclass(frozen=True, slots=True)
class GroupCosts:
    """`made` are buffers that kernels of the model fill: other cores may hold them."""

    nests: NestCosts
    made: frozenset[Buffer]
    visible: frozenset[Buffer]

    def alone(self, cluster: Cluster, key: object) -> GroupCost:
        """A nest that is its own kernel."""
        cost = self.nests.of(Restricted(cluster), self.visible, key)
        return self._mean(*self._nest(cost, (), frozenset(), frozenset(), 0.0), 1.0, cost.compute)

    def fused(
        self, tiling: Tiling, key: Callable[[int], object], known: dict[int, NestCost] | None = None
    ) -> GroupCost:
        """Nests that run in turn for each tile; the key tells clusters apart by how many come after them.

        What is known of a tiling helps with another one that differs in nothing but how many tiles are run in turn.
        """
        known = {} if known is None else known
        runs: list[tuple[NestCost, str]] = []
        for each, phase in tiling.runs():
            if id(each) not in known:
                known[id(each)] = self.nests.of(each, self.visible, key(each.place), tiling.tiles)
            runs.append((known[id(each)], phase))
        near, filled = tiling.between, tiling.filled
        later = 1 - 1 / tiling.steps if tiling.moved else 0.0
        shares = {EACH: 1.0, FIRST: 1 - later, LATER: later}
        again = (o for cost, phase in runs if phase != LATER for o in cost.reads if self._is_read_again(o, tiling))
        kept_bytes = tiling.between_bytes + sum(operand.size_bytes for operand in again)
        kept_bytes += sum(operand.size_bytes for cost, _ in runs for operand in cost.writes if operand.buffer in filled)
        cycles = crossing = compute = 0.0
        for cost, phase in runs:
            own, waiting = self._nest(cost, tiling.tiles, near, filled, kept_bytes)
            cycles += shares[phase] * own
            crossing += shares[phase] * waiting
            compute += shares[phase] * tiling.tile_count * cost.compute
        cycles += later * tiling.tile_count * 2 * self._far(tiling.moved_bytes, kept_bytes)
        cycles += tiling.tile_count * NEST_CYCLES * sum(shares[phase] for _, phase in runs)
        tasks, cores = tiling.tile_count / (tiling.steps if tiling.moved else 1), self.nests.spec.cores
        return self._mean(cycles, crossing, cores * -(-tasks // cores) / tasks, compute)

    def passing_s(self, buffer: Buffer) -> float:
        """What a kernel that reads a buffer takes for that, and for waiting until it is filled, at most."""
        spec, size = self.nests.spec, _size_bytes(buffer)
        cycles = self._far(size, size) + size * (1 - 1 / spec.cores) / CROSS_BYTES_PER_CYCLE / 2
        return cycles * spec.cycle_s + spec.cores * spec.barrier_cost_s / 2

    def _is_read_again(self, operand: Operand, tiling: Tiling) -> bool:
        """Whether the next tile reads it too: constants, and what tiles do not part."""
        if operand.buffer in tiling.between or operand.buffer in tiling.filled:
            return False
        return operand.buffer.name in self.nests.constants or all(
            axis.sym not in operand.tiles for axis in tiling.tiles
        )

    def _mean(self, cycles: float, crossing: float, idle: float, compute: float) -> GroupCost:
        spec = self.nests.spec
        on_all = (cycles + crossing) * idle * spec.cycle_s + spec.cores * spec.barrier_cost_s
        one_core_s = cycles * spec.cycle_s
        return GroupCost((one_core_s + on_all) / 2, compute * spec.cycle_s, one_core_s)

    def _nest(
        self,
        cost: NestCost,
        tiles: Sequence[Axis],
        near: frozenset[Buffer],
        filled: frozenset[Buffer],
        kept_bytes: float,
    ) -> tuple[float, float]:
        """Cycles for all tiles together, and those of waiting for other cores, where so many bytes are touched from one
        tile to the next; what is filled by another nest of the tile is near when it is read."""
        count = prod(int(axis.extent) for axis in tiles if isinstance(axis.extent, int))
        further = waiting = crossing = 0.0
        for operand in cost.reads:
            parts = 0 if operand.buffer in near or operand.buffer in filled else _parts(operand, tiles)
            known = self._far(operand.size_bytes, cost.near_bytes) if cost.near_bytes else 0.0
            first = self._in_runs(operand) * self._far(operand.size_bytes, _size_bytes(operand.buffer))
            again = self._far(operand.size_bytes, kept_bytes)
            further += parts * max(0.0, first - known) + (count - parts) * max(0.0, again - known)
            crossing += parts * self._crossing(operand)
        for operand in cost.writes:
            away = kept_bytes if operand.buffer in near else _size_bytes(operand.buffer)
            runs = 1.0 if operand.buffer in near else self._in_runs(operand)
            further += WRITING * count * runs * self._far(operand.size_bytes, away)
            waiting += count * self._jumping(operand, away)
        return count * cost.cycles(further / count) + waiting, crossing

    def _far(self, size_bytes: float, between_bytes: float) -> float:
        spec = self.nests.spec
        return spec.coefficients.between * cycles_of_one(spec, size_bytes, between_bytes)

    def _in_runs(self, operand: Operand) -> float:
        """What is moved over what is asked for: lines come in pairs, and the last of a run may be half in vain."""
        return 1.0 + self.nests.spec.caches[0].line_bytes / max(1.0, operand.run_bytes)

    def _jumping(self, operand: Operand, away: float) -> float:
        """Beginning runs of a result that no near cache holds: nothing has fetched their first lines.

        Runs so short that this would take longer than all their lines are begun side by side.
        """
        missed = missed_share(away, second_cache_bytes(self.nests.spec))
        return missed * min(JUMP_CYCLES * operand.pieces, self._far(operand.size_bytes, away)) if missed else 0.0

    def _crossing(self, operand: Operand) -> float:
        """Waiting for lines that other cores have written."""
        if operand.buffer not in self.made:
            return 0.0
        return operand.size_bytes * (1 - 1 / self.nests.spec.cores) / CROSS_BYTES_PER_CYCLE


def _parts(operand: Operand, tiles: Sequence[Axis]) -> int:
    """Distinct parts of an operand that tiles read."""
    return prod(int(axis.extent) for axis in tiles if axis.sym in operand.tiles and isinstance(axis.extent, int))


def _size_bytes(buffer: Buffer) -> float:
    """Of all of it, as far as sizes are known."""
    elements = 1.0
    for dim in buffer.shape:
        elements *= dim if isinstance(dim, int) else 1
    return elements * buffer.dtype.itemsize
