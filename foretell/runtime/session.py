"""A compiled model: call it with arrays.

For given dimensions the memory plan is made once and kept. A call borrows a workspace (address table and arena), so
that several threads may call one model at once; the GIL is released while native code runs.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.runtime.arena import ALIGNMENT, Arena, aligned_empty, large_empty, lifetimes, plan_arena
from foretell.runtime.artifact import Artifact, write_artifact
from foretell.runtime.bound_call import BoundCall
from foretell.runtime.check_inputs import (
    Array,
    aligned,
    bind_shape,
    check_dimensions,
    check_names,
    checked_in_place,
    checked_input,
    named_inputs,
)
from foretell.runtime.deliver_outputs import check_output_names, deliver, output_array
from foretell.runtime.native_code import POOLS, NativeCode
from foretell.runtime.program import Binary, Program, Slot, Step
from foretell.runtime.specialise import Specialiser
from foretell.target.resolve import Target, check_runs_here, runs_here

Fallback = Callable[[Sequence[Array], Mapping[Sym, int]], Sequence[Array]]
"""Runs a node outside native code: present inputs and the values of symbols in, outputs out."""

KEPT_PLANS = 64
"""Memory plans kept for different dimensions, the one not used for longest dropped first."""
KEPT_ARENAS = 4
"""Plans, of those used last, that keep their memory between calls."""


@dataclass(slots=True)
class _Workspace:
    """Memory of one call: an address table and, for the slots the plan places, an arena."""

    table: Any
    dims: Any
    arena: Array | None


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything about one set of dimensions."""

    values: Mapping[Sym, int]
    shapes: tuple[tuple[int, ...], ...]
    arena: Arena
    free: list[_Workspace] = field(default_factory=list)


