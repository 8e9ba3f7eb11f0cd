from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pytest

from foretell.graph.nodes import Graph, Value
from foretell.graph.rewrites.recognise_attention import recognise_attention
from foretell.ir.dtypes import BOOL, F16, F32, F64, DType
from foretell.ir.expr import Dim, Sym
from tests.graph.build_graphs import Sketch, assert_same_results, check_declines, check_rewrite, random_feeds, text

N, M = Sym("n", 1), Sym("m", 1)


@dataclass
class Form:
    """One way to write attention down."""

    scale_on: str = "scores"
    divide: bool = False
    mask: str = ""
    guard: bool = False
    softcap: bool = False
    dtype: DType = F32
    batch: tuple[Dim, ...] = (2, 3)
    queries: Dim = 5
    keys: Dim = 7

    def scaled(self, g: Sketch, x: Value, factor: float) -> Value:
        if self.divide:
            return g.op("Div", x, g.number(1 / factor, dtype=self.dtype))
        return g.op("Mul", g.number(factor, dtype=self.dtype), x)

    def build(self) -> Graph:
        g = Sketch()
        q = g.data(*self.batch, self.queries, 4, dtype=self.dtype, name="q")
        k = g.data(*self.batch, self.keys, 4, dtype=self.dtype, name="k")
        v = g.data(*self.batch, self.keys, 6, dtype=self.dtype, name="v")
        rank = len(self.batch) + 2
        q = self.scaled(g, q, 0.5) if self.scale_on == "q" else q
        q = self.scaled(g, q, sqrt(0.5)) if self.scale_on == "both" else q
        k = self.scaled(g, k, 0.5) if self.scale_on == "k" else k
        k = g.op("Transpose", k, perm=(*range(rank - 2), rank - 1, rank - 2))
        k = self.scaled(g, k, sqrt(0.5)) if self.scale_on == "both" else k
        scores = g.op("MatMul", q, k)
        scores = self.scaled(g, scores, 0.5) if self.scale_on == "scores" else scores
        if self.softcap:
            capped = g.op("Tanh", g.op("Div", scores, g.number(2.0, dtype=self.dtype)))
            scores = g.op("Mul", capped, g.number(2.0, dtype=self.dtype))
        p = g.op("Softmax", self.masked(g, scores), axis=rank - 1)
        if self.guard:
            p = g.op("Where", g.op("IsNaN", p), g.number(0.0, dtype=self.dtype), p)
        return g.graph(g.op("MatMul", p, v))

    def masked(self, g: Sketch, scores: Value) -> Value:
        if self.mask == "added":
            return g.op("Add", scores, g.data(1, self.keys, dtype=self.dtype, name="mask"))
        if self.mask == "added first":
            return g.op("Add", g.data(*self.batch, self.queries, self.keys, dtype=self.dtype, name="mask"), scores)
        number = g.number(-1e4, dtype=self.dtype)
        if self.mask == "where":
            return g.op("Where", g.data(self.queries, self.keys, dtype=BOOL, name="mask"), scores, number)
        if self.mask == "where not":
            return g.op("Where", g.data(self.queries, self.keys, dtype=BOOL, name="mask"), number, scores)
        return scores


