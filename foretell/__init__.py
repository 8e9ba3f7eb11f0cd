"""foretell: a deep-learning compiler that predicts performance instead of profiling it."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
