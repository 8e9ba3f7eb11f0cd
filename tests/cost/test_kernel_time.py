"""What predictions must obey, whatever the numbers of a machine are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretell.cost.kernel_time import BARRIER, COMPUTE, MEMORY, KernelTime, Surroundings, kernel_time
from foretell.target.resolve import Target, resolve_target
from tests.cost.test_traffic import EVERYTHING, product

ICE_LAKE = resolve_target("icelake-server")
ALONE = Surroundings()


def with_spec(**changes: object) -> Target:
    return Target(replace(ICE_LAKE.spec, **changes))  # pyright: ignore[reportArgumentType]


def test_terms() -> None:
    time = kernel_time(product(), ICE_LAKE, ALONE)
    assert set(time.terms) == {COMPUTE, "cache 2", "cache 3", MEMORY}
    assert time.bytes_touched == EVERYTHING
    assert time.flops == 2 * 32 * 8 * 64 * 16
    assert max(time.terms.values()) <= time.seconds <= sum(time.terms.values())
    assert time.terms[time.binds] == max(time.terms.values())
    assert time.low_s < time.seconds < time.high_s
    assert time.roofline_s <= time.seconds


def test_the_interval_holds_the_draft() -> None:
    """Where the two predictions agree, it is as wide as ever."""
    plain = kernel_time(product(), ICE_LAKE, ALONE)
    assert plain.draft_s == plain.seconds
    near, far = (kernel_time(product(), ICE_LAKE, ALONE, draft_s=part * plain.seconds) for part in (1.1, 3.0))
    assert (near.low_s, near.high_s) == (plain.low_s, plain.high_s)
    assert far.low_s == plain.low_s and far.high_s == far.draft_s == pytest.approx(3 * plain.seconds)
    three = kernel_time(product(), ICE_LAKE, Surroundings(3), draft_s=plain.seconds)
    assert three.draft_s == pytest.approx(plain.seconds * 3 / 8)


def test_the_same_kernel_is_predicted_alike() -> None:
    assert kernel_time(product(), ICE_LAKE, ALONE) == kernel_time(product(), ICE_LAKE, ALONE)


def test_a_faster_clock_shortens_what_cycles_count() -> None:
    slow, fast = kernel_time(product(), ICE_LAKE, ALONE), kernel_time(product(), with_spec(frequency_hz=5.2e9), ALONE)
    assert fast.terms[COMPUTE] == pytest.approx(slow.terms[COMPUTE] / 2)
    assert fast.terms["cache 2"] == pytest.approx(slow.terms["cache 2"] / 2)


def test_threads_share_the_work_and_meet() -> None:
    one, three = (kernel_time(product(), ICE_LAKE, Surroundings(threads)) for threads in (1, 3))
    assert three.terms[COMPUTE] == pytest.approx(one.terms[COMPUTE] * 3 / 8)  # of eight tasks, one thread has three
    assert three.terms[BARRIER] == ICE_LAKE.spec.barrier_cost_s and BARRIER not in one.terms


def test_constants_of_a_large_model_come_from_memory() -> None:
    small, large = (
        kernel_time(product(), ICE_LAKE, Surroundings(1, {"w"}, size_bytes)).terms[MEMORY] for size_bytes in (1e6, 1e9)
    )
    assert small == 0.0
    assert large == pytest.approx(8 * 64 * 16 * 4 / ICE_LAKE.spec.dram_core_bandwidth_bytes_per_s)


@pytest.mark.parametrize("name", ["neoverse-n1", "apple-m1", "znver3", "x86-64-v2"])
def test_machines_that_are_elsewhere(name: str) -> None:
    time: KernelTime = kernel_time(product(), resolve_target(name), ALONE)
    assert 1e-7 < time.seconds < 1e-3
