"""Winograd's minimal filtering F(m, r): m results of a correlation with r taps by m + r - 1 multiplications.

    y = A^T [(G g) * (B^T d)]        y[i] = sum[k] g[k] * d[i + k],   i < m,  k < r,  a = m + r - 1

Products of polynomials are interpolated from their values at a points, one of them infinity (Toom, Cook); turned
around, that computes correlations (Winograd, Arithmetic Complexity of Computations, 1980; arXiv 1509.09308). All
fractions go into G, which is applied when a model is compiled; what is left of the others is exact in any float.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import sqrt
from typing import TypeAlias

Matrix: TypeAlias = tuple[tuple[Fraction, ...], ...]
"""Rows."""

POINTS: tuple[Fraction, ...] = tuple(
    map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "4", "-4", "1/4", "-1/4"))
)
"""Where polynomials are evaluated, besides infinity: small numbers and their inverses round least."""
MAX_POINTS = len(POINTS) + 1


@dataclass(frozen=True, slots=True)
class Filtering:
    """The matrices of F(m, r)."""

    data: Matrix
    """B^T: a x a."""
    taps: Matrix
    """G: a x r."""
    results: Matrix
    """A^T: m x a."""


@cache
def minimal_filtering(results: int, taps: int) -> Filtering:
    """F(results, taps); with one tap there is nothing to transform."""
    count = results + taps - 1
    assert results >= 1 and taps >= 1 and count <= MAX_POINTS
    if taps == 1 or results == 1:
        return _plain(results, taps)
    points = POINTS[: count - 1]
    data, filters = list[tuple[Fraction, ...]](), list[tuple[Fraction, ...]]()
    for number, point in enumerate(points):
        others = points[:number] + points[number + 1 :]
        scale = Fraction(1)
        for other in others:
            scale *= point - other
        data.append((*_with_roots(others), Fraction(0)))
        filters.append(tuple(point**power / scale for power in range(taps)))
    data.append(_with_roots(points))
    filters.append(_unit(taps - 1, taps))
    columns = [*(tuple(point**power for power in range(results)) for point in points), _unit(results - 1, results)]
    return Filtering(tuple(data), tuple(filters), tuple(zip(*columns, strict=True)))


@cache
def amplification(results: int, taps: int) -> float:
    """How much larger the values are that F(results, taps) adds up than their sums, for data that is all alike.

    Of independent values of variance 1, the root of the mean square of the greatest sum of products, each by itself,
    against that of a result, which is the root of `taps`.
    """
    filtering = minimal_filtering(results, taps)
    sizes = [_square(data) * _square(filters) for data, filters in zip(filtering.data, filtering.taps, strict=True)]
    sums = [sum(factor**2 * size for factor, size in zip(row, sizes, strict=True)) for row in filtering.results]
    return sqrt(max(sums) / taps)


def _square(row: Sequence[Fraction]) -> Fraction:
    return sum((factor**2 for factor in row), Fraction(0))


def _plain(results: int, taps: int) -> Filtering:
    """Each product by itself, where one of the polynomials is a number."""
    count = results + taps - 1
    identity = tuple(_unit(place, count) for place in range(count))
    ones = (Fraction(1),)
    if taps == 1:
        return Filtering(identity, (ones,) * count, identity)
    return Filtering(identity, identity, (ones * count,))


def _with_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of the product of (x - root), from the constant on."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [high - root * low for high, low in zip(shifted, (*coefficients, Fraction(0)), strict=True)]
    return tuple(coefficients)


def _unit(place: int, length: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(int(number == place)) for number in range(length))
