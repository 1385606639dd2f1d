"""The messages of tf.train.Example and the wire format of protobuf below them, in Python: every length is checked.

The twin of the Example parser and the decoder share this module. Pure functions on bytes, from any thread. Rules where the format leaves a
choice are protobuf's: the last map entry of a name counts, message fields that come twice are joined, of several kinds in a Feature the
last one counts. A known field of another wire type is refused, where protobuf would drop its values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np

MAX_DEPTH: Final = 64
"""So many groups (of unknown fields) may lie in each other."""

_MAX_SHIFT: Final = 70
_ANY: Final = range(8)
_MASK64: Final = (1 << 64) - 1


class WireProblem(IntEnum):
    """What may be wrong with a record; the numbers are those of examples.c."""

    SPAN = 1
    VARINT = 2
    TAG = 3
    LENGTH = 4
    WIRE = 5
    DEPTH = 6
    MISSING = 7
    KIND = 8
    COUNT = 9


class WireFault(Exception):
    """Bytes that are no message. Internal: turned into a RecordError by who knows where they came from.

    Attributes:
        fault: what is wrong.
        at: where in the bytes.
        name: of the feature concerned, when it is known.
        found: what was found in its place: a kind or a count.
    """

    def __init__(self, fault: WireProblem, at: int, *, name: bytes | None = None, found: int = 0) -> None:
        super().__init__(fault, at)
        self.fault, self.at, self.name, self.found = fault, at, name, found


class WireField(NamedTuple):
    """One field of a message.

    Attributes:
        at: where its tag stands.
        number: of the field.
        wire: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
        begin: where its bytes begin.
        end: behind them.
        value: of a varint.
        length_at: where the length stands.
    """

    at: int
    number: int
    wire: int
    begin: int
    end: int
    value: int
    length_at: int


def fields(data: bytes, begin: int, end: int, known: Mapping[int, tuple[int, ...]]) -> Iterator[WireField]:
    """Iterate over the known fields of the message data[begin:end].

    Args:
        data: what the message lies in.
        begin: its first byte.
        end: behind its last one.
        known: for the numbers of known fields the wire types that they may have; other fields are skipped, whatever they are.

    Raises:
        WireFault: at the first byte that is none.
    """
    place = begin
    while place < end:
        at = place
        tag, place = _tag(data, place, end)
        if tag & 7 not in known.get(tag >> 3, _ANY):
            raise WireFault(WireProblem.WIRE, at)
        if tag & 7 == 3:
            stop = _skip_group(data, place, end, tag >> 3)
        else:
            field = _plain(data, at, place, end, tag)
            stop = field.end
            if field.number in known:
                yield field
        place = stop


def varints(data: bytes, begin: int, end: int) -> Iterator[int]:
    """Iterate over the unsigned numbers of data[begin:end].

    Raises:
        WireFault: one is cut off or has more than ten bytes.
    """
    place = begin
    while place < end:
        value, place = _varint(data, place, end)
        yield value


def _varint(data: bytes, place: int, end: int) -> tuple[int, int]:
    at, result = place, 0
    for shift in range(0, _MAX_SHIFT, 7):
        if place == end:
            break
        byte = data[place]
        place += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK64, place  # of the tenth byte one bit counts, as in protobuf
    raise WireFault(WireProblem.VARINT, at)


def _tag(data: bytes, place: int, end: int) -> tuple[int, int]:
    tag, after = _varint(data, place, end)
    if tag < 8 or tag > 0xFFFFFFFF:
        raise WireFault(WireProblem.TAG, place)
    return tag, after


def _plain(data: bytes, at: int, place: int, end: int, tag: int) -> WireField:
    """Return a field that is no group."""
    number, wire = tag >> 3, tag & 7
    if wire == 0:
        value, after = _varint(data, place, end)
        return WireField(at, number, wire, place, after, value, place)
    if wire == 2:
        length, after = _varint(data, place, end)
        if length > end - after:
            raise WireFault(WireProblem.LENGTH, place)
        return WireField(at, number, wire, after, after + length, 0, place)
    size = {1: 8, 5: 4}.get(wire)
    if size is None:
        raise WireFault(WireProblem.TAG, at)
    if end - place < size:
        raise WireFault(WireProblem.LENGTH, at)
    return WireField(at, number, wire, place, place + size, 0, place)


def _skip_group(data: bytes, place: int, end: int, number: int) -> int:
    """Return the end of a group of unknown fields."""
    opened = [number]
    while opened:
        at = place
        if place == end:
            raise WireFault(WireProblem.LENGTH, at)
        tag, place = _tag(data, place, end)
        if tag & 7 == 3:
            if len(opened) == MAX_DEPTH:
                raise WireFault(WireProblem.DEPTH, at)
            opened.append(tag >> 3)
        elif tag & 7 == 4:
            if opened.pop() != tag >> 3:
                raise WireFault(WireProblem.TAG, at)
        else:
            place = _plain(data, at, place, end, tag).end
    return place


BYTES: Final = 1
FLOAT: Final = 2
INT64: Final = 3

Entry = tuple[int, int]
"""Where a map entry begins and ends."""


def messages(data: bytes, begin: int, end: int, number: int) -> Iterator[WireField]:
    """Iterate over the sub-messages `number` of a message.

    Raises:
        WireFault: the bytes are no message, or the field is none.
    """
    return fields(data, begin, end, {number: _SUB})


def entries(data: bytes, parts: Iterator[WireField]) -> dict[bytes, Entry]:
    """Return the entries of a map (Features or FeatureLists) that lies in one or several parts, by name; of equal names the last one.

    Raises:
        WireFault: the bytes are no message; with the name when it was read before.
    """
    found: dict[bytes, Entry] = {}
    for part in parts:
        for entry in messages(data, part.begin, part.end, 1):
            name = b""
            try:
                for field in fields(data, entry.begin, entry.end, _ENTRY):
                    if field.number == 1:
                        name = data[field.begin : field.end]
            except WireFault as fault:
                fault.name = name
                raise
            found.pop(name, None)
            found[name] = entry.begin, entry.end
    return found


def values_of(data: bytes, entry: Entry) -> Iterator[WireField]:
    """Iterate over the value messages of a map entry: one, unless they are to be joined."""
    return messages(data, *entry, 2)


def lists_of(data: bytes, parts: Iterator[WireField], wanted: int | None) -> tuple[int, list[Any]]:
    """Return (kind, values) of a Feature that lies in one or several parts; (0, []) of one without a kind.

    Values are spans of bytes (begin, length), the bits of floats, or unsigned integers.
    Lists of another kind than `wanted` are not looked into (None looks into all).

    Raises:
        WireFault: the bytes are no Feature.
    """
    kind = 0
    values: list[Any] = []
    for part in parts:
        for field in fields(data, part.begin, part.end, _FEATURE):
            if field.number != kind:
                kind, values = field.number, []
            if wanted is None or kind == wanted:
                _read_list(data, field, kind, values)
    return kind, values


def _read_list(data: bytes, part: WireField, kind: int, values: list[Any]) -> None:
    """Append the values of one list."""
    for field in fields(data, part.begin, part.end, _LISTS[kind]):
        size = field.end - field.begin
        if kind == BYTES:
            values.append((field.begin, size))
        elif kind == FLOAT:
            if size % 4:
                raise WireFault(WireProblem.LENGTH, field.length_at)
            # As bits: a float of Python would make a signalling NaN a quiet one.
            values.extend(struct.unpack_from(f"<{size // 4}I", data, field.begin))
        elif field.wire == 0:
            values.append(field.value)
        else:
            values.extend(varints(data, field.begin, field.end))


_SUB: Final = (2,)
_ENTRY: Final = {1: _SUB, 2: _SUB}
_FEATURE: Final = {BYTES: _SUB, FLOAT: _SUB, INT64: _SUB}
_LISTS: Final[dict[int, dict[int, tuple[int, ...]]]] = {BYTES: {1: _SUB}, FLOAT: {1: (2, 5)}, INT64: {1: (0, 2)}}


def as_array(kind: int, values: list[Any]) -> Any:
    """Return numbers as an array: float32 or int64; of bytes int64 [n, 2], where each begins and its length."""
    if kind == FLOAT:
        return np.array(values, np.uint32).view(np.float32)
    if kind == INT64:
        return np.array(values, np.uint64).view(np.int64)
    return np.array(values, np.int64).reshape(-1, 2)
