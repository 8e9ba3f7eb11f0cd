"""One name for runs of clusters that do the same: blocks of a network repeat, and each is looked at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from foretell.ir.tensor_expr import Axis, Buffer
from foretell.loops.canonical import canonical
from foretell.loops.cluster import Cluster
from foretell.loops.nodes import Block, For, Kernel, Statement, Store
from foretell.loops.stages import TensorStage


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a cluster does, and the buffers it does it to."""

    text: str
    buffers: tuple[Buffer, ...]


def fingerprint(cluster: Cluster) -> Fingerprint:
    reads = dict.fromkeys(load.source for load in cluster.loads if isinstance(load.source, Buffer))
    buffers = tuple(dict.fromkeys((*reads, *(stage.buffer for stage in cluster.stages))))
    alike = groupby(cluster.unified.stages, key=lambda stage: (*stage.axes, *stage.reduction_axes))
    nest = Kernel("k", buffers, (), Block(tuple(_loops(axes, stages) for axes, stages in alike)))
    reductions = ",".join(f"{stage.reduction}{len(stage.reduction_axes)}" for stage in cluster.stages)
    return Fingerprint(f"{cluster.depth} {reductions} {canonical(nest)}", buffers)


def _loops(axes: Sequence[Axis], stages: Iterable[TensorStage]) -> Statement:
    body: Statement = Block(tuple(Store(stage.buffer, stage.place, stage.body) for stage in stages))
    for axis in reversed(axes):
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
