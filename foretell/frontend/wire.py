"""Walk a serialized ONNX model and cut its large raw tensors out, before protobuf allocates anything.

Protobuf copies every byte it parses, and turns a message of two bytes into one of 150. So we first walk the wire
format (https://protobuf.dev/programming-guides/encoding) ourselves, in place: each `TensorProto.raw_data` of a page
or more becomes a short marker, and nodes, fields and nesting are counted. What is left is small and within limits.
A field keeps its place, so a repeated or merged field means to protobuf what it meant before.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NoReturn, cast

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from foretell.support.errors import (
    FileTooLarge,
    NameTooLong,
    NestingTooDeep,
    RankTooHigh,
    TooManyNodes,
    TooManyOperands,
    UnreadableModel,
)
from foretell.support.limits import Limits

PAYLOAD_BYTES: Final = 4096
"""Raw data of at least this size is cut out: smaller is not worth a mapping."""
FIELDS_PER_NODE: Final = 128
"""Protobuf fields (names, attributes, value infos, ...) a model may hold for each node that `Limits.nodes` allows."""
MESSAGE_DEPTH: Final = 100
"""How deep protobuf itself agrees to nest messages; a subgraph takes three levels."""
STRUCTURE_BYTES: Final = (2 << 30) - 1
"""How much protobuf itself agrees to parse at once."""
KEY_BYTES: Final = 24
"""The length of the key that stands for a payload; never that of a payload."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES = 10
_TAG_MAX = (1 << 32) - 1
_TOKEN_BYTES = 16  # random; the rest of a key is a number
_OTHER_NODE_FIELDS = 8  # name, operator, domain, documentation and the like


@dataclass(frozen=True, slots=True)
class Stripped:
    """A model cut in two: what protobuf parses, and the raw tensors that stay where they are.

    A tensor that was cut has one of the keys of `payloads` as its `raw_data`. The keys begin with a random token drawn
    for this reading, so a model cannot hold a key of its own making; and none is as long as a payload.
    """

    structure: bytes
    payloads: Mapping[bytes, memoryview]


def strip_payloads(data: memoryview, limits: Limits, where: str) -> Stripped:
    """Cut every large `raw_data` out of the serialized ModelProto `data`, which is neither copied nor trusted.

    raises: UnreadableModel when this is not protobuf, or not ONNX's; TooManyNodes, NestingTooDeep and FileTooLarge
    when protobuf would have to allocate more than `limits` allow. `where` names the model in their messages.
    """
    scanner = _Scanner(data, limits, where)
    if len(data) > 2 * limits.nodes:  # a node takes two bytes at least
        scanner.count_nodes()
    edits = scanner.scan(_MODEL, 0, len(data), depth=1, graphs=0)
    kept = _Edits(data, 0) if edits is None else edits
    kept.finish(len(data))
    if kept.size > STRUCTURE_BYTES:
        raise FileTooLarge(
            "the model without its raw tensors is larger than protobuf can parse",
            where=where,
            expected=f"at most {STRUCTURE_BYTES:,} bytes",
            got=f"{kept.size:,} bytes",
            hint="store the weights as raw_data or as external data",
        )
    return Stripped(b"".join(kept.pieces), scanner.payloads)


