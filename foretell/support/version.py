"""The version of this package, for whoever writes it into a file."""

from __future__ import annotations

VERSION = "0.1.0.dev0"
