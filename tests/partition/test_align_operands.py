"""Copies of what the caller passes, where lines that tiles read in vain take longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretell.loops.transpose_operands import Unaligned
from foretell.partition.align_operands import is_worth_aligning
from foretell.target.hardware_spec import with_cores
from foretell.target.resolve import resolve_target

VALUES = Unaligned(batch=12, rows=512, length=512, width=64, bits=32)
"""What attention over 512 positions weighs."""


@pytest.mark.parametrize(("target", "is_worth_it"), [("znver3", True), ("znver4", False)])
def test_short_steps_gain_and_long_ones_hide_it(target: str, is_worth_it: bool) -> None:
    """As measured: a copy gained a fifth on Zen 3, and lost a twentieth on Zen 4."""
    assert is_worth_aligning(VALUES, with_cores(resolve_target(target).spec, 2)) is is_worth_it


@pytest.mark.parametrize(
    "operand",
    [
        pytest.param(replace(VALUES, rows=16), id="few rows use it"),
        pytest.param(replace(VALUES, length=128), id="slabs stay in the first cache"),
        pytest.param(replace(VALUES, batch=1, rows=8, length=8, width=16), id="so small that a barrier takes longer"),
    ],
)
def test_declines(operand: Unaligned) -> None:
    assert not is_worth_aligning(operand, with_cores(resolve_target("znver3").spec, 2))