def encode_varint(value: int) -> bytes:
    """The base-128 encoding of a number that is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _Kind(Enum):
    MESSAGE = "message"
    TEXT = "text"
    PAYLOAD = "payload"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: _Kind
    message: _Message | None = None

    @property
    def is_prose(self) -> bool:
        """Whether this is text for people, or for another program, rather than a name."""
        return self.name.endswith(".doc_string") or self.name == "StringStringEntryProto.value"


@dataclass(frozen=True, slots=True)
class _Message:
    """What the walk must know of a message type. A tag is a field number and a wire type, as written."""

    name: str
    by_tag: dict[int, _Field] = field(default_factory=dict[int, _Field])
    numbers: dict[int, str] = field(default_factory=dict[int, str])


def _describe(descriptor: Descriptor, known: dict[str, _Message]) -> _Message:
    """The message type of `descriptor` and, into `known`, all those it can hold; they may hold one another."""
    if descriptor.name in known:
        return known[descriptor.name]
    message = known[descriptor.name] = _Message(descriptor.name)
    for described in descriptor.fields:
        message.numbers[described.number] = described.name
        inner = None if described.message_type is None else _describe(described.message_type, known)
        entry = _Field(f"{descriptor.name}.{described.name}", _kind(described), inner)
        for wire_type in _wire_types(described):
            message.by_tag[described.number << 3 | wire_type] = entry
    return message


def _kind(described: FieldDescriptor) -> _Kind:
    if described.full_name == "onnx.TensorProto.raw_data":
        return _Kind.PAYLOAD
    kinds = {FieldDescriptor.TYPE_MESSAGE: _Kind.MESSAGE, FieldDescriptor.TYPE_STRING: _Kind.TEXT}
    return kinds.get(described.type, _Kind.OTHER)


def _wire_types(described: FieldDescriptor) -> tuple[int, ...]:
    """A repeated number may come packed or one by one, whatever the schema prefers."""
    match described.type:
        case FieldDescriptor.TYPE_MESSAGE | FieldDescriptor.TYPE_STRING | FieldDescriptor.TYPE_BYTES:
            return (_LENGTH,)
        case FieldDescriptor.TYPE_DOUBLE | FieldDescriptor.TYPE_FIXED64 | FieldDescriptor.TYPE_SFIXED64:
            alone = _FIXED64
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_FIXED32 | FieldDescriptor.TYPE_SFIXED32:
            alone = _FIXED32
        case _:
            alone = _VARINT
    return (alone, _LENGTH) if described.is_repeated else (alone,)


_MESSAGES: dict[str, _Message] = {}
_MODEL = _describe(cast(Descriptor, onnx.ModelProto.DESCRIPTOR), _MESSAGES)
_GRAPH = _MESSAGES["GraphProto"]
_NODE = _MESSAGES["NodeProto"]
_SHAPE = _MESSAGES["TensorShapeProto"]


def _paths_to_nodes() -> dict[str, dict[int, _Message]]:
    """For each message that can hold a node, however deep: its fields, by tag, that lead there."""
    paths: dict[str, dict[int, _Message]] = {_NODE.name: {}}
    grew = True
    while grew:
        grew = False
        for message in _MESSAGES.values():
            found = {tag: entry.message for tag, entry in message.by_tag.items() if entry.message is not None}
            leading = {tag: inner for tag, inner in found.items() if inner.name in paths}
            if leading and leading != paths.get(message.name):
                paths[message.name], grew = leading, True
    return paths


_PATHS_TO_NODES = _paths_to_nodes()


class _Edits:
    """A message as pieces: runs of its own bytes, and what replaces the bytes between them."""

    __slots__ = ("_data", "_run_start", "pieces", "size")

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = data
        self._run_start = start
        self.pieces: list[bytes | memoryview] = []
        self.size = 0

    def replace(self, start: int, end: int, pieces: list[bytes | memoryview], size: int) -> None:
        """Put `pieces` (of `size` bytes together) in place of the bytes from `start` to `end`."""
        self.finish(start)
        self.pieces.extend(pieces)
        self.size += size
        self._run_start = end

    def finish(self, end: int) -> None:
        """Keep the bytes up to `end` that no edit has replaced."""
        if end > self._run_start:
            self.pieces.append(self._data[self._run_start : end])
            self.size += end - self._run_start
            self._run_start = end


class _Scanner:
    """One walk over one model: its payloads and its counts so far."""

    def __init__(self, data: memoryview, limits: Limits, where: str) -> None:
        self._data = data
        self._limits = limits
        self._where = where
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._nodes = 0
        self._fields = 0
        self._fields_allowed = limits.nodes * FIELDS_PER_NODE
        self._own_fields_allowed = {
            _NODE.name: limits.operands + _OTHER_NODE_FIELDS,
            _SHAPE.name: limits.rank,
        }
        self.payloads: dict[bytes, memoryview] = {}

    def count_nodes(self) -> None:
        """Refuse too many nodes before anything is looked at closely, which takes several times as long."""
        data, nodes = self._data, 0
        waiting: list[tuple[_Message, int, int]] = [(_MODEL, 0, len(data))]
        while waiting:
            message, position, end = waiting.pop()
            leading = _PATHS_TO_NODES[message.name]
            while position < end:
                field_start = position
                tag, position = data[position], position + 1
                if tag > 0x7F:
                    tag, position = self._varint(field_start, end)
                if tag & 7 != _LENGTH:
                    position = self._skip_number(tag & 7, field_start, position, end)
                    continue
                length, position = self._varint(position, end)
                position += length
                inner = leading.get(tag)
                if inner is not None and position <= end:
                    waiting.append((inner, position - length, position))
                    nodes += inner is _NODE
            if nodes > self._limits.nodes:
                self._fail_count("nodes", self._limits.nodes)

    def scan(self, message: _Message, start: int, end: int, *, depth: int, graphs: int) -> _Edits | None:
        """Walk the message at [start, end); its edits, or None when it stays as it is.

        `depth` counts the messages and `graphs` the graphs around this one, itself included.
        """
        graphs += message is _GRAPH
        self._count(message, start, depth, graphs)
        data, by_tag = self._data, message.by_tag
        edits: _Edits | None = None
        position = start
        own_fields, own_fields_allowed = 0, self._own_fields_allowed.get(message.name, self._fields_allowed)
        while position < end:
            self._fields += 1
            if self._fields > self._fields_allowed:
                self._fail_count("fields", self._fields_allowed)
            own_fields += 1
            if own_fields > own_fields_allowed:
                self._fail_own_fields(message, start)
            field_start = position
            # A number of one byte is read here, not by a call: this loop is most of the time of reading a model.
            tag, position = data[position], position + 1
            if tag > 0x7F:
                tag, position = self._varint(field_start, end)
            known = by_tag.get(tag)
            if known is None:
                self._check_unknown(message, tag, field_start)
            if tag & 7 != _LENGTH:
                position = self._skip_number(tag & 7, field_start, position, end)
                continue
            length_start = position
            length, body = self._varint(position, end)
            position = body + length
            if position > end:
                self._fail("a field ends after the message that holds it", field_start, end - body, length)
            if known is not None and known.kind is _Kind.OTHER:
                continue
            replacement = self._replacement(known, body, position, depth, graphs)
            if replacement is not None:
                edits = edits or _Edits(data, start)
                pieces, size = replacement
                prefix = encode_varint(size)
                edits.replace(length_start, position, [prefix, *pieces], size + len(prefix))
        if edits is not None:
            edits.finish(end)
        return edits

    def _replacement(
        self, known: _Field | None, start: int, end: int, depth: int, graphs: int
    ) -> tuple[list[bytes | memoryview], int] | None:
        """What the body of a field becomes, with its size, or None when it stays as it is."""
        if known is None:
            # Protobuf would keep a field it does not know; nobody reads it, so a large one is emptied.
            return ([], 0) if end - start >= PAYLOAD_BYTES else None
        if known.kind is _Kind.MESSAGE:
            assert known.message is not None
            edits = self.scan(known.message, start, end, depth=depth + 1, graphs=graphs)
            return None if edits is None else (edits.pieces, edits.size)
        if known.kind is _Kind.TEXT:
            self._check_text(known, start, end)
        elif known.kind is _Kind.PAYLOAD and end - start >= PAYLOAD_BYTES:
            key = self._token + len(self.payloads).to_bytes(KEY_BYTES - _TOKEN_BYTES, "little")
            self.payloads[key] = self._data[start:end]
            return [key], len(key)
        return None

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """The number at `position` and the place after it."""
        data = self._data
        if position < end and data[position] < 0x80:  # nearly always
            return data[position], position + 1
        value = 0
        for index in range(min(_VARINT_BYTES, end - position)):
            byte = data[position + index]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, position + index + 1
        self._fail("a number does not end", position, _VARINT_BYTES, end - position)

    def _skip_number(self, wire_type: int, field_start: int, position: int, end: int) -> int:
        if wire_type == _VARINT:
            return self._varint(position, end)[1]
        after = position + (8 if wire_type == _FIXED64 else 4)
        if after > end:
            self._fail("a field ends after the message that holds it", field_start, end - position, after - position)
        return after

    def _check_unknown(self, message: _Message, tag: int, offset: int) -> None:
        """Let a field pass that a newer ONNX may have; refuse what no ONNX can have."""
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or tag > _TAG_MAX or wire_type not in (_VARINT, _FIXED64, _LENGTH, _FIXED32):
            raise self._unreadable("a field has an impossible tag", offset, "a field number and a wire type", hex(tag))
        if number in message.numbers:
            name = f"{message.name}.{message.numbers[number]}"
            wanted = [known & 7 for known in message.by_tag if known >> 3 == number]
            raise self._unreadable(f"{name} has the wrong wire type", offset, f"one of {wanted}", str(wire_type))

    def _check_text(self, known: _Field, start: int, end: int) -> None:
        """Protobuf hands text that is no UTF-8 out as `bytes`: no reader of a name expects that."""
        if end - start > self._limits.name_bytes and not known.is_prose:
            raise NameTooLong(
                f"{known.name} is too long",
                where=f"{self._where}, byte {start}",
                expected=f"at most {self._limits.name_bytes:,} bytes",
                got=f"{end - start:,} bytes",
                hint="raise Limits.name_bytes if you trust the model",
            )
        try:
            str(self._data[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise self._unreadable(f"{known.name} is not text", start + error.start, "UTF-8", error.reason) from None

    def _count(self, message: _Message, offset: int, depth: int, graphs: int) -> None:
        limits = self._limits
        self._nodes += message is _NODE
        if self._nodes > limits.nodes:
            self._fail_count("nodes", limits.nodes)
        if graphs > limits.depth + 1 or depth > MESSAGE_DEPTH:
            raise NestingTooDeep(
                "subgraphs or types are nested too deep",
                where=f"{self._where}, byte {offset}",
                expected=f"at most {limits.depth} subgraphs and {MESSAGE_DEPTH} protobuf messages inside one another",
                got=f"{graphs - 1} subgraphs, {depth} messages",
                hint="raise Limits.depth if you trust the model",
            )

    def _fail_count(self, counted: str, allowed: int) -> NoReturn:
        raise TooManyNodes(
            f"the model has too many {counted}",
            where=self._where,
            expected=f"at most {allowed:,} {counted}",
            got="more",
            hint="raise Limits.nodes if you trust the model",
        )

    def _fail_own_fields(self, message: _Message, offset: int) -> NoReturn:
        limits, where = self._limits, f"{self._where}, byte {offset}"
        if message is _SHAPE:
            raise RankTooHigh(
                "a shape has too many dimensions",
                where=where,
                expected=f"at most {limits.rank}",
                got="more",
                hint="raise Limits.rank if you trust the model",
            )
        raise TooManyOperands(
            "a node has too many inputs, outputs and attributes",
            where=where,
            expected=f"at most {limits.operands:,}",
            got="more",
            hint="raise Limits.operands if you trust the model",
        )

    def _fail(self, what: str, offset: int, room: int, wanted: int) -> NoReturn:
        raise self._unreadable(what, offset, f"at most {room:,} bytes", f"{wanted:,} bytes")

    def _unreadable(self, what: str, offset: int, expected: str, got: str) -> UnreadableModel:
        return UnreadableModel(
            f"this is not a complete ONNX model: {what}",
            where=f"{self._where}, byte {offset}",
            expected=expected,
            got=got,
            hint="the file may be cut short or of another format: download or export it again",
        )
