from __future__ import annotations

import pytest

from foretell.support.errors import UsageError
from foretell.target.instructions import (
    CLASSES,
    CoreFamily,
    family_names,
    family_of,
    parse_family,
    read_family,
    reorder_buffer,
)
from foretell.target.read_spec import cpu_names, read_named

FORM = "{ per_cycle = 1, latency_cycles = 2, micro_ops = ['p0'] }"
FORMS = "\n".join(f"{name} = {FORM}" for name in CLASSES)
TEXT = f"""
name = "tiny"
cpus = ["riscv64"]
vector_bytes = 32
issue_width = 2
reorder_buffer = 0
ports = "p0 p1"
[forms]
{FORMS}
[half_width]
div = {{ per_cycle = 0.5, latency_cycles = 3, micro_ops = ['p0', 'p0 p1'] }}
"""
FAMILIES = [read_family(name) for name in family_names()]


@pytest.mark.parametrize("name", cpu_names())
def test_every_named_cpu_has_one_family_that_agrees_with_it(name: str) -> None:
    assert sum(name in family.cpus for family in FAMILIES) == 1
    spec, family = read_named(name), family_of(name)
    assert spec.vector_bytes == family.vector_bytes
    ports = (spec.fma_ports, spec.load_ports, spec.store_ports)
    assert ports == tuple(max(1, round(family.form(kind).per_cycle)) for kind in ("fma", "load", "store"))
    if name != "x86-64":  # stands for AMD's K10 too
        assert spec.fma_latency_cycles == family.form("fma").latency_cycles


@pytest.mark.parametrize("family", FAMILIES, ids=family_names())
def test_numbers_are_plausible(family: CoreFamily) -> None:
    assert family.name in family_names() and set(family.cpus) <= set(cpu_names())
    assert len(set(family.ports)) == len(family.ports)
    assert 2 <= family.issue_width <= 10 and family.reorder_buffer < 1000
    for form in (*family.forms.values(), *family.half_width.values()):
        assert 1 / 50 < form.per_cycle <= family.issue_width and form.latency_cycles < 50
    for kind, form in family.half_width.items():
        assert form.per_cycle >= family.forms[kind].per_cycle
        assert form != family.forms[kind], f"{family.name}: {kind} says nothing"


def test_narrower_forms() -> None:
    family = family_of("icelake-server")
    assert family.form("fma").micro_ops == (frozenset({"p0", "p5"}),)
    assert family.form("fma", 64) == family.form("fma")
    assert family.form("fma", 32).micro_ops == (frozenset({"p0", "p1"}),)
    assert family.form("compare", 32) == family.form("compare")


def test_two_micro_operations_share_their_ports() -> None:
    assert family_of("skylake").form("blend").port_bound_per_cycle == 1.5


@pytest.mark.parametrize(
    ("old", "new", "where", "expected"),
    [
        (f"add = {FORM}", "", "tiny.toml, forms, add", "a table [add]"),
        ("[half_width]", "[half_width]\ncook = {}", "tiny.toml, half_width, cook", "no such key"),
        ("[forms]", "colour = 1\n[forms]", "tiny.toml, colour", "no such key"),
        ("['p0']", "['p7']", "tiny.toml, forms, fma, micro_ops", "p0 or p1"),
        ("['p0']", "['']", "tiny.toml, forms, fma, micro_ops", "p0 or p1"),
        ("per_cycle = 1", "per_cycle = 2", "tiny.toml, forms, fma, per_cycle", "at most 1 for its ports"),
        ("issue_width = 2", "issue_width = 0", "tiny.toml, issue_width", "a whole number, at least 1"),
    ],
)
def test_a_wrong_file_is_refused(old: str, new: str, where: str, expected: str) -> None:
    assert parse_family(TEXT, "tiny.toml").form("div", 16).latency_cycles == 3
    with pytest.raises(UsageError, match="the description of a CPU cannot be read") as caught:
        parse_family(TEXT.replace(old, new, 1), "tiny.toml")
    assert (caught.value.where, caught.value.expected) == (where, expected)


def test_cpus_that_nobody_has_described_look_as_far_ahead_as_is_usual() -> None:
    assert (reorder_buffer("znver4"), reorder_buffer("x86-64-v4"), reorder_buffer("tiny")) == (320, 320, 224)
