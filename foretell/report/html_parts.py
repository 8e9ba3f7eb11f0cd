"""Text and tables of the pages that foretell writes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from foretell.support.printable import printable


def html_text(text: str) -> str:
    """What comes from a model, as text that is only ever text."""
    return escape(printable(text))


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML; columns that begin with # hold numbers."""
    kinds = [' class="number"' if column.startswith("#") else "" for column in columns]
    head = "".join(f"<th{kind}>{column.lstrip('#')}</th>" for kind, column in zip(kinds, columns, strict=True))
    lines = (
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
