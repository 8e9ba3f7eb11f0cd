"""Machine loops are those of the nest, on both architectures: names, trips, and every multiply-add counted."""

from __future__ import annotations

import llvmlite.binding
import pytest

from foretell.codegen.compile_module import assemble_module
from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_module, emit_program
from foretell.cost.assembly import assemble_kernel, parse_assembly
from foretell.cost.machine_loops import MachineLoop, machine_loops
from foretell.graph.build import Builder
from foretell.ir.dtypes import F32
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import Apply, Buffer, Index, Load, TensorType
from foretell.loops.lower_graph import NativeStep, lower_graph
from foretell.loops.nodes import Block, For, Guard, Kernel, Store
from foretell.schedule.steps import Hold, Reorder, Tile, Unroll, Vectorise, apply_schedule
from foretell.target.resolve import Target, resolve_target
from tests.schedule.nests import matrix_product

TARGETS = ("icelake-server", "znver3", "neoverse-n1", "neoverse-v1", "apple-m1")


def tiled_product(target: Target, rows: int, vectors: int) -> Kernel:
    """A product of 2 x 3 tiles, each of so many rows and vectors, with a sum over 20."""
    width = vectors * target.spec.vector_bytes // 4
    steps = (
        Tile("i", rows),
        Tile("j", width),
        Reorder(("i.o", "j.o", "i.i", "j.i")),
        Hold(("i.i", "j.i")),
        Unroll("i.i"),
        Vectorise("j.i"),
    )
    return apply_schedule(matrix_product(2 * rows, 3 * width, 20), steps)


def only_kernel(op: str, *shape: Dim, **attributes: int) -> Kernel:
    builder = Builder("k")
    graph = builder.finish([builder.op(op, builder.input("x", TensorType(F32, shape)), **attributes)], ["y"])
    (step,) = lower_graph(graph, lambda node: True, 16)
    assert isinstance(step, NativeStep)
    return step.kernels[0]


def loops_of(kernel: Kernel, target: Target, symbols: dict[Sym, int] | None = None) -> MachineLoop:
    functions = parse_assembly(assemble_kernel(kernel, target), target.architecture)
    (body,) = (function for function in functions if function.name.endswith(".body"))
    return machine_loops(body, kernel, target.spec.vector_bytes, symbols or {})


def multiply_adds(root: MachineLoop) -> float:
    """Of single floats, in the whole kernel."""
    return sum(
        iterations * sum(instruction.width_bytes / 4 for instruction in loop.body if instruction.operation == "fma")
        for loop, iterations in root.walk()
    )


@pytest.mark.parametrize("name", TARGETS)
def test_loops_of_a_product_are_known_by_name(name: str) -> None:
    target = resolve_target(name)
    root = loops_of(tiled_product(target, 4, 2), target)
    found = [(loop.name, loop.trips, iterations) for loop, iterations in root.walk()]
    assert found == [("", 1, 1), ("i.o", 2, 2), ("j.o", 3, 6), ("k", 20, 120)]
    *_, (inner, _) = root.walk()
    assert inner.counts["fma"] == 8
    assert inner.counts["spill_load"] == inner.counts["spill_store"] == 0
    assert inner.counts["branch"] == 1
    lanes = target.spec.vector_bytes // 4
    assert multiply_adds(root) == 8 * 20 * 6 * lanes


@pytest.mark.parametrize("name", TARGETS)
def test_a_tile_that_does_not_fit_spills(name: str) -> None:
    target = resolve_target(name)
    root = loops_of(tiled_product(target, 12, 4), target)
    *_, (inner, _) = root.walk()
    assert inner.name == "k"
    assert inner.counts["spill_load"] > 0


@pytest.mark.parametrize("name", TARGETS)
def test_parts_of_a_vector_loop_have_their_own_trips(name: str) -> None:
    target = resolve_target(name)
    lanes = target.spec.vector_bytes // 4
    root = loops_of(only_kernel("Relu", 23 * lanes + 1), target)
    found = {(loop.step, loop.trips) for loop, _ in root.walk() if not loop.children}
    assert found == {(4 * lanes, 5), (lanes, 3)}


