"""The bounds against what one can work out by hand."""

from __future__ import annotations

import pytest

from foretell.cost.assembly import Instruction, split_operands
from foretell.cost.decode_x86 import decode_x86
from foretell.cost.instruction import Decoded
from foretell.cost.machine_bound import Core, Form, chain_bound, core_of, machine_time, port_bound
from foretell.target.resolve import resolve_target
from tests.cost.test_machine_loops import only_kernel, tiled_product

ICE_LAKE = core_of(resolve_target("icelake-server").spec)
TOY = Core(
    issue_width=4,
    forms={"fma": (Form(("a", "b"), 4),), "add": (Form(("a",), 3),), "shuffle": (Form(("b", "c"), 1),)},
)


def body(text: str) -> list[Decoded]:
    lines = [line.strip().partition(" ") for line in text.strip().splitlines()]
    return [decode_x86(Instruction(mnemonic, split_operands(operands))) for mnemonic, _, operands in lines]


@pytest.mark.parametrize(
    ("operations", "cycles"),
    [
        (["fma"] * 4, 2.0),  # two ports
        (["fma"] * 2 + ["add"] * 4, 4.0),  # additions fill port a, multiply-adds go to b
        (["fma"] * 4 + ["add"] * 2, 3.0),  # six on a and b
        (["fma"] * 2 + ["add"] * 2 + ["shuffle"] * 5, 3.0),  # nine on a, b and c
        (["move"] * 9, 0.0),
    ],
)
def test_ports_are_shared_as_well_as_they_can_be(operations: list[str], cycles: float) -> None:
    assert port_bound([Decoded(operation) for operation in operations], TOY) == pytest.approx(cycles)


def test_one_accumulator_waits_for_each_multiply_add() -> None:
    one = body("vfmadd231ps (%rsi), %zmm1, %zmm0\naddq $64, %rsi\ncmpq %rsi, %rdi")
    assert chain_bound(one, ICE_LAKE) == 4.0
    assert port_bound(one, ICE_LAKE) == ICE_LAKE.widest["load"][0].busy_cycles / 2
    assert chain_bound(one[:1] * 3, ICE_LAKE) == 12.0


def test_accumulators_that_rotate_count_as_one_chain() -> None:
    """213 puts the sum into another register; after a round it is back."""
    turned = body("vfmadd213ps %zmm0, %zmm1, %zmm2\nvmovaps %zmm2, %zmm0\nvmovups (%rsi), %zmm2")
    assert chain_bound(turned, ICE_LAKE) == 4.0


def test_what_does_not_come_round_is_no_chain() -> None:
    straight = body("vmovups (%rsi), %zmm0\nvdivps %zmm1, %zmm0, %zmm2\nvsqrtps %zmm2, %zmm2\nvmovups %zmm2, (%rdi)")
    assert chain_bound(straight, ICE_LAKE) == 0.0


def test_a_spilled_accumulator_goes_through_memory() -> None:
    spilled = body("vmovups 64(%rsp), %zmm0\nvfmadd231ps %zmm1, %zmm2, %zmm0\nvmovups %zmm0, 64(%rsp)")
    assert chain_bound(spilled, ICE_LAKE) == 4.0 + ICE_LAKE.forward_cycles


@pytest.mark.parametrize("name", ("icelake-server", "neoverse-n1"))
def test_a_tile_in_registers_runs_at_the_speed_of_its_multiply_adds(name: str) -> None:
    target = resolve_target(name)
    time = machine_time(tiled_product(target, 6, 4), target)
    fmas = 6 * 4 * 20 * 6
    assert fmas / 2 <= time.port_cycles <= 1.3 * fmas / 2  # loads of one element for all lanes take a port on Arm
    assert time.cycles >= max(time.port_cycles, time.front_end_cycles, time.chain_cycles)
    assert time.seconds == time.cycles / target.spec.frequency_hz
    assert time.spills == 0


def test_a_tile_that_spills_is_predicted_to_be_slower() -> None:
    target = resolve_target("icelake-server")
    fits, spills = (machine_time(tiled_product(target, rows, 4), target) for rows in (6, 12))
    assert spills.spills > 0
    assert spills.cycles / 2 > 1.1 * fits.cycles


def test_the_same_kernel_is_predicted_alike() -> None:
    target = resolve_target("neoverse-n1")
    first, second = (machine_time(only_kernel("Softmax", 32, 100, axis=1), target) for _ in range(2))
    assert first == second