FORMS = {
    "plain": Form(scale_on=""),
    "scaled scores": Form(),
    "divided scores": Form(divide=True),
    "scaled queries": Form(scale_on="q"),
    "scaled keys": Form(scale_on="k"),
    "scaled by halves": Form(scale_on="both", mask="added"),
    "mask": Form(mask="added"),
    "mask in front": Form(mask="added first"),
    "chosen scores": Form(mask="where"),
    "guard": Form(mask="added", guard=True, scale_on="both"),
    "softcap": Form(softcap=True, mask="added"),
    "no batch": Form(batch=()),
    "one of everything": Form(batch=(1, 1), queries=1, keys=1),
    "half precision": Form(dtype=F16, mask="added"),
    "double precision": Form(dtype=F64, mask="added"),
    "symbolic": Form(batch=(N, 3), queries=M, keys=M, mask="added"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    check_rewrite(recognise_attention, FORMS[form].build(), ops=["Attention"])


def test_a_mask_that_says_what_not_to_see() -> None:
    check_rewrite(recognise_attention, Form(mask="where not").build(), ops=["Not", "Attention"])


def test_golden() -> None:
    after = recognise_attention(Form(mask="added", guard=True, batch=(N,)).build())
    assert str(after) == text(
        """
        graph test(%q: f32[n, 5, 4], %k: f32[n, 7, 4], %v: f32[n, 7, 6], %mask: f32[1, 7]) {
          %attention: f32[n, 5, 6] = Attention(%q, %k, %v, %mask) \\
        {scale=0.5, causal=False, softcap=0.0, nan_to_zero=True}
          return y0=%attention
        }
        """
    ).replace("\\\n", "")


@pytest.mark.parametrize("guard", [True, False])
def test_rows_that_see_nothing_keep_their_meaning(guard: bool) -> None:
    graph = Form(mask="added first", guard=guard).build()
    feeds = random_feeds(graph)
    feeds["mask"][:, :, 2] = -np.inf
    feeds["mask"][:, :, 3, 1:] = -np.inf
    feeds["v"][:, :, 0] = np.inf
    assert_same_results(graph, recognise_attention(graph), feeds)


def test_keys_that_arrive_transposed_another_way() -> None:
    g = Sketch()
    q, k, v = g.data(2, 3, 5, 4, name="q"), g.data(2, 7, 3, 4, name="k"), g.data(2, 3, 7, 6, name="v")
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=(0, 2, 3, 1)))
    graph = g.graph(g.op("MatMul", g.op("Softmax", scores, axis=3), v))
    after = check_rewrite(recognise_attention, graph, ops=["Transpose", "Attention"])
    assert after.nodes[0].attrs["perm"] == (0, 2, 1, 3)


def test_keys_that_are_not_transposed_at_all() -> None:
    g = Sketch()
    q, k, v = g.data(2, 5, 4, name="q"), g.data(2, 4, 7, name="k"), g.data(2, 7, 6, name="v")
    graph = g.graph(g.op("MatMul", g.op("Softmax", g.op("MatMul", q, k), axis=2), v))
    check_rewrite(recognise_attention, graph, ops=["Transpose", "Attention"])


def declined(case: str) -> Graph:
    g = Sketch()
    q, k, v = g.data(2, 5, 4, name="q"), g.data(2, 4, 7, name="k"), g.data(2, 7, 6, name="v")
    scores = g.op("MatMul", q, k)
    if case == "scores are read elsewhere":
        return g.graph(g.op("MatMul", g.op("Softmax", scores, axis=2), v), scores)
    if case == "probabilities are read elsewhere":
        p = g.op("Softmax", scores, axis=2)
        return g.graph(g.op("MatMul", p, v), p)
    if case == "softmax over queries":
        return g.graph(g.op("MatMul", g.op("Softmax", scores, axis=1), v))
    if case == "ranks differ":
        return g.graph(g.op("MatMul", g.op("Softmax", scores, axis=2), g.data(7, 6, name="w")))
    if case == "the mask adds a batch":
        masked = g.op("Add", scores, g.data(3, 1, 5, 7, name="mask"))
        return g.graph(g.op("MatMul", g.op("Softmax", masked, axis=3), v))
    if case == "the guard puts another number":
        p = g.op("Softmax", scores, axis=2)
        return g.graph(g.op("MatMul", g.op("Where", g.op("IsNaN", p), g.number(1.0), p), v))
    assert case == "no product of queries and keys"
    return g.graph(g.op("MatMul", g.op("Softmax", g.data(2, 5, 7, name="s"), axis=2), v))


@pytest.mark.parametrize(
    "case",
    [
        "scores are read elsewhere",
        "probabilities are read elsewhere",
        "softmax over queries",
        "ranks differ",
        "the mask adds a batch",
        "the guard puts another number",
        "no product of queries and keys",
    ],
)
def test_declines(case: str) -> None:
    check_declines(recognise_attention, declined(case))
