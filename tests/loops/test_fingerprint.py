"""Tests of names for clusters that do the same."""

from __future__ import annotations

from foretell.ir.dtypes import F32
from foretell.ir.tensor_expr import Apply, Axis, Buffer, Load, Scalar, axis_over
from foretell.loops.cluster import Cluster
from foretell.loops.fingerprint import run_key
from foretell.loops.stages import TensorStage


def doubled(source: str, target: str, axis: Axis) -> Cluster:
    """target[i] = source[i] * source[i], both one object."""
    read = Load(Buffer(source, F32, (axis.extent,)), (axis.sym,), F32)
    return points(target, axis, Apply("mul", (read, read)))


def points(target: str, axis: Axis, body: Scalar) -> Cluster:
    stage = TensorStage(Buffer(target, F32, (axis.extent,)), (axis,), body, None, (), (axis.sym,), "")
    return Cluster((stage,), 1)


def test_names_of_buffers_and_axes_make_no_difference() -> None:
    one, other = doubled("a", "b", axis_over(8, "i.1")), doubled("c", "d", axis_over(8, "z.9"))
    assert one.fingerprint.text == other.fingerprint.text
    assert [buffer.name for buffer in other.fingerprint.buffers] == ["c", "d"]


def test_parts_are_written_once_whether_they_are_one_object_or_equal() -> None:
    axis = axis_over(8, "i")
    reads = [Load(Buffer("a", F32, (8,)), (axis.sym,), F32) for _ in range(2)]
    apart = points("b", axis, Apply("mul", (reads[0], reads[1])))
    assert apart.fingerprint.text == doubled("a", "b", axis).fingerprint.text
    assert apart.fingerprint.text.count("b0[s0]") == 1


def test_sizes_operations_and_buffers_that_are_the_same_make_a_difference() -> None:
    axis = axis_over(8, "i")
    one, longer = doubled("a", "b", axis), doubled("a", "b", axis_over(9, "i"))
    read = Load(Buffer("a", F32, (8,)), (axis.sym,), F32)
    added = points("b", axis, Apply("add", (read, read)))
    two = points("b", axis, Apply("mul", (read, Load(Buffer("c", F32, (8,)), (axis.sym,), F32))))
    assert len({each.fingerprint.text for each in (one, longer, added, two)}) == 4


def test_runs_are_told_apart_by_what_they_have_in_common_and_by_classes() -> None:
    axis = axis_over(8, "i")
    first, after, beside = doubled("a", "b", axis), doubled("b", "c", axis), doubled("x", "c", axis)
    prints = [first.fingerprint, after.fingerprint]
    assert run_key(prints, ()) != run_key([first.fingerprint, beside.fingerprint], ())
    assert run_key(prints, (frozenset(after.buffers),)) != run_key(prints, (frozenset(first.buffers),))
