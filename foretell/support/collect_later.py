"""Garbage in cycles can wait while many objects are made that stay: looking for it again and again took a tenth of the
time that a model takes to compile."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock


@dataclass(slots=True)
class _Waiting:
    """How many ask for it, in all threads, and whether it was on before the first did."""

    count: int = 0
    was_on: bool = False


_LOCK = Lock()
_WAITING = _Waiting()


@contextmanager
def collect_later() -> Generator[None]:
    """Garbage is not collected until all that asked for this have ended; then it is again, if it was before."""
    with _LOCK:
        if not _WAITING.count:
            _WAITING.was_on = gc.isenabled()
            gc.disable()
        _WAITING.count += 1
    try:
        yield
    finally:
        with _LOCK:
            _WAITING.count -= 1
            if not _WAITING.count and _WAITING.was_on:
                gc.enable()


def collect_now() -> None:
    """Collect what became garbage since this was last called, for a time when there is nothing better to do."""
    gc.collect(0)
