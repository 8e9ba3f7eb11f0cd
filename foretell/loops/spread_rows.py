"""Rows that sums read side by side, at different places of the first cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foretell.ir.tensor_expr import Buffer, Load
from foretell.loops.nodes import distinct_loads, map_loads
from foretell.loops.place_lines import LINE_BYTES
from foretell.loops.stages import TensorStage, is_sum_of_products

FEW_PLACES = 2048
"""Rows at a distance of a multiple of this lie at two places of a way of 4096 bytes, or at one: of the rows of a tile,
more than there are ways push each other out."""


def spread_rows(stages: Sequence[TensorStage], kept: frozenset[Buffer]) -> list[TensorStage]:
    """Leave a line free behind each row of a buffer that sums of products read and whose rows would get in each other's
    way.

    before: x: f32[196, 1024];  y[i, j] = sum[k] x[i, k] * w[k, j]
    after:  x: f32[196, 1040];  the same

    Declines when x is visible outside or an input.
    """
    read = {load.source for stage in stages if is_sum_of_products(stage) for load in distinct_loads([stage.body])}
    wide = {stage.buffer: _widened(stage.buffer) for stage in stages if stage.buffer in read - kept}
    if all(buffer == other for buffer, other in wide.items()):
        return list(stages)

    def moved(load: Load) -> Load:
        return replace(load, source=wide.get(load.source, load.source)) if isinstance(load.source, Buffer) else load

    return [
        replace(stage, buffer=wide.get(stage.buffer, stage.buffer), body=map_loads(stage.body, moved))
        for stage in stages
    ]


def _widened(buffer: Buffer) -> Buffer:
    last = buffer.shape[-1] if len(buffer.shape) > 1 else 1
    row_bytes = last * buffer.dtype.itemsize if isinstance(last, int) else 1
    if row_bytes % FEW_PLACES:
        return buffer
    return replace(buffer, shape=(*buffer.shape[:-1], last + LINE_BYTES // buffer.dtype.itemsize))
