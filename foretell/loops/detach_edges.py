"""Inputs and outputs of a program in an order of dimensions of their own: a copy at the edge may transpose them.

    given:     y[n, o, h, w] = sum[c] x[n, c, h, w] * k[o, c]
    detached:  x'[n, c, h, w] = x[n, c, h, w];  y'[n, o, h, w] = sum[c] x'[n, c, h, w] * k[o, c];  y[...] = y'[...]

What callers pass and get is stored as they know it; the copies leave `choose_layouts` free to store what is between
them otherwise. Copies that it leaves as they are disappear again.

    given:     y[n, o, h, w] = sum[c] x[n, c, 2*h, 2*w] * k[o, c]
    detached:  x'[n, c, h, w] = x[n, c, 2*h, 2*w];  ...

Where sums of products read only every second element, or fewer, nothing else is copied, and the copy stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TypeAlias

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Buffer, Load, Scalar, axis_over
from foretell.loops.nodes import map_loads
from foretell.loops.stages import TensorStage, is_sum_of_products

Steps: TypeAlias = tuple[int, ...]

LEAST_RANK = 3
"""Matrices are read and written in either order as they are."""


@dataclass(frozen=True, slots=True)
class Detached:
    """Stages between copies, and the copies of all of a tensor: what each is called, and the buffer outside that it
    stands for."""

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
    steps = {outside: _steps(outside, stages) for outside in _inputs(stages, constants)}
    inputs = {outside: _own(outside, apart) for outside, apart in steps.items()}
    outputs = {outside: _own(outside, _all_of(outside)) for outside in _outputs(stages, kept)}
    own = inputs | outputs
    result = [_copy(source, inside, steps[source]) for source, inside in inputs.items()]
    for stage in stages:
        result.append(_renamed(stage, own, steps))
        if stage.buffer in outputs:
            result.append(_copy(outputs[stage.buffer], stage.buffer, _all_of(stage.buffer)))
    return Detached(
        result,
        {inside.name: outside for outside, inside in inputs.items() if steps[outside] == _all_of(outside)},
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
    return [_renamed(stage, outside, {}) for stage in stages if stage.buffer not in dropped]


def _own(buffer: Buffer, steps: Steps) -> Buffer:
    shape = tuple(expr.ceildiv(dim, step) for dim, step in zip(buffer.shape, steps, strict=True))
    return replace(buffer, name=f"{buffer.name}.inside", shape=shape)


def _all_of(buffer: Buffer) -> Steps:
    return (1,) * len(buffer.shape)


def _steps(source: Buffer, stages: Sequence[TensorStage]) -> Steps:
    """How far apart what is read lies along each dimension, if sums of products alone read it."""
    found = [0] * len(source.shape)
    for stage in stages:
        for load in stage.loads:
            if load.source != source:
                continue
            if not is_sum_of_products(stage):
                return _all_of(source)
            found = [gcd(apart, _step(index, stage)) for apart, index in zip(found, load.indices, strict=True)]
    return tuple(apart or 1 for apart in found)


def _step(index: Dim | Scalar, stage: TensorStage) -> int:
    """What an index that moves is a multiple of; 0 if it is always 0."""
    if not isinstance(index, (int, expr.Expr)):
        return 1
    single: dict[Sym, Dim] = {axis.sym: 0 for axis in (*stage.axes, *stage.reduction_axes) if axis.extent == 1}
    index = expr.substitute(index, single)
    if isinstance(index, int):
        return min(1, abs(index))
    return gcd(*(coefficient for _, coefficient in expr.terms_of(index)))


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


def _copy(source: Buffer, target: Buffer, steps: Steps) -> TensorStage:
    axes = tuple(axis_over(dim, f"e{number}.{target.name}") for number, dim in enumerate(target.shape))
    place = tuple(axis.sym for axis in axes)
    read = tuple(sym * step for sym, step in zip(place, steps, strict=True))
    return TensorStage(target, axes, Load(source, read, source.dtype), None, (), place, "")


def _renamed(stage: TensorStage, names: Mapping[Buffer, Buffer], steps: Mapping[Buffer, Steps]) -> TensorStage:
    def renamed(load: Load) -> Load:
        assert isinstance(load.source, Buffer)
        apart = steps.get(load.source, (1,) * len(load.indices))
        indices = tuple(map(_divided, load.indices, apart))
        return Load(names.get(load.source, load.source), indices, load.dtype)

    return replace(stage, buffer=names.get(stage.buffer, stage.buffer), body=map_loads(stage.body, renamed))


def _divided(index: Dim | Scalar, step: int) -> Dim | Scalar:
    return index // step if step > 1 and isinstance(index, (int, expr.Expr)) else index
