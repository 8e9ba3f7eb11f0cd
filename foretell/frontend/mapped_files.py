"""Open the files of a model that nobody vouches for, and map them read-only.

The path of the model is the user's, and may be anything the user can read. The paths of its external data are the
model's: they must name plain files below the model's folder. Each component is opened relative to the one before, with
links refused by the kernel, and the file is judged after it is open, so nothing can be swapped in between.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import NoReturn

from foretell.support.errors import BadExternalData, FileTooLarge, UnreadableModel, UnsafeExternalData
from foretell.support.limits import Limits

# Opening a FIFO blocks until it has a writer, unless asked not to. Neither flag exists everywhere.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def quoted(text: str) -> str:
    """Text from a model, short and without control characters, so that a message keeps its three lines."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


def map_model(path: str, limits: Limits) -> memoryview:
    """Map the model file at `path`, which must be a regular file with something in it."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except (OSError, ValueError) as error:  # a ValueError when the path holds a NUL or cannot be encoded
        raise _unreadable(path, "a file that can be opened", _reason(error)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(path, "a regular file", _file_kind(status.st_mode))
        if status.st_size == 0:
            raise _unreadable(path, "an ONNX model", "an empty file")
        check_file_bytes(status.st_size, limits.file_bytes, limits, where=path)
        return _map(descriptor, status.st_size)
    except OSError as error:  # some file systems cannot map
        raise _unreadable(path, "a file that can be mapped", _reason(error)) from None
    finally:
        os.close(descriptor)


def check_file_bytes(size: int, allowed: int, limits: Limits, where: str) -> None:
    """Refuse a file of `size` bytes when only `allowed` are left of `Limits.file_bytes`."""
    if size > allowed:
        raise FileTooLarge(
            "the model and its external data are too large",
            where=where,
            expected=f"at most {limits.file_bytes:,} bytes in all, of which {allowed:,} are left",
            got=f"{size:,} bytes",
            hint="raise Limits.file_bytes if you trust the model",
        )


@dataclass(slots=True)
class ExternalFiles:
    """The external data files below one model's folder, each mapped once, when it is first asked for."""

    folder: str
    limits: Limits
    bytes_left: int
    mapped: dict[tuple[str, ...], memoryview] = field(default_factory=dict[tuple[str, ...], memoryview])

    def open(self, location: str, where: str) -> memoryview:
        """The bytes of the file that a tensor's `location` names; `where` names the tensor in messages."""
        parts = _check_location(location, where)
        if parts not in self.mapped:
            self.mapped[parts] = self._open(parts, where)
        return self.mapped[parts]

    def _open(self, parts: tuple[str, ...], where: str) -> memoryview:
        if os.open not in os.supports_dir_fd:
            _refuse("/".join(parts), where, "a system that can open files without following links", sys.platform)
        try:
            descriptor = _open_below(self.folder, parts, where)
        except (OSError, ValueError) as error:
            _fail_to_open(parts, where, error)
        try:
            size = _check_plain_file(os.fstat(descriptor), parts, where)
            check_file_bytes(size, self.bytes_left, self.limits, where)
            mapped = _map(descriptor, size)
        except OSError as error:
            _fail_to_open(parts, where, error)
        finally:
            os.close(descriptor)
        self.bytes_left -= size
        return mapped


def _check_location(location: str, where: str) -> tuple[str, ...]:
    """The components of a relative path that cannot climb, on any system: `./a//b` -> ("a", "b")."""
    path, windows_path = PurePosixPath(location), PureWindowsPath(location)
    if not path.parts or "\0" in location:
        _refuse(location, where, "the name of a file", "no name" if not path.parts else "a NUL character")
    if path.is_absolute() or windows_path.drive or windows_path.root:
        _refuse(location, where, "a path relative to the model's folder", "an absolute path")
    if "\\" in location or ".." in path.parts:
        _refuse(location, where, "a path below the model's folder", "`..` or a backslash in it")
    return path.parts


def _open_below(folder: str, parts: tuple[str, ...], where: str) -> int:
    """Open the file `parts` below `folder` (which is the user's) without following a link anywhere on the way."""
    current = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for depth, part in enumerate(parts, start=1):
        directory = os.O_DIRECTORY if depth < len(parts) else 0
        try:
            # Looking first gives the better message and leaves devices alone; what we rely on comes after.
            status = os.stat(part, dir_fd=current, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                _refuse("/".join(parts), where, "no symbolic link", f"a link at {quoted('/'.join(parts[:depth]))}")
            if not directory:
                _check_plain_file(status, parts, where)
            inner = os.open(part, _OPEN_FLAGS | os.O_NOFOLLOW | directory, dir_fd=current)
        finally:
            os.close(current)
        current = inner
    return current


def _check_plain_file(status: os.stat_result, parts: tuple[str, ...], where: str) -> int:
    """The size of a regular file that has no second name outside the folder."""
    if not stat.S_ISREG(status.st_mode):
        _refuse("/".join(parts), where, "a regular file", _file_kind(status.st_mode))
    if status.st_nlink != 1:
        _refuse("/".join(parts), where, "a file with one name", f"a hard link ({status.st_nlink} names)")
    return status.st_size


def _map(descriptor: int, size: int) -> memoryview:
    if size == 0:  # mmap refuses; a tensor without elements needs nothing more
        return memoryview(b"")
    if sys.version_info >= (3, 13):  # or else every mapping would keep a descriptor
        return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False))
    return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))


def _unreadable(path: str, expected: str, got: str) -> UnreadableModel:
    return UnreadableModel(
        "the model cannot be read",
        where=path,
        expected=expected,
        got=got,
        hint="give the path of an .onnx file you may read",
    )


def _refuse(location: str, where: str, expected: str, got: str) -> NoReturn:
    raise UnsafeExternalData(
        f"external data at {quoted(location)} is refused",
        where=where,
        expected=expected,
        got=got,
        hint="copy the data into the model's folder, or embed it: onnx.save(onnx.load(old), new)",
    ) from None


def _fail_to_open(parts: tuple[str, ...], where: str, error: OSError | ValueError) -> NoReturn:
    location = "/".join(parts)
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ELOOP:  # a link that was put there after we looked
        _refuse(location, where, "no symbolic link", "a link")
    hint = "put the file next to the model, under the name it was saved with"
    if number == errno.EMFILE:
        hint = "raise `ulimit -n`, or save the weights as one file"
    raise BadExternalData(
        f"external data at {quoted(location)} cannot be opened",
        where=where,
        expected="a file in the model's folder",
        got=_reason(error),
        hint=hint,
    ) from None


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _file_kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")
