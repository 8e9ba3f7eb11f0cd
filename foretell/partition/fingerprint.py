"""One name for runs of clusters that do the same: blocks of a network repeat, and each is looked at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.ir.tensor_expr import Buffer
from foretell.loops.canonical import canonical
from foretell.loops.cluster import Cluster
from foretell.loops.nodes import Block, For, Kernel, Statement, Store, distinct_loads
from foretell.loops.stages import TensorStage


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a cluster does, and the buffers it does it to."""

    text: str
    buffers: tuple[Buffer, ...]


def fingerprint(cluster: Cluster) -> Fingerprint:
    loads = distinct_loads([stage.body for stage in cluster.stages])
    reads = dict.fromkeys(load.source for load in loads if isinstance(load.source, Buffer))
    buffers = tuple(dict.fromkeys((*reads, *(stage.buffer for stage in cluster.stages))))
    nest = Kernel("k", buffers, (), Block(tuple(_loops(stage) for stage in cluster.stages)))
    reductions = ",".join(f"{stage.reduction}{len(stage.reduction_axes)}" for stage in cluster.stages)
    return Fingerprint(f"{cluster.depth} {reductions} {canonical(nest)}", buffers)


def _loops(stage: TensorStage) -> Statement:
    body: Statement = Store(stage.buffer, stage.place, stage.body)
    for axis in reversed((*stage.axes, *stage.reduction_axes)):
        body = For(axis.sym, axis.extent, "serial", body)
    return body


def run_key(fingerprints: Sequence[Fingerprint], classes: Sequence[frozenset[Buffer]]) -> object:
    """Equal for runs that do the same to buffers that are related, and belong to the classes, in the same way."""
    numbers: dict[Buffer, int] = {}
    for each in fingerprints:
        for buffer in each.buffers:
            numbers.setdefault(buffer, len(numbers))
    kinds = tuple(tuple(buffer in some for some in classes) for buffer in numbers)
    return tuple((each.text, tuple(numbers[buffer] for buffer in each.buffers)) for each in fingerprints), kinds