class CompiledModel:
    """A model compiled to machine code. Call it with arrays, in order or by name.

    One that was compiled for another machine can be saved, but not called.
    """

    def __init__(
        self,
        program: Program,
        binary: Binary,
        constants: Mapping[int, Array],
        fallbacks: Sequence[Fallback] = (),
        threads: int = 1,
    ) -> None:
        self.program = program
        self.threads = threads
        self._binary = binary
        self._constants = constants
        self._fallbacks = tuple(fallbacks)
        self._input_names = tuple(program.slots[slot].name for slot in program.inputs)
        self._input_slots = tuple(program.slots[slot] for slot in program.inputs)
        self._output_types = tuple(program.slots[slot].dtype for slot in program.outputs)
        self._outputs = tuple(zip(program.output_names, program.outputs, strict=True))
        self._is_native = program.is_native
        self._bound: dict[tuple[tuple[int, ...], ...], dict[Sym, int]] = {}
        self._plans: dict[tuple[int, ...], _Plan] = {}
        self._recent: _Plan | None = None
        self._lock = threading.Lock()
        self._code: NativeCode | None = None
        self.specialiser: Specialiser | None = None
        """What runs the model instead, where values of inputs allow for better code than this."""
        if runs_here(binary.target):
            POOLS.load(binary.pool)
            self._code = NativeCode(*binary.kernels)
            self._native_steps = self._code.steps(sum(step.native is not None for step in program.steps))
            self._pool = POOLS.get(threads)

    # --- what users touch ---

    @property
    def input_names(self) -> tuple[str, ...]:
        return self._input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.program.output_names

    @property
    def inputs(self) -> tuple[Slot, ...]:
        """Name, element type and shape of every input."""
        return self._input_slots

    @property
    def target(self) -> Target:
        """The CPU that the code is for."""
        return self._binary.target

    @property
    def weight_bytes(self) -> int:
        """Constants, as they lie in memory and in a saved file."""
        return sum(array.nbytes for array in self._constants.values())

    @property
    def code_bytes(self) -> int:
        """Machine code of the kernels and of the thread pool, as objects."""
        return sum(map(len, (*self._binary.kernels, self._binary.pool)))

    def arena_bytes(self, values: Mapping[Sym, int] | None = None) -> int:
        """Memory for intermediate results of one call; `values` says what each of `program.symbols` stands for."""
        return self._make_plan(values or {}).arena.total_bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that `foretell.load` reads; the same model gives the same bytes."""
        write_artifact(path, Artifact(self.program, self._binary, self._constants))

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """One array for one output, else a tuple of them."""
        results = tuple(self.run(named_inputs(self.input_names, arrays, named)).values())
        return results[0] if len(results) == 1 else results

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Outputs by name, for inputs by name; `out` may give arrays to write outputs to."""
        if self.specialiser is not None:
            return self.specialiser.run(feeds, out)
        inputs = [checked_input(slot, feeds) for slot in self._input_slots]
        check_names(feeds, self.input_names)
        check_output_names(out or (), self.output_names)
        results = self.run_arrays(inputs, {}, out or {})
        return dict(zip(self.output_names, results, strict=True))

    def bind(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> BoundCall:
        """The model bound to arrays, for the shortest calls: `call = model.bind(feeds); call()`.

        Arrays are read and written where they are; one that would have to be copied is an `InputError`.
        """
        inputs = {name: checked_in_place(name, array) for name, array in feeds.items()}
        outputs = self.run(inputs, out)
        run = self._try_bound(inputs, outputs)
        return BoundCall(run or (lambda: self.run(inputs, outputs)), inputs, outputs)

    # --- execution ---

    def run_arrays(
        self, inputs: Sequence[Array], outer: Mapping[Sym, int], out: Mapping[str, Array] | None = None
    ) -> list[Array]:
        """Outputs in order, for checked inputs in order; `outer` binds symbols of an enclosing graph."""
        if self._code is None:
            check_runs_here(self.target)
        symbols = self._bind(inputs, outer)
        if self._is_planned(symbols):
            results = self._run_planned(inputs, symbols, out or {})
        else:
            results = self._run_stepwise(inputs, symbols)
        return deliver(self.output_names, self._output_types, results, out or {})

    def run_checked(self, inputs: Sequence[Array], outer: Mapping[Sym, int]) -> list[Array]:
        """The same for arrays of the right types that may lie anywhere in memory."""
        return self.run_arrays([aligned(np.asarray(array)) for array in inputs], outer)

    def _run_planned(
        self, inputs: Sequence[Array], symbols: Mapping[Sym, int], out: Mapping[str, Array]
    ) -> list[Array]:
        plan = self._plan(symbols)
        arrays = self._places(plan, inputs, out)
        workspace = self._borrow(plan)
        for slot, array in arrays.items():
            workspace.table[slot] = _address(array)
        for step in self._native_steps:
            step(workspace.table, workspace.dims, self._pool)
        with self._lock:
            plan.free.append(workspace)
        return [self._result(slot, arrays) for slot in self.program.outputs]

    def _try_bound(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], object] | None:
        """Native code with its arguments in place, or None if a call has to do more than run it."""
        arrays = [inputs[name] for name in self.input_names]
        if self.specialiser is not None or not self._is_planned(symbols := self._bind(arrays, {})):
            return None
        plan = self._plan(symbols)
        places = self._places(plan, arrays, outputs)
        if any(places.get(slot) is not outputs[name] for name, slot in self._outputs):
            return None
        workspace = self._make_workspace(plan)
        for slot, array in places.items():
            workspace.table[slot] = _address(array)

        def run() -> None:
            for step in self._native_steps:
                step(workspace.table, workspace.dims, self._pool)

        return run

    def _is_planned(self, symbols: Mapping[Sym, int]) -> bool:
        """Whether all of the model is native code for which memory can be planned."""
        return self._is_native and all(symbol in symbols for symbol in self.program.symbols)

    def _places(self, plan: _Plan, inputs: Sequence[Array], out: Mapping[str, Array]) -> dict[int, Array]:
        """Arrays by slot: the inputs, and what outputs are written to."""
        arrays: dict[int, Array] = dict(zip(self.program.inputs, inputs, strict=True))
        for name, slot in self._outputs:
            if slot not in arrays and self.program.slots[slot].role == "output":
                others = arrays.values() if out else ()
                arrays[slot] = output_array(name, self.program.slots[slot].dtype, plan.shapes[slot], out, others)
        return arrays

    def _result(self, slot: int, arrays: Mapping[int, Array]) -> Array:
        """An output; one that is an input or a constant of the model is copied, so that callers own what they get."""
        if self.program.slots[slot].role == "output":
            return arrays[slot]
        return np.array(arrays[slot] if slot in arrays else self._constants[slot])

    def _plan(self, symbols: Mapping[Sym, int]) -> _Plan:
        key = tuple(symbols[symbol] for symbol in self.program.symbols)
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._use(key, found)
                return found
        plan = self._make_plan(symbols)
        with self._lock:
            while len(self._plans) >= KEPT_PLANS:
                self._plans.pop(next(iter(self._plans)))
            plan = self._plans.setdefault(key, plan)
            self._use(key, plan)
            return plan

    def _use(self, key: tuple[int, ...], plan: _Plan) -> None:
        """Make a plan the last used one; memory of those before the last few is given back."""
        if self._recent is plan:
            return
        self._recent = plan
        self._plans[key] = self._plans.pop(key)
        for other in list(self._plans.values())[:-KEPT_ARENAS]:
            other.free.clear()

    def _make_plan(self, symbols: Mapping[Sym, int]) -> _Plan:
        check_dimensions(self.program.checks, symbols)
        shapes = tuple(self._shape(slot, symbols) for slot in self.program.slots)
        lives = lifetimes([kernel for step in self.program.steps for kernel in step.kernels])
        sizes = {
            number: prod(shapes[number]) * slot.dtype.itemsize
            for number, slot in enumerate(self.program.slots)
            if slot.role == "temporary" and number in lives
        }
        return _Plan(dict(symbols), shapes, plan_arena(lives, sizes))

    def _shape(self, slot: Slot, symbols: Mapping[Sym, int]) -> tuple[int, ...]:
        return tuple(_number(dim, symbols) for dim in slot.shape)

    def _borrow(self, plan: _Plan) -> _Workspace:
        with self._lock:
            if plan.free:
                return plan.free.pop()
        return self._make_workspace(plan)

    def _make_workspace(self, plan: _Plan) -> _Workspace:
        arena = large_empty(plan.arena.total_bytes)
        table = (ctypes.c_void_p * max(1, len(self.program.slots)))()
        for slot, array in self._constants.items():
            table[slot] = _address(array)
        for slot, offset in plan.arena.offsets.items():
            table[slot] = arena.ctypes.data + offset
        values = [plan.values[symbol] for symbol in self.program.symbols]
        return _Workspace(table, (ctypes.c_int64 * max(1, len(values)))(*values), arena)

    def _run_stepwise(self, inputs: Sequence[Array], symbols: dict[Sym, int]) -> list[Array]:
        """Step by step, where a step may run outside native code or tell dimensions that only data knows."""
        program = self.program
        arrays: dict[int, Array] = dict(self._constants) | dict(zip(program.inputs, inputs, strict=True))
        for step in program.steps:
            if step.fallback is not None:
                results = self._fallbacks[step.fallback]([arrays[slot] for slot in step.reads], symbols)
                for slot, array in zip(step.writes, results, strict=True):
                    arrays[slot] = aligned(np.asarray(array))
                    bind_shape(program.slots[slot], array.shape, symbols)
            else:
                self._run_native_step(step, arrays, symbols)
        return [
            arrays[slot] if program.slots[slot].role == "output" else np.array(arrays[slot]) for slot in program.outputs
        ]

    def _run_native_step(self, step: Step, arrays: dict[int, Array], symbols: Mapping[Sym, int]) -> None:
        check_dimensions(self.program.checks, symbols)
        for slot in step.writes:
            described = self.program.slots[slot]
            arrays[slot] = aligned_empty(self._shape(described, symbols), described.dtype.numpy)
        table = (ctypes.c_void_p * max(1, len(self.program.slots)))()
        for slot in (*step.reads, *step.writes):
            table[slot] = _address(arrays[slot])
        values = [symbols.get(symbol, 0) for symbol in self.program.symbols]
        assert step.native is not None
        self._native_steps[step.native](table, (ctypes.c_int64 * max(1, len(values)))(*values), self._pool)

    # --- inputs ---

    def _bind(self, inputs: Sequence[Array], outer: Mapping[Sym, int]) -> dict[Sym, int]:
        """The values of symbols, remembered for the shapes that were seen."""
        shapes = tuple(array.shape for array in inputs)
        if not outer and shapes in self._bound:
            return dict(self._bound[shapes])
        symbols = dict(outer)
        for slot, array in zip(self._input_slots, inputs, strict=True):
            bind_shape(slot, array.shape, symbols)
        if not outer:
            if len(self._bound) >= KEPT_PLANS:
                self._bound.clear()
            self._bound[shapes] = dict(symbols)
        return symbols


_EMPTY = np.zeros(ALIGNMENT, np.uint8)
"""What an empty tensor's address points to: masked loads may look at its first element."""


def _address(array: Array) -> int:
    """Where an array's data begins (`array.ctypes.data` says the same, but takes longer than a small model)."""
    return (array if array.size else _EMPTY).__array_interface__["data"][0]


def _number(dim: Dim, symbols: Mapping[Sym, int]) -> int:
    value = expr.substitute(dim, dict(symbols))
    assert isinstance(value, int), f"{dim} mentions symbols that are not bound"
    return value
