"""A model whose shapes hang on the values of small inputs: compiled once for each set of values that comes along.

Axes, target shapes, scales and counts are inputs of many models although they hardly ever change. Knowing them turns
a node that only the reference could run into native code.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from foretell.runtime.check_inputs import Array, bind_shape, check_names, checked_input
from foretell.runtime.program import Slot

KEPT_MODELS = 32
"""Compiled models kept for different values, the one not used for longest dropped first."""


class Runnable(Protocol):
    """A model that takes the inputs which are left."""

    @property
    def input_names(self) -> tuple[str, ...]: ...

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]: ...


Compile: TypeAlias = Callable[[Mapping[str, Array]], Runnable]
"""Compiles a model for given values of some of its inputs."""


class Specialiser:
    """Finds or compiles the model for the values of the inputs called `names`. `inputs` are all of the model's."""

    def __init__(self, inputs: Sequence[Slot], names: Sequence[str], compile: Compile) -> None:
        self.names = tuple(names)
        self._input_names = tuple(slot.name for slot in inputs)
        self._slots = tuple(slot for slot in inputs if slot.name in self.names)
        self._compile = compile
        self._models: OrderedDict[tuple[bytes, ...], Runnable] = OrderedDict()
        self._lock, self._compiling = threading.Lock(), threading.Lock()

    def run(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Outputs by name, for inputs by name."""
        check_names(feeds, self._input_names)
        model = self.model_for(feeds)
        return model.run({name: array for name, array in feeds.items() if name not in self.names}, out)

    def model_for(self, feeds: Mapping[str, Any]) -> Runnable:
        """The model for the values in `feeds`; a value that makes the model invalid is a `ForetellError`."""
        values = {slot.name: _checked(slot, feeds) for slot in self._slots}
        key = tuple(array.tobytes() for array in values.values())
        found = self._find(key)
        if found is not None:
            return found
        with self._compiling:  # one at a time; meanwhile others call what is compiled already
            return self._find(key) or self._keep(key, self._compile(values))

    def _find(self, key: tuple[bytes, ...]) -> Runnable | None:
        with self._lock:
            if key in self._models:
                self._models.move_to_end(key)
            return self._models.get(key)

    def _keep(self, key: tuple[bytes, ...], model: Runnable) -> Runnable:
        with self._lock:
            while len(self._models) >= KEPT_MODELS:
                self._models.popitem(last=False)
            self._models[key] = model
        return model


def _checked(slot: Slot, feeds: Mapping[str, Any]) -> Array:
    array = checked_input(slot, feeds)
    bind_shape(slot, array.shape, {})
    return array
