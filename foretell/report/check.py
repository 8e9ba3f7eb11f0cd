"""What `foretell check` says of a model: what it takes, what becomes of its operators, and which of them matter."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from foretell.frontend.import_onnx import Imported, OperatorUse, Shapes, Source, import_onnx
from foretell.ir import expr
from foretell.ir.expr import Dim, Sym
from foretell.ir.tensor_expr import TensorType
from foretell.report.flops import NodeFlops, count_flops, smallest, try_total
from foretell.report.tables import plain
from foretell.report.units import percent, plural, short_number
from foretell.support.limits import DEFAULT_LIMITS, Limits

STATUSES: dict[str, tuple[str, str]] = {
    "native": ("green", "one canonical operator, or known while importing"),
    "decomposed": ("cyan", "several canonical operators"),
    "reference": ("yellow", "right but slow: run by the reference of the onnx package"),
    "unsupported": ("bold red", "cannot run"),
    "blocked": ("red", "not examined further: reads what an unsupported node makes"),
}
"""Style and meaning of what may become of a node, best first."""
MAX_OUTER_NAMES = 64
"""How many enclosing names an expanded node's location is searched for."""

ALL_FROM_WIDTH, BARS_FROM_WIDTH = 80, 100
"""Terminals narrower than this get fewer columns."""
BAR, MAX_BAR_WIDTH = "\N{BOX DRAWINGS HEAVY HORIZONTAL}", 12
MAX_NAME_WIDTH = 30
MAX_EXPRESSION_WIDTH = 100

OperatorKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """All uses of one ONNX operator."""

    domain: str
    op_type: str
    statuses: Mapping[str, int]
    becomes: Mapping[str, int]
    """Canonical operators and their number; `Onnx` is one node on the reference."""
    flops: Dim | None
    """None if the graph could not be built, or if the expression would be too complicated."""
    sample_flops: int
    """Where symbols stand for the numbers of `CheckReport.sample`."""
    share: float
    """Of the model's `sample_flops`."""

    @property
    def name(self) -> str:
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def count(self) -> int:
        return sum(self.statuses.values())

    def to_json(self) -> dict[str, object]:
        return {
            "domain": self.domain,
            "op_type": self.op_type,
            "count": self.count,
            "statuses": dict(self.statuses),
            "becomes": dict(self.becomes),
            "flops": self.flops if isinstance(self.flops, int) else None,
            "flops_expression": None if self.flops is None else str(self.flops),
            "flops_share": self.share,
        }


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Facts about one model; `ok` says whether foretell can run it."""

    name: str
    opsets: Mapping[str, int]
    inputs: tuple[tuple[str, TensorType | None], ...]
    outputs: tuple[tuple[str, TensorType | None], ...]
    parameter_count: int
    parameter_bytes: int
    onnx_nodes: int
    graph_nodes: int | None
    operators: tuple[OperatorReport, ...]
    flops: Dim | None
    """None if the graph could not be built, or if the expression would be too complicated."""
    sample_flops: int | None
    sample: Mapping[Sym, Dim]
    """The numbers, as small as may be, that symbols stand for in `sample_flops`."""
    uncounted_nodes: int
    """Nodes whose flops are not known: on the reference, or too complicated an expression."""
    counted_once: int
    """Loops and branches whose path only the data tells: each body counts as if it ran once."""
    unsupported: tuple[OperatorUse, ...]

    @property
    def ok(self) -> bool:
        return not self.unsupported

    def to_json(self) -> dict[str, object]:
        """The same facts for a machine; symbolic dimensions and flops are text."""
        return {
            "ok": self.ok,
            "model": self.name,
            "opsets": {domain or "ai.onnx": version for domain, version in self.opsets.items()},
            "inputs": [_value_json(name, type) for name, type in self.inputs],
            "outputs": [_value_json(name, type) for name, type in self.outputs],
            "parameters": self.parameter_count,
            "parameter_bytes": self.parameter_bytes,
            "onnx_nodes": self.onnx_nodes,
            "graph_nodes": self.graph_nodes,
            "flops": self.flops if isinstance(self.flops, int) else None,
            "flops_expression": None if self.flops is None else str(self.flops),
            "flops_sample": {"flops": self.sample_flops, "at": {str(sym): dim for sym, dim in self.sample.items()}},
            "flops_uncounted_nodes": self.uncounted_nodes,
            "flops_counted_once": self.counted_once,
            "operators": [operator.to_json() for operator in self.operators],
            "unsupported": [
                {"where": use.location, "domain": use.domain, "op_type": use.op_type, "reason": use.reason}
                for use in self.unsupported
            ],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Columns that a narrow terminal has no room for are left out."""
        yield _heading(self)
        yield Text()
        yield _facts_table(self)
        yield Text()
        yield _operator_table(self, options.max_width, has_bars=console.is_terminal and not options.ascii_only)
        yield Text()
        yield _legend(self)
        if self.unsupported:
            yield Text()
            yield _unsupported_table(self)
        yield Text()
        yield _verdict(self)


