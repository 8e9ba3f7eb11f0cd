"""Files that are there whole or not at all, whenever the process is killed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp"
"""How the name of an unfinished file ends."""


@contextlib.contextmanager
def atomic_write(path: Path, *, durable: bool = True) -> Generator[BinaryIO]:
    """A file to write to, which takes `path`'s place at the end of the block; an error leaves `path` as it was.

    `durable` waits until the disk has it, so that it survives a power cut.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}{TEMPORARY}")
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk once its folder is; not every system can do that, nor needs to."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
