"""Object code kept on disk, by the content that it was made from.

An entry is a file whose name is the key: a SHA-256 of its code, and the code. Entries are written whole or not at all;
one that does not match its checksum is as good as none. Every trouble with the disk only costs time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from foretell.support.atomic_write import TEMPORARY, atomic_write
from foretell.support.cache_folder import try_cache_folder

FOLDER = "objects"
MAX_BYTES = 1 << 30
"""All entries together; the ones that were not used for longest are dropped."""
ABANDONED_S = 3600.0
"""An unfinished file older than this belongs to a process that was killed."""
SUFFIX = ".object"


def cache_key(*parts: str) -> str:
    """A name for what is made from these texts, and from nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def try_cached(key: str) -> bytes | None:
    """The object code of a key, or None if it is not there, damaged, or not to be trusted."""
    folder = try_cache_folder(FOLDER)
    if folder is None:
        return None
    path = folder / (key + SUFFIX)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, code = content[:32], content[32:]
    if hashlib.sha256(code).digest() != checksum:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return code


def keep(key: str, code: bytes, max_bytes: int = MAX_BYTES) -> None:
    """Add an entry, and drop old ones if there are too many."""
    folder = try_cache_folder(FOLDER)
    if folder is None:
        return
    with contextlib.suppress(OSError):
        with atomic_write(folder / (key + SUFFIX), durable=False) as file:
            file.write(hashlib.sha256(code).digest() + code)
        _drop_old(folder, max_bytes)


def _drop_old(folder: Path, max_bytes: int) -> None:
    entries: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            if path.suffix == SUFFIX:
                entries.append((status.st_mtime, status.st_size, path))
            elif path.suffix == TEMPORARY and time.time() - status.st_mtime > ABANDONED_S:
                path.unlink()
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= max_bytes:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
