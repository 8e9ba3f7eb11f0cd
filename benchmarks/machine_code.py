"""`python -m benchmarks.machine_code`: cycles that are read from machine code beside those that are measured.

Kernels whose data stays in the first two caches, on one thread of this machine: products and convolutions under a dozen
of their schedules, the slow ones included, and what lies between them in a network. A cycle is what two
multiply-adds take, measured in turns with the kernels. Numbers of a core were fitted to the first graphs; those marked
with a star were not seen then, and tell how good the model is.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median

import numpy as np

from foretell.calibrate.probes import fmas_per_step, host_probes, vector_bytes
from foretell.codegen.emit_kernel import Layout
from foretell.codegen.emit_program import emit_pool, emit_program
from foretell.cost.machine_bound import LoopBound, MachineTime, machine_time
from foretell.graph.build import Builder
from foretell.graph.nodes import Graph, Value
from foretell.ir.dtypes import F32
from foretell.ir.tensor_expr import TensorType
from foretell.link_program import lower_program
from foretell.loops.lower_graph import NativeStep
from foretell.loops.nodes import Kernel
from foretell.runtime.arena import large_empty
from foretell.runtime.native_code import POOLS, NativeCode
from foretell.schedule.illegal import IllegalStep
from foretell.schedule.steps import apply_schedule
from foretell.search.schedule_contraction import schedules
from foretell.target.resolve import Target, resolve_target

TURNS = 9
TURN_S = 0.004
SAMPLED = 12
"""Schedules of a nest, evenly from the one predicted to be fastest to the slowest."""
FMA_STEPS = 20_000
CALL_CYCLES = 500_000
"""What a call should take at least."""


@dataclass(frozen=True, slots=True)
class Compared:
    name: str
    predicted: MachineTime
    measured_cycles: float

    @property
    def ratio(self) -> float:
        """Below 1, something is not seen."""
        return self.predicted.cycles / self.measured_cycles


def main() -> None:
    target = resolve_target("native")
    found: list[Compared] = []
    for name, kernel in kernels(target):
        predicted = machine_time(kernel, target)
        compared = Compared(name, predicted, measured_cycles(kernel, target, predicted.cycles))
        found.append(compared)
        sys.stdout.write(line(compared) + "\n")
    seen, unseen = ([each for each in found if each.name.startswith("*") is star] for star in (False, True))
    sys.stdout.write(f"fitted: {summary(seen)}\nunseen: {summary(unseen)}\n")


def line(compared: Compared) -> str:
    time = compared.predicted
    worst = max(time.loops, key=lambda bound: bound.iterations * bound.cycles)
    return (
        f"{compared.name:24} {time.cycles:10.0f} predicted {compared.measured_cycles:10.0f} measured"
        f" {compared.ratio:6.2f}  {binding(worst):9} spills {time.spills:8.0f} hot {time.hot_code_bytes:5} B"
    )


def binding(bound: LoopBound) -> str:
    """Which bound of a loop is the greatest."""
    terms = {"ports": bound.port_cycles, "front end": bound.front_end_cycles, "chain": bound.chain_cycles}
    return max(terms, key=lambda name: terms[name])


def summary(found: Sequence[Compared]) -> str:
    errors = sorted(abs(compared.ratio - 1) for compared in found)
    by_nest: dict[str, list[Compared]] = {}
    for compared in found:
        by_nest.setdefault(compared.name.partition("#")[0], []).append(compared)
    pairs = [
        (a.predicted.cycles < b.predicted.cycles) == (a.measured_cycles < b.measured_cycles)
        for group in by_nest.values()
        for number, a in enumerate(group)
        for b in group[:number]
        if abs(a.measured_cycles - b.measured_cycles) > 0.02 * b.measured_cycles
    ]
    picks = [
        min(group, key=lambda c: c.predicted.cycles).measured_cycles / min(c.measured_cycles for c in group)
        for group in by_nest.values()
        if len(group) > 1
    ]
    return (
        f"{len(found)} kernels: error {median(errors):.1%} in the median, {errors[len(errors) * 9 // 10]:.1%} at 90 %; "
        f"{sum(pairs) / max(1, len(pairs)):.1%} of {len(pairs)} pairs in order; "
        f"picks take {geometric_mean(picks):.3f}x the best"
    )


# --- kernels ---------------------------------------------------------------------------------------------------


def kernels(target: Target) -> Iterator[tuple[str, Kernel]]:
    """Names, with the number of a schedule where there are several, and kernels."""
    for graph in graphs():
        lowered = lower_program(graph, target)
        for nest, _ in lowered.nests:
            every = schedules(nest.kernel, target.spec, nest.constants)
            for number in sorted({len(every) * part // SAMPLED for part in range(SAMPLED)}):
                try:
                    yield f"{graph.name}#{number}", apply_schedule(nest.kernel, every[number])
                except IllegalStep:
                    continue
        if not lowered.nests:
            for step in lowered.steps:
                if isinstance(step, NativeStep):
                    yield from ((f"{graph.name}.{number}", kernel) for number, kernel in enumerate(step.kernels))


def graphs() -> Iterator[Graph]:
    """Those that numbers were fitted to, then others."""
    products = [(48, 64, 64), (32, 96, 64), (61, 50, 75), (128, 128, 128)]
    convolutions = [(16, 16, 16, 3, 1), (32, 48, 14, 1, 1), (16, 32, 15, 3, 2)]
    yield from of_shapes("", products, (4, 32, 32, 32), convolutions, ("Gelu", "Tanh", "Exp", "Sqrt", "Relu", "Add"))
    products = [(40, 56, 72), (24, 80, 96), (50, 33, 100), (100, 160, 90)]
    convolutions = [(24, 40, 12, 3, 1), (40, 32, 13, 1, 1), (8, 24, 16, 5, 2)]
    yield from of_shapes("*", products, (3, 48, 24, 40), convolutions, ("Sigmoid", "Log", "Erf", "Sin", "Neg", "Mul"))


def of_shapes(
    star: str,
    products: Sequence[tuple[int, int, int]],
    heads: tuple[int, int, int, int],
    convolutions: Sequence[tuple[int, int, int, int, int]],
    pointwise: Sequence[str],
) -> Iterator[Graph]:
    for rows, inner, columns in products:
        yield graph(f"{star}matmul_{rows}_{inner}_{columns}", "MatMul", (rows, inner), (inner, columns))
    count, rows, inner, columns = heads
    name = f"{star}heads_{count}_{rows}_{inner}_{columns}"
    yield graph(name, "MatMul", (count, rows, inner), (count, inner, columns))
    for inputs, outputs, image, kernel, stride in convolutions:
        name = f"{star}conv{kernel}x{kernel}_{inputs}_{outputs}_{image}_s{stride}"
        pads, weight = (kernel // 2,) * 2, (outputs, inputs, kernel, kernel)
        window = {"strides": (stride,) * 2, "dilations": (1, 1), "before": pads, "after": pads}
        yield graph(name, "Conv", (1, inputs, image, image), weight, **window, group=1)
    rows, columns = (24, 200) if star else (32, 128)
    yield graph(f"{star}softmax_{rows}x{columns}", "Softmax", (rows, columns), axis=1)
    yield graph(f"{star}transpose_{rows}x{columns}", "Transpose", (rows, columns), perm=(1, 0))
    for op in pointwise:
        operands = [(rows, columns)] * (2 if op in ("Add", "Mul") else 1)
        yield graph(f"{star}{op.lower()}_{rows}x{columns}", op, *operands)


def graph(name: str, op: str, *shapes: tuple[int, ...], **attributes: object) -> Graph:
    builder = Builder(name)
    inputs: list[Value] = [builder.input(f"x{n}", TensorType(F32, shape)) for n, shape in enumerate(shapes)]
    return builder.finish([builder.op(op, *inputs, **attributes)], ["y"])  # type: ignore[arg-type]


# --- measuring -------------------------------------------------------------------------------------------------


def measured_cycles(kernel: Kernel, target: Target, expected: float) -> float:
    """Of one run among many in one call, so that calling costs nothing."""
    count = max(1, int(CALL_CYCLES / expected))
    call = loaded(kernel, target, count)
    numbers = np.zeros(64 * vector_bytes(target), np.uint8)
    place = numbers.ctypes.data
    fmas = partial(host_probes(target).run, "fma", place, place, FMA_STEPS)
    call()
    turns = [(seconds(call), seconds(fmas)) for _ in range(TURNS)]
    call_s, fma_s = (min(each) for each in zip(*turns, strict=True))
    return call_s / count / (fma_s / (FMA_STEPS * fmas_per_step(target) / 2))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    count = max(1, int(TURN_S / max(time.perf_counter() - start, 1e-7)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def loaded(kernel: Kernel, target: Target, count: int) -> Callable[[], None]:
    random = np.random.default_rng(0)
    held: dict[str, np.ndarray] = {}
    for buffer in (*kernel.reads, *kernel.writes):
        shape = buffer.type.static_shape
        array = large_empty(int(np.prod(shape)) * buffer.dtype.itemsize).view(buffer.dtype.numpy).reshape(shape)
        array[...] = random.standard_normal(shape).astype(buffer.dtype.numpy)
        held[buffer.name] = array
    slots = {name: number for number, name in enumerate(held)}
    layout = Layout(slots, {})
    POOLS.load(emit_pool(target))
    code = NativeCode(*emit_program([[kernel] * count], layout, target))
    table = (ctypes.c_void_p * len(held))(*(array.ctypes.data for array in held.values()))
    dims, pool = (ctypes.c_int64 * 1)(), POOLS.get(1)
    (step,) = code.steps(1)

    def call(_kept: object = (code, held)) -> None:
        step(table, dims, pool)

    return call


if __name__ == "__main__":
    main()