def check_model(source: Source, shapes: Shapes | None = None, limits: Limits = DEFAULT_LIMITS) -> CheckReport:
    """Import a model and report on it; what is unsupported is part of the report, a broken model is an error."""
    imported = import_onnx(source, shapes=shapes, limits=limits)
    counted = [] if imported.graph is None else list(count_flops(imported.graph))
    flops = [entry.flops for entry in counted if entry.flops is not None]
    sample = smallest(flops)
    operators = _operators(imported, counted, sample)
    is_built = imported.graph is not None
    return CheckReport(
        name=_name(source),
        opsets=imported.opsets,
        inputs=tuple((value.name, value.type) for value in imported.inputs),
        outputs=imported.outputs,
        parameter_count=imported.parameters.count,
        parameter_bytes=imported.parameters.bytes,
        onnx_nodes=len(imported.operators),
        graph_nodes=len(counted) if is_built else None,
        operators=operators,
        flops=try_total(flops) if is_built else None,
        sample_flops=_number(flops, sample) if is_built else None,
        sample=sample,
        uncounted_nodes=sum(entry.flops is None for entry in counted),
        counted_once=sum(not entry.has_known_trips for entry in counted),
        unsupported=tuple(use for use in imported.operators if use.status == "unsupported"),
    )


def _name(source: Source) -> str:
    if isinstance(source, str | os.PathLike):
        return os.path.basename(os.fspath(source))
    return "model" if isinstance(source, bytes) else source.graph.name or "model"


# --- operators -----------------------------------------------------------------------------------------------


def _operators(
    imported: Imported, counted: Sequence[NodeFlops], sample: Mapping[Sym, Dim]
) -> tuple[OperatorReport, ...]:
    """One entry per operator: what cannot run, then what has the most flops, then what is used most."""
    statuses: dict[OperatorKey, Counter[str]] = {}
    for use in imported.operators:
        statuses.setdefault(_key(use), Counter())[use.status] += 1
    groups: dict[OperatorKey | None, list[NodeFlops]] = {}
    for entry, key in _attributed(counted, imported.operators):
        groups.setdefault(key, []).append(entry)
    whole = _number([entry.flops for entry in counted if entry.flops is not None], sample)

    def report(key: OperatorKey) -> OperatorReport:
        found = {status: statuses[key][status] for status in STATUSES if statuses[key][status]}
        becomes = Counter(entry.node.op for entry in groups.get(key, []))
        flops = [entry.flops for entry in groups.get(key, []) if entry.flops is not None]
        number = _number(flops, sample)
        symbolic = None if imported.graph is None else try_total(flops)
        return OperatorReport(*key, found, becomes, symbolic, number, number / whole if whole else 0.0)

    def order(operator: OperatorReport) -> tuple[bool, float, int, str]:
        return "unsupported" not in operator.statuses, -operator.share, -operator.count, operator.name

    return tuple(sorted((report(key) for key in statuses), key=order))


def _key(use: OperatorUse) -> OperatorKey:
    return "" if use.domain == "ai.onnx" else use.domain, use.op_type


def _attributed(
    counted: Iterable[NodeFlops], uses: Iterable[OperatorUse]
) -> Iterator[tuple[NodeFlops, OperatorKey | None]]:
    """Each graph node with the ONNX operator that it came from."""
    by_location: dict[str, OperatorKey] = {}
    for use in uses:
        by_location.setdefault(use.location, _key(use))
    for entry in counted:
        locations = (entry.node.location, *(parent.location for parent in reversed(entry.parents)))
        owners = (_owner(location, by_location) for location in locations)
        yield entry, next((owner for owner in owners if owner is not None), None)


def _owner(location: str, by_location: Mapping[str, OperatorKey]) -> OperatorKey | None:
    """The operator at a location or around it: nodes of an expanded function are at `outer/inner`."""
    for _ in range(MAX_OUTER_NAMES):
        if location in by_location:
            return by_location[location]
        location, slash, _ = location.rpartition("/")
        if not slash:
            break
    return None


def _number(flops: Iterable[Dim], sample: Mapping[Sym, Dim]) -> int:
    """The sum where symbols stand for the sample's numbers."""
    numbers = [expr.substitute(dim, sample) for dim in flops]
    assert all(isinstance(number, int) for number in numbers), "a symbol is outside the sample"
    return sum(number for number in numbers if isinstance(number, int))


def _value_json(name: str, type: TensorType | None) -> dict[str, object]:
    shape = None if type is None else [dim if isinstance(dim, int) else str(dim) for dim in type.shape]
    return {"name": name, "dtype": None if type is None else str(type.dtype), "shape": shape}


# --- text for a terminal -------------------------------------------------------------------------------------


def _heading(report: CheckReport) -> Text:
    opsets = ", ".join(f"{domain} {version}".strip() for domain, version in sorted(report.opsets.items()))
    nodes = plural(report.onnx_nodes, "node")
    if report.graph_nodes is not None:
        nodes += f" -> {report.graph_nodes:,} in the graph"
    return Text.assemble(plain(report.name, "bold"), plain(f"  opset {opsets}, {nodes}"))


