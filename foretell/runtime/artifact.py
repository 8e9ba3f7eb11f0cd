"""A compiled model in one file: written atomically, checked whole, mapped rather than read.

    bytes   0..31   magic, format version (u32), flags (u32, zero), bytes of the manifest (u64), of the file (u64)
    bytes  32..63   SHA-256 of everything else
    from byte 64    the manifest: JSON in UTF-8
    then            machine code and constants, each at a multiple of 64; the manifest's offsets count from the first

Numbers are little-endian. The checksum tells damage, not malice: a file holds machine code, so that loading one is
running it (docs/artifact.md).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from foretell.runtime.arena import ALIGNMENT
from foretell.runtime.manifest import Fields, program_from_json, program_to_json, read_list, read_number, refuse
from foretell.runtime.program import Binary, Program
from foretell.support.atomic_write import atomic_write
from foretell.support.errors import (
    ArtifactError,
    DamagedArtifact,
    NewerArtifact,
    NotAnArtifact,
    UnsavableModel,
    UsageError,
)
from foretell.support.version import VERSION
from foretell.target.resolve import Target, check_runs_here, resolve_target

Array: TypeAlias = npt.NDArray[Any]

MAGIC = b"foretell"
FORMAT = 2
"""Raised whenever an older foretell could not run what a newer one writes."""
FIRST_HALF = struct.Struct("<8sIIQQ")
HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a file holds."""

    program: Program
    binary: Binary
    constants: Mapping[int, Array]


# --- writing -------------------------------------------------------------------------------------------------


def write_artifact(path: str | os.PathLike[str], artifact: Artifact) -> None:
    """Write the file, or leave whatever is at `path` untouched."""
    _check_savable(artifact.program)
    try:
        with atomic_write(Path(path)) as file:
            _write(file, artifact)
    except OSError as error:
        raise UsageError(
            "a compiled model cannot be written",
            where=os.fspath(path),
            expected="a place for a file",
            got=error.strerror or str(error),
            hint="choose another path",
        ) from error


def _check_savable(program: Program) -> None:
    operators = program.fallback_operators
    if operators:
        raise UnsavableModel(
            "the model has operators that run in Python, which a file of machine code cannot hold",
            where=program.name,
            expected="native operators only",
            got=", ".join(operators),
            hint="`foretell check MODEL` shows where they come from; such a model runs only where it was compiled",
        )


def _write(file: BinaryIO, artifact: Artifact) -> None:
    slots = sorted(artifact.constants)
    blobs = [memoryview(code) for code in (artifact.binary.pool, *artifact.binary.kernels)]
    blobs += [_raw(artifact.constants[slot]) for slot in slots]
    offsets, end = _places([len(blob) for blob in blobs])
    manifest = _manifest(artifact, slots, offsets)
    start = _aligned(HEADER_BYTES + len(manifest))
    head = FIRST_HALF.pack(MAGIC, FORMAT, 0, len(manifest), start + end)
    digest = hashlib.sha256(head)
    file.seek(HEADER_BYTES)
    for content in (manifest, *blobs):
        for part in (content, bytes(_aligned(file.tell() + len(content)) - file.tell() - len(content))):
            file.write(part)
            digest.update(part)
    file.seek(0)
    file.write(head + digest.digest())


def _manifest(artifact: Artifact, slots: Sequence[int], offsets: Sequence[int]) -> bytes:
    """The same program gives the same bytes."""
    objects = len(artifact.binary.kernels)
    facts = {
        "foretell": VERSION,
        "target": artifact.binary.target.resolved,
        "program": program_to_json(artifact.program),
        "pool": [offsets[0], len(artifact.binary.pool)],
        "kernels": [[offset, len(code)] for offset, code in zip(offsets[1:], artifact.binary.kernels, strict=False)],
        "constants": [list(pair) for pair in zip(slots, offsets[1 + objects :], strict=True)],
    }
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def _raw(array: Array) -> memoryview:
    """The bytes of an array, in place if they are in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _places(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each blob begins, and where the last one's padding ends."""
    offsets: list[int] = []
    end = 0
    for size in sizes:
        offsets.append(end)
        end = _aligned(end + size)
    return offsets, end


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


# --- reading -------------------------------------------------------------------------------------------------


