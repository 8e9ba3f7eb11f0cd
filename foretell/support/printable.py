"""Text from a model file, made safe to show on a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Replace what a terminal might obey or choke on (escapes, other control characters, surrogates); keep newlines."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)
