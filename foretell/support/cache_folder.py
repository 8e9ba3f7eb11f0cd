"""Where what can be made again is kept: one folder per kind, which only its owner may write to.

FORETELL_CACHE_DIR names another place; empty or `off` it turns all caches off.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

VARIABLE = "FORETELL_CACHE_DIR"


def try_cache_folder(kind: str) -> Path | None:
    """A folder, made if it is missing; None if caches are off or the folder is not only ours to write."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None and chosen.strip().lower() in ("", "off"):
        return None
    root = platformdirs.user_cache_path("foretell") if chosen is None else Path(chosen)
    folder = root / kind
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_ours(folder) else None
    except OSError:
        return None


def _is_ours(folder: Path) -> bool:
    """What others may write to is what others may choose."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022
