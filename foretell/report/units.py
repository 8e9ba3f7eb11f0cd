"""Numbers as people read them."""

from __future__ import annotations

PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def short_number(number: int, unit: str = "") -> str:
    """Three digits and a decimal prefix: 1379338 -> "1.38 M"; with a unit "1.38 MB"."""
    value, power = float(number), 0
    while round(value, 0 if value >= 100 else 2) >= 1000 and power < len(PREFIXES) - 1:
        value, power = value / 1000, power + 1
    digits = str(number) if power == 0 else f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
    return f"{digits} {PREFIXES[power]}{unit}".rstrip()


def percent(share: float) -> str:
    """A share of 1: 0.935 -> "93.5 %"; what is not zero never looks like it."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{share * 100:.1f} %"


def plural(number: int, noun: str) -> str:
    """A number of things, whose name takes an s."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
