"""What one instruction of each class costs a core: the files in target/instructions, one for each family of cores.

Floats are of 32 bits, integers too, and vectors as wide as `vector_bytes` unless a table of half the width says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from foretell.target.toml_table import TomlTable, parse_table, unreadable

CLASSES = tuple(
    """
    fma add mul max div sqrt shuffle blend compare convert broadcast_load load store
    logic shift integer integer_multiply scalar scalar_multiply branch move
    """.split()
)
"""Of vectors, but for `scalar` integers and `branch`: a comparison and a jump that is taken."""
USUAL_REORDER_BUFFER = 224
_FOLDER = resources.files("foretell.target").joinpath("instructions")


@dataclass(frozen=True, slots=True)
class InstructionForm:
    per_cycle: float
    """How many start each cycle, with nothing else to do."""
    latency_cycles: int
    """From the last operand to the result; of `fma` from the accumulator, of a store to a load of the same place."""
    micro_ops: tuple[frozenset[str], ...]
    """For each micro-operation, the ports that can take it; none for what the front end does alone."""

    @property
    def port_bound_per_cycle(self) -> float:
        """What the ports allow for, if each micro-operation holds one for a cycle."""
        return min((len(ports) / self.micro_ops.count(ports) for ports in self.micro_ops), default=float("inf"))


@dataclass(frozen=True, slots=True)
class CoreFamily:
    """Cores whose pipelines are the same, or nearly so."""

    name: str
    cpus: tuple[str, ...]
    """The named CPUs (target/cpus) that have them, or that they stand for."""
    vector_bytes: int
    issue_width: int
    """Micro-operations renamed each cycle."""
    reorder_buffer: int
    """Micro-operations in flight; 0 for a core that works in order."""
    ports: tuple[str, ...]
    forms: Mapping[str, InstructionForm]
    """Every class, at the full width."""
    half_width: Mapping[str, InstructionForm]
    """The classes whose narrower forms differ."""

    def form(self, instruction_class: str, vector_bytes: int | None = None) -> InstructionForm:
        """The form for vectors of that width; the full one unless told."""
        narrow = vector_bytes is not None and vector_bytes < self.vector_bytes
        return (self.half_width if narrow else {}).get(instruction_class) or self.forms[instruction_class]


@cache
def family_names() -> tuple[str, ...]:
    """The families that come with the package."""
    return tuple(sorted(file.name.removesuffix(".toml") for file in _FOLDER.iterdir() if file.name.endswith(".toml")))


@cache
def read_family(name: str) -> CoreFamily:
    """One of `family_names()`."""
    return parse_family(_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def family_of(cpu: str) -> CoreFamily:
    """The family of a named CPU: `HardwareSpec.name`."""
    found = _try_family(cpu)
    assert found is not None, f"no family of cores has {cpu}"
    return found


@cache
def reorder_buffer(cpu: str) -> int:
    """Micro-operations that a named CPU has in flight; of one that nobody has described, as many as is usual."""
    found = _try_family(cpu)
    return USUAL_REORDER_BUFFER if found is None else found.reorder_buffer


def _try_family(cpu: str) -> CoreFamily | None:
    """The family of the same name is looked at first: reading all of them takes a while."""
    names = sorted(family_names(), key=lambda name: name != cpu)
    return next((family for family in map(read_family, names) if cpu in family.cpus), None)


def parse_family(text: str, where: str) -> CoreFamily:
    """Read one file; a missing, unknown or impossible key is a `UsageError` that names it."""
    table = parse_table(text, where)
    ports = tuple(table.word("ports").split())
    forms, narrow = table.table("forms"), table.table("half_width", default={})
    family = CoreFamily(
        name=table.word("name"),
        cpus=table.words("cpus"),
        vector_bytes=table.count("vector_bytes", least=0),
        issue_width=table.count("issue_width"),
        reorder_buffer=table.count("reorder_buffer", least=0),
        ports=ports,
        forms=MappingProxyType({name: _parse_form(forms.table(name), ports) for name in CLASSES}),
        half_width=MappingProxyType(
            {name: _parse_form(narrow.table(name), ports) for name in CLASSES if name in narrow.facts}
        ),
    )
    for emptied in (table, forms, narrow):
        emptied.check_empty()
    return family


def _parse_form(table: TomlTable, ports: tuple[str, ...]) -> InstructionForm:
    micro_ops = tuple(frozenset(text.split()) for text in table.words("micro_ops"))
    form = InstructionForm(table.number("per_cycle"), table.count("latency_cycles", least=0), micro_ops)
    table.check_empty()
    unknown = sorted({port for choices in micro_ops for port in choices if port not in ports})
    if unknown or not all(micro_ops):
        raise unreadable(f"{table.where}, micro_ops", " or ".join(ports), ", ".join(unknown) or "no port")
    if form.per_cycle > form.port_bound_per_cycle:
        raise unreadable(
            f"{table.where}, per_cycle", f"at most {form.port_bound_per_cycle:g} for its ports", f"{form.per_cycle:g}"
        )
    return form
