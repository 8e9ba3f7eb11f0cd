"""Tables for a terminal, in which text from a model is only ever text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from foretell.support.printable import printable


def table(*columns: str, rows: Sequence[tuple[object, ...]], title: str | None = None) -> Table:
    """A plain table; cells are text, never markup. Columns whose cells are all numbers align right."""
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=any(columns))
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        made.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else plain(_cell(cell)) for cell in row))
    return made


def plain(text: str, style: str = "") -> Text:
    """Text of any origin, safe on a terminal."""
    return Text(printable(text), style)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
