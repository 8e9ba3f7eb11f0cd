from __future__ import annotations

import dataclasses
import json

import pytest

from foretell.target.hardware_spec import CacheLevel, HardwareSpec, with_cores, with_features

SPEC = HardwareSpec(
    name="x",
    triple="x86_64-unknown-linux-gnu",
    cpu="x",
    features=("avx", "avx2", "avx512f", "fma"),
    vector_bytes=64,
    unit_bytes=64,
    vector_registers=32,
    fma_ports=2,
    add_ports=0,
    fma_latency_cycles=4,
    load_ports=2,
    loads_per_cycle=2.0,
    store_ports=1,
    frequency_hz=2e9,
    caches=(CacheLevel(32768, 64, 1, 128.0), CacheLevel(1 << 20, 64, 1, 48.0)),
    cores=4,
    dram_bandwidth_bytes_per_s=40e9,
    dram_core_bandwidth_bytes_per_s=15e9,
    barrier_cost_s=1e-6,
)


@pytest.mark.parametrize(("bits", "lanes"), [(8, 64), (16, 32), (32, 16), (64, 8), (1024, 1)])
def test_vector_lanes(bits: int, lanes: int) -> None:
    assert SPEC.vector_lanes(bits) == lanes


def test_a_scalar_machine_has_one_lane() -> None:
    scalar = dataclasses.replace(SPEC, vector_bytes=0)
    assert scalar.vector_lanes(32) == 1
    assert scalar.peak_flops_per_s() == 2 * 2 * 2e9


def test_derived_facts() -> None:
    assert SPEC.architecture == "x86_64"
    assert SPEC.fma_accumulators == 8
    assert SPEC.cycle_s == 0.5e-9
    assert SPEC.peak_flops_per_s(32) == 2 * 2 * 16 * 2e9
    assert SPEC.peak_flops_per_s(64, cores=4) == 2 * 2 * 8 * 2e9 * 4
    assert SPEC.cache_bandwidth_bytes_per_s(1) == 96e9


def test_to_json_round_trips_through_text() -> None:
    assert json.loads(json.dumps(SPEC.to_json()))["caches"][0]["size_bytes"] == 32768


@pytest.mark.parametrize(
    ("features", "vector_bytes", "registers"),
    [(("avx", "avx2", "avx512f", "fma"), 64, 32), (("fma", "avx2", "avx"), 32, 16), ((), 16, 16)],
)
def test_losing_features_narrows_the_vectors(features: tuple[str, ...], vector_bytes: int, registers: int) -> None:
    changed = with_features(SPEC, features)
    assert (changed.vector_bytes, changed.vector_registers) == (vector_bytes, registers)
    assert changed.features == tuple(sorted(features))


def test_the_same_features_change_nothing() -> None:
    assert with_features(SPEC, SPEC.features) is SPEC


def test_few_cores_cannot_draw_all_bandwidth() -> None:
    assert with_cores(SPEC, 2).dram_bandwidth_bytes_per_s == 30e9
    assert with_cores(SPEC, 3).dram_bandwidth_bytes_per_s == 40e9
    assert with_cores(SPEC, 2).barrier_cost_s < SPEC.barrier_cost_s < with_cores(SPEC, 8).barrier_cost_s
    assert with_cores(SPEC, 4) == SPEC
