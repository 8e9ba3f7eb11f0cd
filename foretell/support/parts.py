"""Parts of the compiler that can be left out, to measure what each is worth: for developers, not for users.

Results stay the same up to rounding whatever is left out. Winograd's minimal filtering is not among them: it has a
setting of its own, `winograd_error`.
"""

from __future__ import annotations

from enum import Enum, auto


class Part(Enum):
    """What `link_program` and `lower_program` may go without."""

    FUSION = auto()
    """Kernels of several nests; without it every cluster is a kernel."""
    INNER_SCHEDULES = auto()
    """Schedules for the nests of such kernels, each for itself; without them they run the loops that nests get for
    which no schedule is known."""
    LAYOUTS = auto()
    """Orders of dimensions for buffers; without them each has that of the model."""
