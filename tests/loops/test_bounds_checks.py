"""What dimensions must be for a kernel to stay inside its buffers."""

from __future__ import annotations

from foretell.ir.dtypes import F32
from foretell.ir.expr import Sym, minimum
from foretell.ir.tensor_expr import Apply, Buffer, Const, Index, Load, Select
from foretell.loops.bounds_checks import bounds_checks
from foretell.loops.nodes import For, Kernel, Store

M, N = Sym("m"), Sym("n")
I, B = Sym("i"), Sym("b")  # noqa: E741
X, Y = Buffer("x", F32, (M,)), Buffer("y", F32, (N,))
ZERO = Const(0.0, F32)


def test_another_dimension() -> None:
    body = For(I, N, "vector", Store(Y, (I,), Load(X, (I,), F32)))
    assert bounds_checks(Kernel("copy", (X,), (Y,), body)) == [M - N]


def test_declines_what_is_proved() -> None:
    body = For(I, M, "vector", Store(X, (I,), ZERO))
    assert bounds_checks(Kernel("fill", (), (X,), body)) == []


def test_backwards_and_shifted() -> None:
    body = For(I, N, "serial", Store(Y, (N - 1 - I,), Load(X, (I + 2,), F32)))
    assert bounds_checks(Kernel("shift", (X,), (Y,), body)) == [M - N - 2]


def test_blocks_with_a_rest() -> None:
    inner = For(I, minimum(N - B * 8, 8), "vector", Store(X, (B * 8 + I,), ZERO))
    (check,) = bounds_checks(Kernel("blocks", (), (X,), For(B, (N + 7) // 8, "parallel", inner)))
    for m, n in ((0, 0), (8, 8), (13, 13), (14, 13), (12, 13), (1, 9)):
        # The last element that the last block reaches.
        value = eval(str(check), {"m": m, "n": n, "min": min})
        assert (value >= 0) == (m >= n)


def test_declines_accesses_under_a_condition() -> None:
    inside = Apply("lt", (Index(I), Index(M)))
    body = For(I, N, "serial", Store(Y, (I,), Select(inside, Load(X, (I,), F32), ZERO)))
    assert bounds_checks(Kernel("pad", (X,), (Y,), body)) == []
