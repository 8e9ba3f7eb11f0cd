"""Nests of one fused kernel, run in turn for each tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from foretell.ir import expr
from foretell.ir.expr import Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Index, Load, Scalar
from foretell.loops.axes import join_axes
from foretell.loops.fuse import EACH, FIRST, LATER, Fused, Moved
from foretell.loops.nodes import Allocate, Block, For, Guard, Kernel, Statement, Store, offset, substitute_statement
from foretell.loops.plain_nests import Indices, map_accesses


def join_nests(fused: Fused, nests: Sequence[Kernel]) -> Kernel:
    """One kernel: a parallel loop over tiles, and in it each nest; buffers between them are arrays on the stack.

    before: kernel a(x) -> t {A};  kernel b(t) -> y {B}
    after:  kernel b(x) -> y { for tile parallel: t in stack;  A;  B }

    Where tiles find rows that the one before has left, several of them run in turn inside the parallel loop.
    """
    near = {buffer.name: _flat(buffer, "stack") for buffer in fused.between}
    for new, old in fused.in_place.items():
        near[new.name] = near[old.name]
    kept = {buffer.name: _flat(buffer, "table") for buffer in fused.kept}

    def moved(buffer: Buffer, indices: Indices) -> tuple[Buffer, Indices]:
        flat = near.get(buffer.name) or kept.get(buffer.name)
        if flat is None:
            return buffer, indices
        plain = tuple(index for index in indices if isinstance(index, (int, expr.Expr)))
        assert len(plain) == len(indices), f"data decides what is read of {buffer}"
        return flat, (offset(buffer.shape, plain),)

    turn = Axis(Sym("turn", 0, fused.steps - 1), fused.steps)
    left = {each.buffer.name: each for each in fused.moved}
    statements: list[Statement] = []
    for member, nest in zip(fused.members, nests, strict=True):
        body = map_accesses(_serial(nest.body), moved)
        body = body if member.condition is None else Guard(member.condition, body)
        if member.phase == LATER:
            found = [left.pop(stage.buffer.name) for stage in member.cluster.stages if stage.buffer.name in left]
            body = Block((*(_move(each, near[each.buffer.name]) for each in found), body))
        statements.append(body if member.phase == EACH else Guard(_is_in(member.phase, turn), body))
    inside: Statement = Block(tuple(statements))
    axes = _in_turns(fused)
    tiles, bindings = join_axes(axes)
    if fused.steps > 1:
        bindings[fused.tiles[-1].sym] = bindings.get(axes[-1].sym, tiles.sym) * fused.steps + turn.sym
        inside = For(turn.sym, turn.extent, "serial", inside)
    for buffer in reversed(dict.fromkeys(near.values())):
        inside = Allocate(buffer, inside)
    loop = For(tiles.sym, tiles.extent, "parallel", substitute_statement(inside, bindings))
    filled = [buffer for nest in nests for buffer in nest.writes if buffer.name not in near]
    writes = dict.fromkeys(kept.get(buffer.name, buffer) for buffer in filled)
    others = near.keys() | {buffer.name for buffer in writes}
    reads = dict.fromkeys(buffer for nest in nests for buffer in nest.reads if buffer.name not in others)
    return replace(nests[-1], reads=tuple(reads), writes=tuple(writes), body=loop)


def _in_turns(fused: Fused) -> tuple[Axis, ...]:
    """The axes of tiles, the last one in steps: what runs in any order."""
    *outer, last = fused.tiles
    if fused.steps == 1:
        return fused.tiles
    count = last.extent // fused.steps
    _, high = expr.bounds(count)
    return (*outer, Axis(Sym(f"{last.sym.name}.turns", 0, None if high is None else high - 1), count))


def _is_in(phase: str, turn: Axis) -> Scalar:
    return Apply("lt" if phase == FIRST else "ge", (Index(turn.sym), Index(1)))


def _move(rows: Moved, flat: Buffer) -> Statement:
    """Move what the tile before has left to where this one looks for it: forwards, so that none is lost."""
    shape = [dim for dim in rows.buffer.shape if isinstance(dim, int)]
    inner, count = prod(shape[rows.dimension + 1 :]), prod(shape[: rows.dimension])
    outer, element = Sym("outer", 0, count - 1), Sym("element", 0, rows.rows.extent * inner - 1)
    to = outer * (shape[rows.dimension] * inner) + rows.rows.start * inner + element
    store = Store(flat, (to,), Load(flat, (to + rows.by * inner,), flat.dtype))
    loop = For(outer, count, "serial", For(element, rows.rows.extent * inner, "vector", store))
    return loop if count > 1 else substitute_statement(loop.body, {outer: 0})


def _flat(buffer: Buffer, scope: str) -> Buffer:
    """The buffer as one run: nests see its dimensions in different ways."""
    return Buffer(buffer.name, buffer.dtype, (prod(dim for dim in buffer.shape if isinstance(dim, int)),), scope)


def _serial(nest: Statement) -> Statement:
    return replace(nest, kind="serial") if isinstance(nest, For) and nest.kind == "parallel" else nest
