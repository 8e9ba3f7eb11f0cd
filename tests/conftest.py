"""Every default run tests the same examples; `HYPOTHESIS_PROFILE=search` draws new ones."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

os.environ.pop("COLUMNS", None)  # pytest-xdist passes the width of its terminal on: commands would break lines there