def _facts_table(report: CheckReport) -> Table:
    """Inputs, outputs, parameters and flops."""
    facts = Table.grid(padding=(0, 2))
    width = min(MAX_NAME_WIDTH, max((len(name) for name, _ in report.inputs + report.outputs), default=0))
    for kind, values in (("inputs", report.inputs), ("outputs", report.outputs)):
        for number, (name, type) in enumerate(values):
            about = Text("unknown", "dim") if type is None else plain(str(type), "cyan")
            facts.add_row("" if number else Text(kind, "bold"), Text.assemble(plain(name.ljust(width + 2)), about))
    size = f"{short_number(report.parameter_count)} in {short_number(report.parameter_bytes, 'B')}"
    facts.add_row(Text("parameters", "bold"), size)
    for number, line in enumerate(_flops_lines(report)):
        facts.add_row("" if number else Text("flops", "bold"), line)
    return facts


def _flops_lines(report: CheckReport) -> Iterator[Text]:
    if report.sample_flops is None:
        yield Text("unknown", "dim")
        return
    at = _shortened(", ".join(f"{symbol} = {dim}" for symbol, dim in report.sample.items()), MAX_EXPRESSION_WIDTH)
    yield plain(f"{short_number(report.sample_flops)} where {at}" if at else short_number(report.sample_flops))
    if at:
        expression = "too complicated an expression" if report.flops is None else str(report.flops)
        yield plain(_shortened(expression, MAX_EXPRESSION_WIDTH), "dim")
    if report.uncounted_nodes:
        on_reference = sum(operator.becomes.get("Onnx", 0) for operator in report.operators)
        why = "on the reference" if on_reference == report.uncounted_nodes else "on the reference or too complicated"
        yield Text(f"not counted: {plural(report.uncounted_nodes, 'node')} {why}", "dim")
    if report.counted_once:
        yield Text(f"counted once: the bodies of {plural(report.counted_once, 'node')} that data decides on", "dim")


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _operator_table(report: CheckReport, width: int, has_bars: bool) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("operator", overflow="fold")
    made.add_column("nodes", justify="right", no_wrap=True)
    made.add_column("status", overflow="fold")
    if report.sample_flops is not None:
        made.add_column("flops", justify="right", no_wrap=True)
        made.add_column("share", justify="right", no_wrap=True)
        if width >= BARS_FROM_WIDTH and has_bars:
            made.add_column("", no_wrap=True)
        if width >= ALL_FROM_WIDTH:
            made.add_column("becomes", overflow="fold")
    columns = [str(column.header) for column in made.columns]
    for operator in report.operators:
        cells = _operator_cells(operator)
        made.add_row(*(cells[column] for column in columns))
    return made


def _operator_cells(operator: OperatorReport) -> dict[str, Text]:
    flops = operator.sample_flops
    none = "?" if "Onnx" in operator.becomes else "0"
    return {
        "operator": plain(operator.name),
        "nodes": Text(f"{operator.count:,}"),
        "status": _status_text(operator.statuses),
        "flops": Text(short_number(flops)) if flops else Text(none, "dim"),
        "share": Text(percent(operator.share) if flops else "", "bold" if operator.share >= 0.1 else ""),
        "": Text(BAR * round(operator.share * MAX_BAR_WIDTH), "blue"),
        "becomes": _becomes_text(operator),
    }


def _status_text(statuses: Mapping[str, int]) -> Text:
    """The status, or each of several with its number of nodes."""
    only = len(statuses) == 1
    parts = [Text(status if only else f"{count} {status}", STATUSES[status][0]) for status, count in statuses.items()]
    return Text(", ").join(parts)


def _becomes_text(operator: OperatorReport) -> Text:
    """The canonical operators, unless there is just the one of the same name for each node."""
    if list(operator.becomes.items()) == [(operator.op_type, operator.count)]:
        return Text()
    names = {name: "ONNX reference" if name == "Onnx" else name for name in operator.becomes}
    counts = operator.becomes.items()
    parts = [names[name] if count == operator.count else f"{count} {names[name]}" for name, count in counts]
    return plain(" + ".join(parts) or "known while importing", "dim")


def _legend(report: CheckReport) -> Table:
    """What each status in the table means."""
    legend = Table.grid(padding=(0, 2))
    for status, (style, meaning) in STATUSES.items():
        if any(status in operator.statuses for operator in report.operators):
            legend.add_row(Text(status, style), Text(meaning, "dim"))
    return legend


def _unsupported_table(report: CheckReport) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("unsupported node", overflow="fold")
    made.add_column("reason", overflow="fold")
    for use in report.unsupported:
        made.add_row(plain(use.location), plain(use.reason))
    return made


def _verdict(report: CheckReport) -> Text:
    if report.ok:
        return Text("ok: every operator is supported", "bold green")
    return Text(f"not ok: {plural(len(report.unsupported), 'node')} cannot run", "bold red")
