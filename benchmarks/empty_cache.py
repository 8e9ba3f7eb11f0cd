"""Nothing that was compiled before makes compiling faster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from foretell.support.cache_folder import VARIABLE


@contextmanager
def empty_cache() -> Iterator[None]:
    """A cache of its own, for this process and those it starts."""
    before = os.environ.get(VARIABLE)
    with TemporaryDirectory(prefix="benchmarks-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            os.environ |= {} if before is None else {VARIABLE: before}
