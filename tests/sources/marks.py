"""A format of the tests: records of one length byte and so many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import RecordError
from penstock.sources.records import RecordTable


@dataclass(frozen=True)
class Marked:
    """Records of one length byte and so many bytes; (bytes, its first byte again by a column of our own)."""

    kind: str = "marked"
    options: dict[str, Any] = field(default_factory=dict)
    checks_records: bool = False
    separator: None = None
    scanned: list[str] = field(default_factory=list)

    def scan(self, pieces: Iterator[NDArray[np.uint8]], size: int, name: str) -> dict[str, Any]:
        self.scanned.append(name)
        data = b"".join(piece.tobytes() for piece in pieces)
        offsets, lengths, first = [], [], []
        place = 0
        while place < len(data):
            length = data[place]
            if length == 255 or place + 1 + length > len(data):
                raise RecordError("a length is wrong", where=f"{name}, record {len(offsets)}, offset {place}", fix="write the file again")
            offsets.append(place + 1)
            lengths.append(length)
            first.append(data[place + 1] if length else 0)
            place += 1 + length
        columns = {"offsets": np.array(offsets, np.int64), "lengths": np.array(lengths, np.int64), "first": np.array(first, np.uint8)}
        return {**columns, "file_name": np.frombuffer(name[-1:].encode(), np.uint8), "meta": {"records": len(offsets)}}

    def decode(self, data: memoryview, table: RecordTable, index: int) -> Any:
        if bytes(data) == b"bad":
            raise RecordError("it is bad", where="decode", fix="mend it")
        return bytes(data), int(table.columns["first"][index])


def marked(*records: bytes) -> bytes:
    """Return the bytes of a file of records."""
    return b"".join(bytes([len(record)]) + record for record in records)
