"""A program as JSON, and back. What is read is not trusted: every number is checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from foretell.ir import dtypes
from foretell.ir.dtypes import DType
from foretell.ir.expr import Dim, Sym
from foretell.ir.expr_json import dim_from_json, dim_to_json
from foretell.runtime.program import ROLES, Check, Program, Slot, Step
from foretell.support.errors import DamagedArtifact, ShapeTooComplex
from foretell.support.limits import DEFAULT_LIMITS

MAX_EXTENT = 1 << 48
"""The largest number in a shape: more elements than any machine addresses."""
DTYPES = {dtype.name: dtype for dtype in dtypes.ALL}

Thing = TypeVar("Thing")


def program_to_json(program: Program) -> dict[str, Any]:
    """Plain data; the program must be native, as Python functions have no place in it."""
    assert program.is_native, "a step runs in Python"
    return {
        "name": program.name,
        "symbols": [[symbol.name, symbol.lo, symbol.hi, symbol.multiple_of] for symbol in program.symbols],
        "slots": [
            [slot.name, slot.dtype.name, slot.role, [dim_to_json(dim, program.symbols) for dim in slot.shape]]
            for slot in program.slots
        ],
        "steps": [{"reads": step.reads, "writes": step.writes, "kernels": step.kernels} for step in program.steps],
        "inputs": program.inputs,
        "outputs": program.outputs,
        "output_names": program.output_names,
        "checks": [[dim_to_json(check.value, program.symbols), check.where] for check in program.checks],
    }


class Fields:
    """One object of a manifest, read field by field; what is not as it should be is a `DamagedArtifact`."""

    def __init__(self, value: object, where: str, keys: Sequence[str]) -> None:
        if not isinstance(value, dict) or set(value) != set(keys):
            refuse(where, f"an object with {', '.join(keys)}", value)
        self._values: dict[str, Any] = value
        self._where = where

    def any(self, key: str) -> Any:
        return self._values[key]

    def text(self, key: str) -> str:
        return read_text(self._values[key], f"{self._where}.{key}")

    def list(self, key: str, read: Callable[[Any, str], Thing]) -> tuple[Thing, ...]:
        return read_list(self._values[key], f"{self._where}.{key}", read)


def refuse(where: str, expected: str, got: object) -> NoReturn:
    raise DamagedArtifact(
        "the manifest of a compiled model is wrong",
        where=where,
        expected=expected,
        got=repr(got)[:80],
        hint="compile the model again",
    )


def read_text(value: Any, where: str) -> str:
    if isinstance(value, str) and len(value.encode(errors="surrogatepass")) <= 4 * DEFAULT_LIMITS.name_bytes:
        return value
    refuse(where, "a name", value)


def read_number(value: Any, where: str, least: int = 0, most: int = MAX_EXTENT) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    refuse(where, f"a whole number from {least} to {most}", value)


def read_list(
    value: Any, where: str, read: Callable[[Any, str], Thing], length: int | None = None
) -> tuple[Thing, ...]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        refuse(where, "a list" if length is None else f"a list of {length}", value)
    return tuple(read(item, f"{where}[{number}]") for number, item in enumerate(value))


def program_from_json(value: object) -> Program:
    """The program, in which every slot number, shape and name is sound."""
    keys = ("name", "symbols", "slots", "steps", "inputs", "outputs", "output_names", "checks")
    fields = Fields(value, "program", keys)
    symbols = fields.list("symbols", _symbol)
    slots = fields.list("slots", lambda item, where: _slot(item, where, symbols))

    def slot_number(item: Any, where: str) -> int:
        return read_number(item, where, 0, len(slots) - 1)

    steps = tuple(
        _step(number, item, f"program.steps[{number}]", slot_number)
        for number, item in enumerate(fields.list("steps", lambda item, _: item))
    )
    program = Program(
        fields.text("name"),
        slots,
        symbols,
        steps,
        fields.list("inputs", slot_number),
        fields.list("outputs", slot_number),
        fields.list("output_names", read_text),
        fields.list("checks", lambda item, where: _check(item, where, symbols)),
    )
    _check_program(program)
    return program


def _symbol(value: Any, where: str) -> Sym:
    name, low, high, multiple = read_list(value, where, lambda item, _: item, length=4)
    low = read_number(low, where)
    return Sym(
        read_text(name, where),
        low,
        None if high is None else read_number(high, where, low),
        read_number(multiple, where, 1),
    )


def _slot(value: Any, where: str, symbols: Sequence[Sym]) -> Slot:
    name, dtype, role, shape = read_list(value, where, lambda item, _: item, length=4)
    if role not in ROLES:
        refuse(where, f"one of {', '.join(ROLES)}", role)
    dims = read_list(shape, where, lambda item, place: _dim(item, place, symbols))
    if len(dims) > DEFAULT_LIMITS.rank:
        refuse(where, f"at most {DEFAULT_LIMITS.rank} dimensions", len(dims))
    return Slot(read_text(name, where), _dtype(dtype, where), dims, role)


def _check(value: Any, where: str, symbols: Sequence[Sym]) -> Check:
    expression, place = read_list(value, where, lambda item, _: item, length=2)
    return Check(_dim(expression, where, symbols), read_text(place, where))


def _dtype(value: Any, where: str) -> DType:
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    refuse(where, "an element type", value)


def _dim(value: Any, where: str, symbols: Sequence[Sym]) -> Dim:
    try:
        dim = dim_from_json(value, symbols)
    except (ValueError, ShapeTooComplex) as error:
        refuse(where, "a dimension", str(error))
    return read_number(dim, where) if isinstance(dim, int) else dim


def _step(number: int, value: Any, where: str, slot_number: Callable[[Any, str], int]) -> Step:
    fields = Fields(value, where, ("reads", "writes", "kernels"))

    def slot_numbers(item: Any, place: str) -> tuple[int, ...]:
        return read_list(item, place, slot_number)

    def kernel(item: Any, place: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        writes, reads = read_list(item, place, slot_numbers, length=2)
        return writes, reads

    kernels = fields.list("kernels", kernel)
    return Step(number, None, fields.list("reads", slot_number), fields.list("writes", slot_number), kernels)


def _check_program(program: Program) -> None:
    """What the parts must be to one another, so that every address a kernel asks for is there."""
    names = [slot.name for slot in program.slots]
    if len(set(names)) != len(names):
        refuse("program.slots", "names that differ", _duplicates(names))
    if len(program.output_names) != len(program.outputs):
        refuse("program.output_names", f"{len(program.outputs)} names", len(program.output_names))
    inputs = [number for number, slot in enumerate(program.slots) if slot.role == "input"]
    if sorted(program.inputs) != inputs:
        refuse("program.inputs", f"each of {inputs} once", program.inputs)
    written = {slot for step in program.steps for writes, _ in step.kernels for slot in writes}
    known = {number for number, slot in enumerate(program.slots) if slot.role in ("input", "constant")}
    if written & known:
        refuse("program.steps", "inputs and constants that nobody writes", sorted(written & known))
    read = {slot for step in program.steps for _, reads in step.kernels for slot in reads}
    if not read | set(program.outputs) <= written | known:
        refuse("program.steps", "tensors that are written", sorted((read | set(program.outputs)) - written - known))


def _duplicates(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return sorted({name for name in names if name in seen or seen.add(name)})
