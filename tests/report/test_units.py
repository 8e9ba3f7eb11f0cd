from __future__ import annotations

import pytest

from foretell.report.units import percent, plural, short_number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (1000, "1.00 k"),
        (12136, "12.1 k"),
        (999_999, "1.00 M"),
        (1_379_338, "1.38 M"),
        (99_960_000, "100 M"),
        (3 * 10**21, "3000 E"),
    ],
)
def test_short_number(number: int, text: str) -> None:
    assert short_number(number) == text


def test_units_follow_the_prefix() -> None:
    assert (short_number(12, "B"), short_number(12136, "B")) == ("12 B", "12.1 kB")


def test_a_small_share_is_not_zero() -> None:
    assert [percent(share) for share in (0, 1e-9, 0.0005, 0.935, 1)] == [
        "0.0 %",
        "< 0.1 %",
        "0.1 %",
        "93.5 %",
        "100.0 %",
    ]


def test_plural() -> None:
    assert (plural(1, "node"), plural(1746, "node")) == ("1 node", "1,746 nodes")
