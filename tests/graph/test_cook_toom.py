from __future__ import annotations

from fractions import Fraction

import pytest

from foretell.graph.cook_toom import MAX_POINTS, Matrix, amplification, minimal_filtering

SIZES = [(m, r) for m in range(1, 9) for r in range(1, 8) if m + r - 1 <= MAX_POINTS]


def times(matrix: Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


@pytest.mark.parametrize(("results", "taps"), SIZES)
def test_is_a_correlation_in_exact_arithmetic(results: int, taps: int) -> None:
    data = [Fraction(7 * k * k - 11 * k + 3, k + 2) for k in range(results + taps - 1)]
    filters = [Fraction(5 - 3 * k, 2 * k + 1) for k in range(taps)]
    matrices = minimal_filtering(results, taps)
    products = [a * b for a, b in zip(times(matrices.taps, filters), times(matrices.data, data), strict=True)]
    direct = [sum((filters[k] * data[i + k] for k in range(taps)), Fraction(0)) for i in range(results)]
    assert times(matrices.results, products) == direct


def test_the_matrices_of_f_4_3() -> None:
    matrices = minimal_filtering(4, 3)
    assert matrices.data == (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    )
    assert matrices.results == ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
    assert matrices.taps[1] == (Fraction(-1, 6),) * 3


@pytest.mark.parametrize(("results", "taps"), SIZES)
def test_data_and_results_are_transformed_by_exact_floats(results: int, taps: int) -> None:
    matrices = minimal_filtering(results, taps)
    for row in (*matrices.data, *matrices.results):
        assert all(Fraction(float(factor)) == factor for factor in row)


def test_larger_tiles_amplify_more() -> None:
    found = [amplification(results, 3) for results in (1, 2, 3, 4, 5, 6, 8)]
    assert found[0] == 1.0 and found == sorted(found)
    assert amplification(6, 1) == 1.0
