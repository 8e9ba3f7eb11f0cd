"""Nothing that was compiled before makes compiling faster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from foretell.codegen.emit_program import emit_pool
from foretell.support.cache_folder import VARIABLE
from foretell.target.resolve import Target


@contextmanager
def fresh_cache(target: Target) -> Iterator[None]:
    """A cache for this process and those it starts; it holds the thread pool's code, the same for every program."""
    before = os.environ.get(VARIABLE)
    with TemporaryDirectory(prefix="benchmarks-", ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            emit_pool.cache_clear()
            emit_pool(target)
            yield
        finally:
            os.environ.pop(VARIABLE)
            os.environ |= {} if before is None else {VARIABLE: before}
