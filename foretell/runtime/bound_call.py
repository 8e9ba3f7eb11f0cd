"""A model bound to arrays: everything that a call checks and looks up is done once, when it is bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from foretell.runtime.check_inputs import Array


class BoundCall:
    """Call it to compute `outputs` from what `inputs` hold at the time; both are used in place, call after call.

    A bound call has memory of its own. Calls of one bound call wait for each other; bind once for each thread that
    should run at the same time.
    """

    def __init__(self, run: Callable[[], object], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)
        self._run = run
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Array]:
        """The outputs by name: the same arrays every time."""
        with self._lock:
            self._run()
        return self.outputs
