"""Memory plans: tensors that live at the same time never share a byte, and others do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretell.runtime.arena import ALIGNMENT, Arena, lifetimes, plan_arena

Kernels = list[tuple[list[int], list[int]]]


@st.composite
def programs(draw: st.DrawFn) -> Kernels:
    """Kernels that each write one or two tensors and read some written before."""
    kernels: Kernels = []
    count = 0
    for _ in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.integers(0, count - 1), max_size=3)) if count else []
        writes = [count + number for number in range(draw(st.integers(1, 2)))]
        count += len(writes)
        kernels.append((writes, reads))
    return kernels


def overlaps(left: tuple[int, int], right: tuple[int, int]) -> bool:
    return left[0] <= right[1] and right[0] <= left[1]


def bytes_of(arena: Arena, sizes: dict[int, int], slot: int) -> tuple[int, int]:
    """The first and last byte of a tensor; an empty one has an address of its own too."""
    return arena.offsets[slot], arena.offsets[slot] + max(1, sizes[slot]) - 1


@given(programs(), st.data())
def test_no_two_live_tensors_overlap(kernels: Kernels, data: st.DataObject) -> None:
    lives = lifetimes(kernels)
    sizes = {slot: data.draw(st.integers(0, 1000)) for slot in lives}
    arena = plan_arena(lives, sizes)
    for slot in lives:
        first, last = bytes_of(arena, sizes, slot)
        assert first % ALIGNMENT == 0
        assert first >= 0 and last < arena.total_bytes
        for other in lives:
            if other != slot and overlaps(lives[slot], lives[other]):
                assert not overlaps((first, last), bytes_of(arena, sizes, other))


@given(programs(), st.data())
def test_the_plan_is_no_larger_than_all_tensors_and_no_smaller_than_those_alive(
    kernels: Kernels, data: st.DataObject
) -> None:
    lives = lifetimes(kernels)
    sizes = {slot: data.draw(st.integers(1, 20)) * ALIGNMENT for slot in lives}
    total = plan_arena(lives, sizes).total_bytes
    alive = [sum(sizes[s] for s in lives if lives[s][0] <= time <= lives[s][1]) for time in range(len(kernels))]
    assert max(alive) <= total <= sum(sizes.values())


def test_a_chain_needs_two_tensors_at_a_time() -> None:
    kernels = [([slot], [slot - 1] if slot else []) for slot in range(10)]
    lives = lifetimes(kernels)
    assert plan_arena(lives, dict.fromkeys(lives, 4096)).total_bytes == 2 * 4096


def test_a_tensor_lives_from_its_first_write_to_its_last_use() -> None:
    kernels = [([0], []), ([0], []), ([1], [0]), ([2], [1]), ([3], [0, 2])]
    assert lifetimes(kernels) == {0: (0, 4), 1: (2, 3), 2: (3, 4), 3: (4, 4)}


def test_inputs_and_constants_have_no_place() -> None:
    assert lifetimes([([5], [1, 2])]) == {5: (0, 0)}


@given(programs(), st.integers(1, 1000))
def test_the_same_program_gives_the_same_plan(kernels: Kernels, size: int) -> None:
    lives = lifetimes(kernels)
    backwards = dict(reversed(list(lives.items())))
    assert plan_arena(lives, dict.fromkeys(lives, size)) == plan_arena(backwards, dict.fromkeys(backwards, size))
