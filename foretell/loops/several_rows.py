"""Rows that are summed up and then read again, some at a time: while one waits for its sum, others go on.

    before: for r: { m = max_k x[r, k];  y[r, k] = exp(x[r, k] - m) }
    after:  for R: { for r < 8: m[r] = max_k x[8*R + r, k];  for r < 8: y[8*R + r, k] = exp(x[8*R + r, k] - m[r]) }

A row's greatest element is known only when all its vectors have gone through one chain of operations. The processor
sees some hundred instructions ahead: the rest of a short row, and little of the next one that it could do meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Axis, Buffer
from foretell.loops.nodes import Block, For, Statement, substitute_statement
from foretell.loops.plain_nests import Indices, map_accesses
from foretell.loops.stages import TensorStage

ROWS_AT_A_TIME = (8, 4)
MOST_ELEMENTS = 640
"""Of all rows that are done together. Longer rows are better done one by one: measured on Ice Lake, a softmax of 128
elements gains a tenth, one of 200 nothing, and one of 400 loses as much, since its rows come from further away. On Zen
3, with half as many lanes, one of 128 gains 7 %."""
LEAST_BLOCKS = 32
"""Blocks of rows that are left to threads to share."""


def several_rows(
    axes: tuple[Axis, ...],
    stages: Sequence[TensorStage],
    loops: Sequence[Statement],
    locals_: Sequence[Buffer],
) -> tuple[tuple[Axis, ...], Statement, Sequence[Buffer]]:
    """Outer axes, what is inside them, and the buffers kept there, for loops that go through one row after the other.

    Declines for rows that are long, few or of unknown length, and where one loop does all.
    """
    count = _rows_at_a_time(axes, stages) if len(loops) > 1 else 1
    if count == 1:
        return axes, Block(tuple(loops)), locals_
    *outer, row = axes
    blocks = Axis(Sym(f"{row.sym.name}.r", 0), expr.ceildiv(row.extent, count))
    inside = Sym(f"{row.sym.name}.s", 0, count - 1)
    own = {buffer: Buffer(buffer.name, buffer.dtype, (count, *buffer.shape), "stack") for buffer in locals_}

    def moved(buffer: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
        return (own[buffer], (inside, *indices)) if buffer in own else (buffer, indices)

    extent = expr.minimum(row.extent - blocks.sym * count, count)
    place = {row.sym: blocks.sym * count + inside}
    each = (substitute_statement(map_accesses(loop, moved), place) for loop in loops)
    body = Block(tuple(For(inside, extent, "serial", loop) for loop in each))
    return (*outer, blocks), body, list(own.values())


def _rows_at_a_time(axes: tuple[Axis, ...], stages: Sequence[TensorStage]) -> int:
    rows = expr.product(tuple(axis.extent for axis in axes))
    lengths = [expr.product(tuple(axis.extent for axis in _own_axes(stage, len(axes)))) for stage in stages]
    longest = max((length for length in lengths if isinstance(length, int)), default=0)
    if not axes or not isinstance(rows, int) or not all(isinstance(length, int) for length in lengths):
        return 1
    fitting = (count for count in ROWS_AT_A_TIME if count * longest <= MOST_ELEMENTS and count * LEAST_BLOCKS <= rows)
    return next(fitting, 1)


def _own_axes(stage: TensorStage, depth: int) -> tuple[Axis, ...]:
    return (*stage.axes[depth:], *stage.reduction_axes)
