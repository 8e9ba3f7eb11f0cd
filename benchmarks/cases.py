"""What is raced: a case is a model with inputs; a suite is a list of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from benchmarks.count_macs import count_macs
from benchmarks.network import Network


@dataclass(frozen=True, slots=True)
class Case:
    """A network that is built when it is needed."""

    name: str
    build: Callable[[], Network]
    is_quick: bool = False
    """Whether `--quick` runs it too."""


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case as files, which contestants read."""

    model: Path
    feeds: Path
    flops: float
    compiled: Mapping[str, Path] = field(default_factory=dict)
    """Files of their own, of contestants that do not read the model."""

    def model_of(self, contestant: str) -> Path:
        return self.compiled.get(contestant, self.model)

    def contestants(self, others: Iterable[str]) -> list[str]:
        """Those with files of their own, and others."""
        return list(dict.fromkeys((*self.compiled, *others)))


def store(case: Case, folder: Path) -> StoredCase:
    network = case.build()
    stored = StoredCase(
        folder / "model.onnx", folder / "feeds.npz", 2.0 * count_macs(network.model(with_weights=False))
    )
    onnx.save(network.model(), stored.model)
    feeds: dict[str, np.ndarray] = network.feeds()
    np.savez(stored.feeds, allow_pickle=False, **feeds)
    return stored


def select(cases: Iterable[Case], only: Iterable[str], *, quick: bool) -> list[Case]:
    """Those whose name contains one of `only`; else all, or the quick ones."""
    patterns = list(only)
    if patterns:
        return [case for case in cases if any(pattern in case.name for pattern in patterns)]
    return [case for case in cases if case.is_quick or not quick]
