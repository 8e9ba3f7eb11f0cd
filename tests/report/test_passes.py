from __future__ import annotations

from rich.console import Console

from examples.demo import build_model
from foretell.compiler import import_model, simplify
from foretell.graph.nodes import Graph
from foretell.report.passes import passes_json, passes_table, summarise_passes
from foretell.support.trace import Trace


def trace_of_demo() -> Trace[Graph]:
    trace: Trace[Graph] = Trace(keep_ir=True)
    simplify(trace.start("import", lambda: import_model(build_model())), trace=trace)
    return trace


def test_summaries_add_up() -> None:
    records = trace_of_demo().records
    summaries = summarise_passes(records)
    assert len({summary.name for summary in summaries}) == len(summaries) < len(records)
    assert sum(summary.runs for summary in summaries) == len(records)
    last = records[-1].after
    assert last is not None and sum(summary.nodes_added for summary in summaries) == len(last.nodes)
    by_name = {summary.name: summary for summary in summaries}
    assert by_name["fold_batch_norm"].changed == 1 and by_name["fold_batch_norm"].nodes_added == -2
    assert by_name["recognise_gelu"].changed == 0


def test_json_has_every_run() -> None:
    records = trace_of_demo().records
    facts = passes_json(records)
    assert [fact["name"] for fact in facts] == [record.name for record in records]
    assert set(facts[0]) == {"name", "time_ms", "changed", "nodes"}


def test_table() -> None:
    console = Console(width=60)
    with console.capture() as capture:
        console.print(passes_table(summarise_passes(trace_of_demo().records)))
    lines = capture.get().splitlines()
    assert lines[0].split() == ["pass", "runs", "changed", "nodes", "ms"]
    assert lines[1].split()[:4] == ["import", "1", "1", "+12"]
    assert lines[-1].startswith("all ")
