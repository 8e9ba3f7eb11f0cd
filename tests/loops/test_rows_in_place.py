"""Rows that take the place of those they are made from, and rows that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from foretell.ir.dtypes import F32, F64
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Load, Scalar
from foretell.loops.cluster import Cluster
from foretell.loops.fuse import try_fuse, try_tiling
from foretell.loops.rows_in_place import rows_in_place
from foretell.loops.stages import TensorStage
from tests.graph.build_graphs import Sketch
from tests.loops.test_fuse import check_by_hand

ROWS, LENGTH = 8, 5
S, E, M, Y, X = (Buffer(n, F32, shape) for n, shape in zip("semyx", ((8, 5), (8, 5), (8,), (8,), (8, 5)), strict=True))
ROW, COLUMN = Axis(Sym("i", 0, ROWS - 1), ROWS), Axis(Sym("j", 0, LENGTH - 1), LENGTH)


def at(buffer: Buffer, *place: Dim) -> Load:
    return Load(buffer, place, buffer.dtype)


def stage(buffer: Buffer, axes: Sequence[Axis], body: Scalar, reduction: str | None = None) -> TensorStage:
    reduced = (COLUMN,) if reduction else ()
    return TensorStage(buffer, tuple(axes), body, reduction, reduced, tuple(axis.sym for axis in axes), "")


SCORE = Cluster((stage(S, (ROW, COLUMN), at(X, ROW.sym, COLUMN.sym)),), 2)
HIGHEST = stage(M, (ROW,), at(S, ROW.sym, COLUMN.sym), "max")
WEIGHT = stage(E, (ROW, COLUMN), Apply("sub", (at(S, ROW.sym, COLUMN.sym), at(M, ROW.sym))))
TOTAL = Cluster((stage(Y, (ROW,), at(E, ROW.sym, COLUMN.sym), "sum"),), 1)


def found(*stages: TensorStage, others: Sequence[Cluster] = ()) -> dict[Buffer, Buffer]:
    return rows_in_place([SCORE, Cluster(stages, 1), *others, TOTAL], {S, E})


def test_a_softmax_replaces_its_scores() -> None:
    assert found(HIGHEST, WEIGHT) == {E: S}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(at(S, ROW.sym, LENGTH - 1 - COLUMN.sym), id="another element"),
        pytest.param(Apply("add", (at(S, ROW.sym, COLUMN.sym), at(S, ROW.sym, 0))), id="its own and another element"),
        pytest.param(at(S, ROWS - 1 - ROW.sym, COLUMN.sym), id="another row"),
    ],
)
def test_other_places_are_read(body: Scalar) -> None:
    assert found(HIGHEST, replace(WEIGHT, body=body)) == {}


def test_rows_on_the_way_are_kept_in_the_new_ones() -> None:
    """softmax(s) + s: exponentials are stored where the result will be, and s is read after that."""
    z = Buffer("z", F32, (8, 5))
    last = stage(z, (ROW, COLUMN), Apply("add", (at(E, ROW.sym, COLUMN.sym), at(S, ROW.sym, COLUMN.sym))))
    assert rows_in_place([SCORE, Cluster((HIGHEST, WEIGHT, last), 1)], {S, z}) == {}


def test_a_softmax_beside_its_scores_in_one_kernel() -> None:
    sketch = Sketch()
    scores = sketch.op("MatMul", sketch.data(8, 6), sketch.weights(6, 5))
    both = sketch.op("Add", sketch.op("Softmax", scores, axis=1), scores)
    check_by_hand(sketch.graph(sketch.op("MatMul", both, sketch.weights(5, 7))), {0: 4})


def test_rows_are_read_elsewhere() -> None:
    z = Buffer("z", F32, (8,))
    late = stage(z, (ROW,), at(S, ROW.sym, COLUMN.sym), "sum")
    assert found(HIGHEST, WEIGHT, late) == {}
    assert found(HIGHEST, WEIGHT, others=[Cluster((late,), 1)]) == {}
    assert found(replace(HIGHEST, body=at(S, ROWS - 1 - ROW.sym, COLUMN.sym)), WEIGHT) == {}


def test_only_what_lies_between_nests_and_is_of_one_size() -> None:
    clusters = [SCORE, Cluster((HIGHEST, WEIGHT), 1), TOTAL]
    assert rows_in_place(clusters, {E}) == rows_in_place(clusters, {S}) == {}
    wider = replace(WEIGHT, buffer=Buffer("e", F64, (8, 5)))
    assert rows_in_place([SCORE, Cluster((HIGHEST, wider), 1)], {S, wider.buffer}) == {}


def test_points_have_no_rows() -> None:
    """They may be computed in blocks that overlap: twice from what they were made from, or from themselves."""
    points = Cluster((stage(E, (ROW, COLUMN), at(S, ROW.sym, COLUMN.sym)),), 2)
    assert rows_in_place([SCORE, points, TOTAL], {S, E}) == {}


def test_a_fused_kernel_keeps_one_of_them() -> None:
    clusters = [SCORE, Cluster((HIGHEST, WEIGHT), 1), TOTAL]
    fused = try_fuse(clusters, {0: 4})
    assert fused is not None
    assert {new.name: old.name for new, old in fused.in_place.items()} == {"e.near": "s.near"}
    tiling = try_tiling(TOTAL, {0: 4})
    for cluster in reversed(clusters[:-1]):
        tiling = None if tiling is None else tiling.with_cluster(cluster)
    assert tiling is not None and tiling.between_bytes == fused.between_bytes == 4 * LENGTH * 4