def read_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Check a file and map it; constants are read-only views of the file. Refusals are `ArtifactError`s."""
    where = os.fspath(path)
    mapped = _map(where)
    manifest_bytes = _check_header(mapped, where)
    _check_digest(mapped, where)
    manifest = Fields(
        _parse(mapped[HEADER_BYTES : HEADER_BYTES + manifest_bytes]),
        "manifest",
        ("foretell", "target", "program", "kernels", "pool", "constants"),
    )
    target = _target(manifest.text("target"), manifest.text("foretell"))
    check_runs_here(target)
    program = program_from_json(manifest.any("program"))
    data = _Data(mapped, _aligned(HEADER_BYTES + manifest_bytes))
    objects = manifest.list("kernels", data.bytes_at)
    binary = Binary(target, tuple(objects), data.bytes_at(manifest.any("pool"), "manifest.pool"))
    return Artifact(program, binary, data.constants(manifest, program))


def _map(where: str) -> mmap.mmap:
    try:
        if not stat.S_ISREG(os.stat(where).st_mode):
            _refuse_kind(where, "no regular file")
        with open(where, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                _refuse_kind(where, "an empty file")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ArtifactError(
            "a compiled model cannot be opened",
            where=where,
            expected="a file that `foretell compile` or `CompiledModel.save` wrote",
            got=error.strerror or str(error),
            hint="check the path",
        ) from error


def _check_header(mapped: mmap.mmap, where: str) -> int:
    """The bytes of the manifest, which lies within the file."""
    if mapped[: len(MAGIC)] != MAGIC:
        _refuse_kind(where, f"a file that begins with {bytes(mapped[: len(MAGIC)])!r}")
    if len(mapped) < HEADER_BYTES:
        _refuse_damage(where, f"at least {HEADER_BYTES} bytes", f"{len(mapped)} bytes")
    _, version, _, manifest_bytes, file_bytes = FIRST_HALF.unpack(mapped[: FIRST_HALF.size])
    if version > FORMAT:
        raise _newer(where, f"format {FORMAT}", f"format {version}")
    if 0 < version < FORMAT:
        _refuse_kind(where, f"format {version}, which an older foretell wrote: compile the model again")
    if len(mapped) != file_bytes:
        _refuse_damage(where, f"{file_bytes} bytes", f"{len(mapped)} bytes")
    if HEADER_BYTES + manifest_bytes > len(mapped) or version < 1:
        _refuse_damage(where, "a sound header", f"format {version}, a manifest of {manifest_bytes} bytes")
    return manifest_bytes


def _check_digest(mapped: mmap.mmap, where: str) -> None:
    with memoryview(mapped) as view:
        digest = hashlib.sha256(view[: FIRST_HALF.size])
        digest.update(view[HEADER_BYTES:])
        stored = bytes(view[FIRST_HALF.size : HEADER_BYTES])
    if digest.digest() != stored:
        _refuse_damage(where, f"SHA-256 {stored.hex()[:16]}...", f"{digest.hexdigest()[:16]}...")


def _parse(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        refuse("manifest", "JSON", str(error))


def _target(name: str, version: str) -> Target:
    try:
        return resolve_target(name)
    except UsageError as error:
        raise _newer("manifest.target", "a target that this version knows", f"{name} of foretell {version}") from error


@dataclass(frozen=True, slots=True)
class _Data:
    """Everything after the manifest."""

    mapped: mmap.mmap
    start: int

    def bytes_at(self, place: object, where: str) -> bytes:
        offset, size = read_list(place, where, read_number, length=2)
        begin = self._within(offset, size, where)
        return self.mapped[begin : begin + size]

    def constants(self, manifest: Fields, program: Program) -> dict[int, Array]:
        entries = manifest.list("constants", lambda item, where: read_list(item, where, read_number, length=2))
        needed = [number for number, slot in enumerate(program.slots) if slot.role == "constant"]
        if [slot for slot, _ in entries] != needed:
            refuse("manifest.constants", f"the slots {needed}", [slot for slot, _ in entries])
        return {slot: self._array(program, slot, offset) for slot, offset in entries}

    def _array(self, program: Program, number: int, offset: int) -> Array:
        slot = program.slots[number]
        where = f"manifest.constants, {slot.name}"
        shape = read_list(list(slot.shape), where, read_number)
        begin = self._within(offset, prod(shape) * slot.dtype.itemsize, where)
        return np.ndarray(shape, slot.dtype.numpy, self.mapped, begin)

    def _within(self, offset: int, size: int, where: str) -> int:
        """The place in the file of so many bytes at an offset, which must exist."""
        if offset % ALIGNMENT or self.start + offset + size > len(self.mapped):
            refuse(where, f"{size} bytes inside the file at a multiple of {ALIGNMENT}", offset)
        return self.start + offset


def _refuse_kind(where: str, got: str) -> NoReturn:
    raise NotAnArtifact(
        "this is not a compiled model",
        where=where,
        expected="a file that `foretell compile` or `CompiledModel.save` wrote",
        got=got,
        hint="an ONNX model is compiled with `foretell compile MODEL.onnx -o MODEL.foretell`",
    )


def _refuse_damage(where: str, expected: str, got: str) -> NoReturn:
    raise DamagedArtifact(
        "the file of a compiled model is damaged",
        where=where,
        expected=expected,
        got=got,
        hint="copy it again, or compile the model again",
    )


def _newer(where: str, expected: str, got: str) -> NewerArtifact:
    return NewerArtifact(
        "the model was compiled by a newer foretell",
        where=where,
        expected=expected,
        got=got,
        hint=f"this is foretell {VERSION}: upgrade it, or compile the model again",
    )
