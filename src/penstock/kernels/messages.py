"""The messages of tf.train.Example over the wire format, in Python: features of a record, values of a feature.

Rules where the format leaves a choice are protobuf's: the last map entry of a name counts, message fields that come twice are joined, of
several kinds in a Feature the last one counts. A known field of another wire type is refused, where protobuf would drop its values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from penstock.kernels.wire import FaultCode, WireFault, WireField, fields, varints

__all__ = ["BYTES", "FLOAT", "INT64", "Entry", "as_array", "entries", "lists_of", "messages", "values_of"]

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
                raise WireFault(FaultCode.LENGTH, field.length_at)
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
