"""How long runs take that begin together, each on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

Span = tuple[float, float]
"""When a run began and ended, in seconds."""


def spans_together(runs: Sequence[Callable[[], None]]) -> list[Span]:
    """The span of each. The runs must leave Python, or they wait for one another."""
    spans: list[Span] = []
    barrier = threading.Barrier(len(runs))

    def work(run: Callable[[], None]) -> None:
        barrier.wait()
        start = time.perf_counter()
        run()
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(run,)) for run in runs[1:]]
    for thread in threads:
        thread.start()
    work(runs[0])
    for thread in threads:
        thread.join()
    return spans


def together_s(runs: Sequence[Callable[[], None]]) -> float:
    """From the first beginning to the last end."""
    spans = spans_together(runs)
    return max(end for _, end in spans) - min(start for start, _ in spans)


def shortest_s(runs: Sequence[Callable[[], None]]) -> float:
    """Of the run that was disturbed least, while the others ran too."""
    return min(end - start for start, end in spans_together(runs))
