"""The verifier finds what is wrong with a kernel, one test for each invariant."""

from __future__ import annotations

import pytest

from foretell.ir.dtypes import BOOL, F16, F32, I64
from foretell.ir.expr import Sym, minimum
from foretell.ir.tensor_expr import Apply, Buffer, Const, Index, Load, Scalar, Select
from foretell.loops.nodes import Accumulate, Allocate, Block, For, Guard, Kernel, Statement, Store
from foretell.loops.verify import verify

N = Sym("n", 1)
I, J = Sym("i", 0, 3), Sym("j", 0)  # noqa: E741
X, Y, V = Buffer("x", F32, (4,)), Buffer("y", F32, (4,)), Buffer("v", F32, (N,))
INDICES = Buffer("indices", I64, (4,))
TOTAL, SCRATCH = Buffer("total", F32, (), "register"), Buffer("scratch", F32, (4,), "stack")
ZERO = Const(0.0, F32)
COPY = Store(Y, (I,), Load(X, (I,), F32))


def kernel(body: Statement) -> Kernel:
    return Kernel("test", (X, V, INDICES), (Y,), body)


def each(body: Statement, kind: str = "serial") -> For:
    return For(I, 4, kind, body)


def stored(value: Scalar) -> Statement:
    return each(Store(Y, (I,), value))


def test_a_sound_kernel() -> None:
    total = Load(TOTAL, (), F32)
    update = For(J, N, "vector", Accumulate(TOTAL, (), "sum", Load(V, (J,), F32)))
    body = Allocate(TOTAL, Block((Store(TOTAL, (), ZERO), update, each(Store(Y, (I,), total), "unroll"))))
    verify(kernel(body))
    verify(kernel(each(COPY, "parallel")))


def test_an_access_under_a_condition_may_reach_outside() -> None:
    shifted = Select(Apply("ge", (Index(I), Index(1))), Load(X, (I - 1,), F32), ZERO)
    verify(kernel(stored(shifted)))
    verify(kernel(each(Guard(Apply("lt", (Index(I), Index(3))), Store(Y, (I + 1,), ZERO)))))


def test_blocks_with_a_rest_are_inside() -> None:
    block, inside = Sym("b", 0), Sym("k", 0, 7)
    body = For(inside, minimum(N - block * 8, 8), "vector", Store(V, (block * 8 + inside,), ZERO))
    verify(Kernel("blocks", (), (V,), For(block, (N + 7) // 8, "parallel", body)))


WRONG: dict[str, tuple[Statement, str]] = {
    "symbol outside its loop": (Block((each(COPY), COPY)), "i is used outside its loop"),
    "kind of loop": (each(COPY, "fast"), "'fast' is no kind of loop"),
    "parallel inside": (For(J, 2, "serial", each(COPY, "parallel")), "parallel loop i is not outermost"),
    "vector in vector": (For(J, 2, "vector", each(COPY, "vector")), "vector loop i stands in another one"),
    "loop bound twice": (each(each(COPY)), "loop i is bound twice"),
    "range of the symbol": (For(I, 5, "serial", Block(())), "i is at most 3, but its loop runs to 5"),
    "number of indices": (each(Store(Y, (I, 0), ZERO)), "%y of rank 1 is accessed with 2 indices"),
    "store to an input": (each(Store(X, (I,), ZERO)), "%x is stored to but neither written nor allocated"),
    "not allocated": (Store(TOTAL, (), ZERO), "%total is stored to but neither written nor allocated"),
    "allocated twice": (Allocate(TOTAL, Allocate(TOTAL, Block(()))), "%total is allocated twice"),
    "read before written": (Allocate(TOTAL, stored(Load(TOTAL, (), F32))), "%total is read but holds nothing"),
    "read after its scope": (
        Block((Allocate(TOTAL, Store(TOTAL, (), ZERO)), stored(Load(TOTAL, (), F32)))),
        "%total is read but holds nothing",
    ),
    "accumulated before written": (
        Allocate(TOTAL, Accumulate(TOTAL, (), "sum", ZERO)),
        "%total is accumulated into before it holds a value",
    ),
    "unknown reduction": (Accumulate(Y, (0,), "mean", ZERO), "'mean' is no reduction"),
    "shared by lanes": (each(Allocate(SCRATCH, Block(())), "vector"), "the lanes of a vector loop share %scratch"),
    "unknown size": (Allocate(Buffer("s", F32, (N,), "stack"), Block(())), "%s needs a known size"),
    "wrong scope": (Allocate(Buffer("s", F32, (4,)), Block(())), "%s of scope table is allocated"),
    "below": (stored(Load(X, (I - 1,), F32)), "index i - 1 of %x reaches -1, outside 4"),
    "above": (stored(Load(X, (2 * I,), F32)), "index 2*i of %x reaches 6, outside 4"),
    "above a symbolic extent": (
        For(J, N, "serial", Block((Store(Y, (0,), Load(V, (J + 1,), F32)),))),
        "index j + 1 of %v reaches n, outside n",
    ),
    "type of a load": (stored(Load(X, (I,), F16)), "%x of f32 is loaded as f16"),
    "type of a store": (stored(Index(I)), "%y of f32 is given i64"),
    "types of operands": (stored(Apply("add", (ZERO, Index(I)))), "add has operands of f32, i64"),
    "number of operands": (stored(Apply("exp", (ZERO, ZERO))), "exp takes 1 arguments, not 2"),
    "unknown primitive": (stored(Apply("cube", (ZERO,))), "'cube' is no primitive"),
    "condition": (stored(Select(ZERO, ZERO, ZERO)), "condition 0.0:f32 is f32"),
    "branches": (stored(Select(Const(True, BOOL), ZERO, Index(I))), "differ in type"),
    "guard": (Guard(ZERO, Block(())), "condition 0.0:f32 is f32"),
    "index of a wrong type": (stored(Load(X, (Load(X, (I,), F32),), F32)), "%x is indexed with f32"),
}


@pytest.mark.parametrize("case", WRONG)
def test_broken_kernels(case: str) -> None:
    body, message = WRONG[case]
    with pytest.raises(AssertionError) as caught:
        verify(kernel(body))
    assert message in str(caught.value)


def test_parameters() -> None:
    with pytest.raises(AssertionError, match="%x is both read and written"):
        verify(Kernel("test", (X,), (X,), Block(())))
    with pytest.raises(AssertionError, match="lives in a stack"):
        verify(Kernel("test", (SCRATCH,), (), Block(())))


def test_dimensions_of_the_model_are_known() -> None:
    body = For(J, N, "serial", Store(Y, (0,), ZERO))
    verify(kernel(body), frozenset({N}))
    with pytest.raises(AssertionError, match="n is used outside its loop"):
        verify(kernel(body), frozenset())
