"""Nests of one fused kernel, run in turn for each tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from foretell.ir import expr
from foretell.ir.tensor_expr import Buffer
from foretell.loops.axes import join_axes
from foretell.loops.fuse import Fused
from foretell.loops.nodes import Allocate, Block, For, Guard, Kernel, Statement, offset, substitute_statement
from foretell.loops.plain_nests import Indices, map_accesses


def join_nests(fused: Fused, nests: Sequence[Kernel]) -> Kernel:
    """One kernel: a parallel loop over tiles, and in it each nest; buffers between them are arrays on the stack.

    before: kernel a(x) -> t {A};  kernel b(t) -> y {B}
    after:  kernel b(x) -> y { for tile parallel: t in stack;  A;  B }
    """
    near = {buffer.name: _flat(buffer) for buffer in fused.between}
    for new, old in fused.in_place.items():
        near[new.name] = near[old.name]

    def moved(buffer: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
        if buffer.name not in near:
            return buffer, indices
        plain = tuple(index for index in indices if isinstance(index, (int, expr.Expr)))
        assert len(plain) == len(indices), f"data decides what is read of {buffer}"
        return near[buffer.name], (offset(buffer.shape, plain),)

    statements: list[Statement] = []
    for member, nest in zip(fused.members, nests, strict=True):
        body = map_accesses(_serial(nest.body), moved)
        statements.append(body if member.condition is None else Guard(member.condition, body))
    inside: Statement = Block(tuple(statements))
    for buffer in reversed(dict.fromkeys(near.values())):
        inside = Allocate(buffer, inside)
    tiles, bindings = join_axes(fused.tiles)
    loop = For(tiles.sym, tiles.extent, "parallel", substitute_statement(inside, bindings))
    writes = dict.fromkeys(buffer for nest in nests for buffer in nest.writes if buffer.name not in near)
    others = near.keys() | {buffer.name for buffer in writes}
    reads = dict.fromkeys(buffer for nest in nests for buffer in nest.reads if buffer.name not in others)
    return replace(nests[-1], reads=tuple(reads), writes=tuple(writes), body=loop)


def _flat(buffer: Buffer) -> Buffer:
    """The buffer as one run on the stack: nests see its dimensions in different ways."""
    return Buffer(buffer.name, buffer.dtype, (prod(dim for dim in buffer.shape if isinstance(dim, int)),), "stack")


def _serial(nest: Statement) -> Statement:
    return replace(nest, kind="serial") if isinstance(nest, For) and nest.kind == "parallel" else nest