def test_a_main_part_that_runs_once_is_no_loop() -> None:
    target = resolve_target("icelake-server")
    root = loops_of(only_kernel("Relu", 64 + 33), target)
    assert [(loop.step, loop.trips) for loop, _ in root.walk() if not loop.children] == [(16, 2)]


def test_a_symbol_is_bound_by_the_caller() -> None:
    size = Sym("n", 1)
    kernel, target = only_kernel("Softmax", size, 64, axis=1), resolve_target("neoverse-n1")
    rows = next(loop for loop, _ in loops_of(kernel, target, {size: 37}).walk() if loop.name)
    assert rows.trips == 37
    with pytest.raises(AssertionError, match="needs numbers for n"):
        loops_of(kernel, target)


@pytest.mark.parametrize("name", ("icelake-server", "neoverse-n1"))
def test_a_loop_that_ends_where_its_guard_fails_is_known_by_what_is_in_it(name: str) -> None:
    """LLVM leaves the loop over rows after three of four, where the tail begins."""
    source, result = Buffer("x", F32, (9, 4, 640)), Buffer("y", F32, (9, 4, 640))
    batch, row, column = Sym("b", 0, 8), Sym("i", 0, 3), Sym("j", 0, 639)

    def part(test: str, extent: int) -> Guard:
        value = Load(source, (batch, row, column), F32)
        store = Store(result, (batch, row, column), Apply("mul", (value, value)))
        return Guard(Apply(test, (Index(row), Index(3))), For(column, extent, "serial", store))

    rows = For(row, 4, "serial", Block((part("lt", 640), part("ge", 320))))
    kernel = Kernel("rows", (source,), (result,), For(batch, 9, "parallel", rows))
    found = [(loop.name, loop.trips) for loop, _ in loops_of(kernel, resolve_target(name)).walk()]
    assert found == [("", 1), ("b", 9), ("i", 3), ("j", 640), ("j", 320)]


def test_loops_in_guards_run_in_the_iterations_where_these_hold() -> None:
    source, result = Buffer("x", F32, (12, 640)), Buffer("y", F32, (12, 640))
    row, column = Sym("i", 0, 11), Sym("j", 0, 639)

    def part(test: str, extent: int) -> Guard:
        value = Load(source, (row, column), F32)
        store = Store(result, (row, column), Apply("mul", (value, value)))
        return Guard(Apply(test, (Index(row % 3), Index(2))), For(column, extent, "serial", store))

    body = For(row, 12, "parallel", Block((part("lt", 640), part("ge", 320))))
    root = loops_of(Kernel("rows", (source,), (result,), body), resolve_target("znver3"))
    assert sorted(count for loop, count in root.walk() if loop.name == "j") == pytest.approx([4 * 320, 8 * 640])


@pytest.mark.parametrize("name", ("icelake-server", "neoverse-n1"))
def test_marks_change_no_loop(name: str) -> None:
    """And nothing at all on x86; on AArch64 registers are saved in another order."""
    target = resolve_target(name)
    kernel = tiled_product(target, 4, 2)
    layout = Layout({"a": 0, "b": 1, "c": 2}, {})
    before = emit_program([[kernel]], layout, target)
    texts = [
        assemble_module(emit_module(kernel, layout, target, mark_loops=marked), target) for marked in (False, True)
    ]
    bodies = [parse_assembly(text, target.architecture)[0].blocks for text in texts]
    plain, marked = ([block.instructions for block in blocks] for blocks in bodies)
    assert plain == marked if name == "icelake-server" else plain[1:-2] == marked[1:-2]
    assert loops_of(kernel, target).code_bytes > 0
    assert emit_program([[kernel]], layout, target) == before
    assert ".loc" not in texts[0]


def test_code_bytes_are_about_those_of_the_object() -> None:
    target = resolve_target("icelake-server")
    kernel = tiled_product(target, 6, 4)
    layout = Layout({"a": 0, "b": 1, "c": 2}, {})
    object = llvmlite.binding.ObjectFileRef.from_data(*emit_program([[kernel]], layout, target))
    (size,) = (section.size() for section in object.sections() if section.is_text())
    functions = parse_assembly(assemble_kernel(kernel, target), target.architecture)
    found = sum(machine_loops(function, kernel, 64, {}).code_bytes for function in functions)
    assert found == pytest.approx(size, rel=0.1)
