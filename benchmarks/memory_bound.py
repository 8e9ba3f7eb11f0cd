"""Operators that move memory, against onnxruntime: `python -m benchmarks.memory_bound [NAME ...]`.

Each runs in a process of its own, which is stopped while the other has its turn, with inputs and outputs in place. A
cell is the median over turns, and their ratio (below 1: foretell is faster), for one thread and two. Needs onnxruntime.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import foretell

TURNS = 7
RUNS_A_TURN = 20
MEGABYTES = (1, 8, 32)
THREADS = (1, 2)
ROW = 1024


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    nodes: tuple[NodeProto, ...]
    inputs: dict[str, tuple[int, ...]]
    outputs: tuple[str, ...] = ("z",)
    constants: tuple[TensorProto, ...] = ()

    def model(self) -> ModelProto:
        kinds = {name: TensorProto.INT64 if name == "indices" else TensorProto.FLOAT for name in self.inputs}
        inputs = [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in self.inputs.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = helper.make_graph(list(self.nodes), self.name, inputs, outputs, list(self.constants))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def feeds(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(0)
        return {
            name: random.integers(0, 8192, shape)
            if name == "indices"
            else random.standard_normal(shape, dtype=np.float32)
            for name, shape in self.inputs.items()
        }


def node(op: str, inputs: str, outputs: str = "z", **attributes: object) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def constant(name: str, values: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(values, name)


def cases(megabytes: int) -> Iterator[Case]:
    """One case per kind of operator, on tensors of so many megabytes of float32."""
    count = megabytes << 18
    rows = count // ROW
    ones, axes = np.ones(ROW, np.float32), constant("axes", np.array([1]))
    chain = (
        node("Mul", "x y", "a"), node("Add", "a x", "b"), node("Relu", "b", "c"), node("Sub", "c y", "d"),
        node("Mul", "d d"),
    )  # fmt: skip
    yield Case("elementwise chain", chain, {"x": (count,), "y": (count,)})
    gate = (node("Sigmoid", "x", "a"), node("Mul", "x a", "b"), node("Tanh", "b"))
    yield Case("sigmoid, mul, tanh", gate, {"x": (count,)})
    yield Case("exp", (node("Exp", "x"),), {"x": (count,)})
    yield Case("softmax", (node("Softmax", "x", axis=-1),), {"x": (rows, ROW)})
    norm = (node("LayerNormalization", "x scale bias", axis=-1),)
    parameters = (constant("scale", ones), constant("bias", ones))
    yield Case("layer norm", norm, {"x": (rows, ROW)}, constants=parameters)
    yield Case("sum of rows", (node("ReduceSum", "x axes", keepdims=0),), {"x": (rows, ROW)}, constants=(axes,))
    first = constant("axes", np.array([0]))
    yield Case("sum of columns", (node("ReduceSum", "x axes", keepdims=0),), {"x": (rows, ROW)}, constants=(first,))
    yield Case("max of all", (node("ReduceMax", "x", keepdims=0),), {"x": (rows, ROW)})
    yield Case("transpose 2-D", (node("Transpose", "x", perm=[1, 0]),), {"x": (rows, ROW)})
    yield Case("transpose 0213", (node("Transpose", "x", perm=[0, 2, 1, 3]),), {"x": (rows // 128, 128, 16, 64)})
    yield Case("transpose 0231", (node("Transpose", "x", perm=[0, 2, 3, 1]),), {"x": (1, 64, rows // 4, 64)})
    half = (8, rows // 16, ROW)
    yield Case("concat channels", (node("Concat", "x y", axis=1),), {"x": half, "y": half})
    narrow = (rows, ROW // 2)
    yield Case("concat columns", (node("Concat", "x y", axis=1),), {"x": narrow, "y": narrow})
    yield Case("split", (node("Split", "x", "a b", axis=1),), {"x": (rows, ROW)}, outputs=("a", "b"))
    yield Case("gather", (node("Gather", "x indices"),), {"x": (8192, 256), "indices": (count // 256,)})
    yield Case("add of a bias", (node("Add", "x y"),), {"x": (1, 64, count // 64), "y": (64, 1)})


def our_runner(case: Case, feeds: dict[str, np.ndarray], threads: int) -> Callable[[], object]:
    model = foretell.compile(case.model(), threads=threads)
    outputs = model.run(feeds)
    return model.bind(feeds, outputs)


def their_runner(case: Case, feeds: dict[str, np.ndarray], threads: int) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(case.model().SerializeToString(), options)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for output, array in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        binding.bind_ortvalue_output(output.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    return lambda: session.run_with_iobinding(binding)


class Contestant:
    """A runner in a process of its own, which is stopped while others have their turn: idle threads may spin."""

    def __init__(
        self, make: Callable[[Case, dict[str, np.ndarray], int], Callable[[], object]], *about: object
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, make, *about), daemon=True)
        self.process.start()
        self.pipe.recv()
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def turn(self) -> float:
        """Microseconds of a run, the lower quartile of a few in a row."""
        self._signal(signal.SIGCONT)
        self.pipe.send(None)
        taken = self.pipe.recv()
        self._signal(signal.SIGSTOP)
        return taken

    def close(self) -> None:
        self.process.kill()
        self.process.join()


def serve(
    pipe: Connection,
    make: Callable[[Case, dict[str, np.ndarray], int], Callable[[], object]],
    name: str,
    megabytes: int,
    threads: int,
) -> None:
    case = next(case for case in cases(megabytes) if case.name == name)
    run = make(case, case.feeds(), threads)
    run()
    pipe.send(None)
    while True:
        pipe.recv()
        for _ in range(RUNS_A_TURN // 4):
            run()
        times: list[float] = []
        for _ in range(RUNS_A_TURN):
            start = time.perf_counter()
            run()
            times.append(1e6 * (time.perf_counter() - start))
        pipe.send(sorted(times)[len(times) // 4])


def race(case: Case, megabytes: int, threads: int) -> list[float]:
    """Medians over turns, ours first."""
    contestants = [Contestant(make, case.name, megabytes, threads) for make in (our_runner, their_runner)]
    turns = [[contestant.turn() for contestant in contestants] for _ in range(TURNS)]
    for contestant in contestants:
        contestant.close()
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def main(names: list[str]) -> None:
    table = Table("operator", "MB", *(f"{t} thread(s): us, onnxruntime us, ratio" for t in THREADS), box=None)
    for megabytes in MEGABYTES:
        for case in cases(megabytes):
            if names and not any(name in case.name for name in names):
                continue
            cells: list[str] = []
            for threads in THREADS:
                ours, theirs = race(case, megabytes, threads)
                cells.append(f"{ours:9.0f} {theirs:9.0f} {ours / theirs:6.2f}")
            table.add_row(case.name, str(megabytes), *cells)
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
