"""Inputs and outputs of a program in an order of dimensions of their own: a copy at the edge may transpose them.

    given:     y[n, o, h, w] = sum[c] x[n, c, h, w] * k[o, c]
    detached:  x'[n, c, h, w] = x[n, c, h, w];  y'[n, o, h, w] = sum[c] x'[n, c, h, w] * k[o, c];  y[...] = y'[...]

What callers pass and get is stored as they know it; the copies leave `choose_layouts` free to store what is between
them otherwise. Copies that it leaves as they are disappear again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretell.ir import expr
from foretell.ir.tensor_expr import Buffer, Load, axis_over
from foretell.loops.nodes import map_loads
from foretell.loops.stages import TensorStage

LEAST_RANK = 3
"""Matrices are read and written in either order as they are."""


@dataclass(frozen=True, slots=True)
class Detached:
    """Stages between copies, and the copies: what each is called, and the buffer outside that it stands for."""

    stages: list[TensorStage]
    inputs: dict[str, Buffer]
    outputs: dict[str, Buffer]

    def is_edge(self, stage: TensorStage) -> bool:
        """Whether a stage is one of the copies."""
        source = stage.body.source if isinstance(stage.body, Load) else None
        if not isinstance(source, Buffer):
            return False
        return self.inputs.get(stage.buffer.name) == source or self.outputs.get(source.name) == stage.buffer


def detach_edges(stages: Sequence[TensorStage], kept: frozenset[Buffer], constants: frozenset[str]) -> Detached:
    """The stages between copies of what they read from outside and of what is read there.

    Declines for tensors of which data decides what is read, those written in parts, and matrices.
    """
    inputs = {outside: _own(outside) for outside in _inputs(stages, constants)}
    outputs = {outside: _own(outside) for outside in _outputs(stages, kept)}
    own = inputs | outputs
    result = [_copy(source, inside) for source, inside in inputs.items()]
    for stage in stages:
        result.append(_renamed(stage, own))
        if stage.buffer in outputs:
            result.append(_copy(outputs[stage.buffer], stage.buffer))
    return Detached(
        result,
        {inside.name: outside for outside, inside in inputs.items()},
        {inside.name: outside for outside, inside in outputs.items()},
    )


def attach_edges(stages: Sequence[TensorStage], detached: Detached) -> list[TensorStage]:
    """The stages, in whatever order of dimensions, without the copies that transpose nothing."""
    outside: dict[Buffer, Buffer] = {}
    dropped: set[Buffer] = set()
    for stage in stages:
        if not isinstance(stage.body, Load) or not detached.is_edge(stage) or stage.body.indices != stage.place:
            continue
        source = stage.body.source
        assert isinstance(source, Buffer)
        dropped.add(stage.buffer)
        if stage.buffer.name in detached.inputs:
            outside[stage.buffer] = source
        else:
            outside[source] = stage.buffer
    return [_renamed(stage, outside) for stage in stages if stage.buffer not in dropped]


def _own(buffer: Buffer) -> Buffer:
    return replace(buffer, name=f"{buffer.name}.inside")


def _inputs(stages: Sequence[TensorStage], constants: frozenset[str]) -> list[Buffer]:
    """What is read here but not made here, wherever no data decides what is read."""
    made = {stage.buffer for stage in stages}
    read: dict[Buffer, bool] = {}
    for stage in stages:
        for load in reversed(stage.loads):
            source = load.source
            if isinstance(source, Buffer) and source not in made and source.name not in constants:
                is_plain = all(isinstance(index, (int, expr.Expr)) for index in load.indices)
                read[source] = read.get(source, True) and is_plain
    return [buffer for buffer, is_plain in read.items() if is_plain and len(buffer.shape) >= LEAST_RANK]


def _outputs(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> list[Buffer]:
    """What is read elsewhere and filled here by one stage alone."""
    filled: dict[Buffer, list[TensorStage]] = {}
    for stage in stages:
        filled.setdefault(stage.buffer, []).append(stage)
    return [
        buffer
        for buffer, writers in filled.items()
        if buffer in kept and len(buffer.shape) >= LEAST_RANK and len(writers) == 1 and writers[0].is_whole
    ]


def _copy(source: Buffer, target: Buffer) -> TensorStage:
    axes = tuple(axis_over(dim, f"e{number}.{target.name}") for number, dim in enumerate(source.shape))
    place = tuple(axis.sym for axis in axes)
    return TensorStage(target, axes, Load(source, place, source.dtype), None, (), place, "")


def _renamed(stage: TensorStage, names: dict[Buffer, Buffer]) -> TensorStage:
    def renamed(load: Load) -> Load:
        assert isinstance(load.source, Buffer)
        return Load(names.get(load.source, load.source), load.indices, load.dtype)

    return replace(stage, buffer=names.get(stage.buffer, stage.buffer), body=map_loads(stage.body, renamed))
