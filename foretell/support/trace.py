"""A record of the passes that ran: name, time, whether they changed anything, and the IR they left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from foretell.support.errors import UsageError

IR = TypeVar("IR")


@dataclass(frozen=True, slots=True)
class PassRecord(Generic[IR]):
    """One run of one pass. `after` is None unless the trace keeps IR."""

    name: str
    time_ms: float
    changed: bool
    after: IR | None


class Trace(Generic[IR]):
    """Collects a record per pass.

    trace = Trace[Graph](keep_ir=True)
    graph = trace.start("import", lambda: import_model("model.onnx"))
    graph = trace.run("fold_constants", fold_constants, graph)
    trace.after("fold_constants") is graph
    """

    def __init__(self, *, keep_ir: bool = False) -> None:
        self._keep_ir = keep_ir
        self._records: list[PassRecord[IR]] = []

    @property
    def records(self) -> tuple[PassRecord[IR], ...]:
        """In the order the passes ran; a pass that ran twice is here twice."""
        return tuple(self._records)

    def start(self, name: str, function: Callable[[], IR]) -> IR:
        """Make the first IR and record how long that took."""
        start_s = time.perf_counter()
        return self._record(name, start_s, True, function())

    def run(self, name: str, function: Callable[[IR], IR], ir: IR) -> IR:
        """Apply a pure pass and record it. A pass that returns the very object it got changed nothing."""
        start_s = time.perf_counter()
        result = function(ir)
        return self._record(name, start_s, result is not ir, result)

    def after(self, name: str) -> IR:
        """The IR that the last run of a pass left."""
        assert self._keep_ir, "this trace keeps no IR"
        for record in reversed(self._records):
            if record.name == name and record.after is not None:
                return record.after
        raise UsageError(
            f"no pass is called {name!r}",
            expected=f"one of {', '.join(dict.fromkeys(record.name for record in self._records))}",
            got=name,
            hint="`foretell explain MODEL` lists the passes that ran",
        )

    def _record(self, name: str, start_s: float, changed: bool, result: IR) -> IR:
        time_ms = (time.perf_counter() - start_s) * 1e3
        self._records.append(PassRecord(name, time_ms, changed, result if self._keep_ir else None))
        return result
