"""Published limits on what a model file may ask for (docs/security.md), checked before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets for one import. Raise one with `dataclasses.replace(Limits(), nodes=...)`."""

    file_bytes: int = 64 << 30
    """Size of the model file, and of all its external data together."""
    nodes: int = 200_000
    """Nodes, those of subgraphs and expanded functions included."""
    operands: int = 10_000
    """Inputs, outputs and attributes of one node together."""
    name_bytes: int = 4096
    """One name: names are read, joined and shown many times over."""
    rank: int = 32
    """Dimensions of one tensor."""
    tensor_bytes: int = 4 << 30
    """One tensor that is computed rather than stored in the file."""
    constant_bytes: int = 512 << 20
    """One tensor that is computed from constants alone."""
    folded_bytes: int = 256 << 20
    """All tensors that constant folding may add to one model; folding stops there."""
    depth: int = 16
    """Subgraphs and functions inside one another."""


DEFAULT_LIMITS = Limits()

DEFAULT_WINOGRAD_ERROR = 1e-4
"""Error that a convolution in tiles (search/winograd_cost.py) may be predicted to have, of its greatest result."""
