"""Rows that replace the ones they are made from: between the nests of a kernel, one buffer may serve for two.

A softmax reads a row for its greatest element, and once more for the exponentials; after that nobody asks for the row.
Stored in its place, they need no room of their own in the caches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set

from foretell.ir import expr
from foretell.ir.tensor_expr import Buffer, Load
from foretell.loops.cluster import Cluster
from foretell.loops.stages import TensorStage


def rows_in_place(clusters: Sequence[Cluster], between: Set[Buffer]) -> dict[Buffer, Buffer]:
    """Buffers filled row by row, each with the one of the same size whose rows it may replace.

    before: m = max[j] s[i, j];  e[i, j] = exp(s[i, j] - m)      after: m = max[j] s[i, j];  s[i, j] = exp(s[i, j] - m)

    Declines where another nest reads the old rows, or this one does so for another row or once the new one is begun:
    rows that others of the nest are made into may be kept in its place before (`lower._rows_in_outputs`).
    """
    readers = Counter(buffer for cluster in clusters for buffer in _sources(cluster.loads))
    writers = Counter(stage.buffer for cluster in clusters for stage in cluster.stages)
    replaced: dict[Buffer, Buffer] = {}
    for cluster in clusters:
        for number, stage in enumerate(cluster.stages):
            if stage.buffer not in between or len(stage.axes) == cluster.depth or writers[stage.buffer] > 1:
                continue
            for old in _sources(stage.loads):
                is_free = old in between and old not in cluster.buffers and readers[old] == 1
                if is_free and old.type == stage.buffer.type and _is_read_before(old, cluster, number):
                    replaced[stage.buffer] = old
                    break
    return replaced


def _sources(loads: Iterable[Load]) -> dict[Buffer, None]:
    return {load.source: None for load in loads if isinstance(load.source, Buffer)}


def _is_read_before(old: Buffer, cluster: Cluster, number: int) -> bool:
    """Whether a stage reads a buffer only where it stores, those before it in the same row, and those after it not."""
    stage = cluster.stages[number]
    shared = frozenset(axis.sym for axis in stage.axes[: cluster.depth] if axis.extent != 1)
    rows = [place for place, index in enumerate(stage.place) if expr.symbols(index) & shared]
    inner = {other.buffer for other in cluster.stages if len(other.axes) > cluster.depth}
    if stage.reduction is not None or len(rows) < len(shared) or inner & _sources(stage.loads).keys():
        return False
    for other, each in enumerate(cluster.stages):
        for load in each.loads:
            if load.source == old and not (other <= number and _is_in_row(load, stage, rows, other == number)):
                return False
    return True


def _is_in_row(load: Load, stage: TensorStage, rows: Sequence[int], is_own: bool) -> bool:
    if is_own:
        return load.indices == stage.place
    return all(load.indices[place] == stage.place[place] for place in rows)
