"""The code that measures the machine computes what it should."""

from __future__ import annotations

import numpy as np

from benchmarks.peak import STREAMS, lanes, peak_kernel
from foretell.target.resolve import resolve_target


def test_reading_sums_and_copying_copies() -> None:
    width = lanes(resolve_target("native"))
    source = np.arange(3 * STREAMS * width, dtype=np.float32)
    total, copied = np.zeros(width, np.float32), np.zeros_like(source)
    peak_kernel("read")(total.ctypes.data, source.ctypes.data, 3)
    peak_kernel("copy")(copied.ctypes.data, source.ctypes.data, 3)
    assert total.sum() == source.sum()
    np.testing.assert_array_equal(copied, source)


def test_multiply_adds_go_on_as_long_as_asked() -> None:
    """x := 0.9999 x + 0.0001 has the fixed point 1."""
    total = np.zeros(64, np.float32)
    peak_kernel("multiply_add")(total.ctypes.data, total.ctypes.data, 100_000)
    width = lanes(resolve_target("native"))
    np.testing.assert_allclose(total[:width], 14.0, rtol=1e-2)
