"""`foretell explain --html`: write the page."""

from __future__ import annotations

from pathlib import Path

from foretell.compiler import lower_program
from foretell.graph.nodes import Graph
from foretell.report.choices import describe_choices
from foretell.report.draw_groups import draw_groups
from foretell.report.explain_page import COLOURS, explain_page
from foretell.report.predict_model import predict_model
from foretell.support.errors import UsageError
from foretell.target.resolve import Target


def write_page(path: Path, title: str, graph: Graph, target: Target, threads: int) -> None:
    lowered = lower_program(graph, target)
    prediction = predict_model(graph, lowered, target, threads)
    picture = draw_groups(graph, lowered, prediction, COLOURS)
    text = explain_page(title, prediction, describe_choices(lowered, target), target.spec, picture)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "the page cannot be written",
            where=str(path),
            expected="a file that can be written",
            got=error.strerror or str(error),
            hint="choose another place with --html",
        ) from error
