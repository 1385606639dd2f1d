"""The wire format of protobuf, read in Python with every length checked: what the twin of the Example parser and the decoder share.

Pure functions on bytes, from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = ["MAX_DEPTH", "FaultCode", "WireFault", "WireField", "fields", "varints"]

MAX_DEPTH: Final = 64
"""So many groups (of unknown fields) may lie in each other."""

_MAX_SHIFT: Final = 70
_ANY: Final = range(8)
_MASK64: Final = (1 << 64) - 1


class FaultCode(IntEnum):
    """What may be wrong with a record; the numbers are those of wire.h."""

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

    def __init__(self, fault: FaultCode, at: int, *, name: bytes | None = None, found: int = 0) -> None:
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
            raise WireFault(FaultCode.WIRE, at)
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
    raise WireFault(FaultCode.VARINT, at)


def _tag(data: bytes, place: int, end: int) -> tuple[int, int]:
    tag, after = _varint(data, place, end)
    if tag < 8 or tag > 0xFFFFFFFF:
        raise WireFault(FaultCode.TAG, place)
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
            raise WireFault(FaultCode.LENGTH, place)
        return WireField(at, number, wire, after, after + length, 0, place)
    size = {1: 8, 5: 4}.get(wire)
    if size is None:
        raise WireFault(FaultCode.TAG, at)
    if end - place < size:
        raise WireFault(FaultCode.LENGTH, at)
    return WireField(at, number, wire, place, place + size, 0, place)


def _skip_group(data: bytes, place: int, end: int, number: int) -> int:
    """Return the end of a group of unknown fields."""
    opened = [number]
    while opened:
        at = place
        if place == end:
            raise WireFault(FaultCode.LENGTH, at)
        tag, place = _tag(data, place, end)
        if tag & 7 == 3:
            if len(opened) == MAX_DEPTH:
                raise WireFault(FaultCode.DEPTH, at)
            opened.append(tag >> 3)
        elif tag & 7 == 4:
            if opened.pop() != tag >> 3:
                raise WireFault(FaultCode.TAG, at)
        else:
            place = _plain(data, at, place, end, tag).end
    return place
