"""Small TFRecord files for tests."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.formats.tfrecord import RecordWriter
from penstock.kernels.framing import crc32c, masked

FIVE = [b"first", b"", b"third record", b"\0\0\0", b"the fifth"]


def tfrecord(records: Sequence[bytes], compression: str | None = None) -> bytes:
    """Return the bytes of a file."""
    file = io.BytesIO()
    with RecordWriter(file, compression) as writer:
        for record in records:
            writer.write(record)
    return file.getvalue()


def write_tfrecord(path: Path, records: Sequence[bytes], compression: str | None = None) -> Path:
    path.write_bytes(tfrecord(records, compression))
    return path


def borders(records: Sequence[bytes]) -> list[int]:
    """Return where each record begins, and where the file ends."""
    places = [0]
    for record in records:
        places.append(places[-1] + len(record) + 16)
    return places


def record_at(records: Sequence[bytes], offset: int) -> int:
    """Return the number of the record that a byte belongs to."""
    return sum(border <= offset for border in borders(records)[:-1]) - 1


def header(length: int) -> bytes:
    """Return a length field with its right check sum."""
    field = struct.pack("<Q", length)
    return field + struct.pack("<I", masked(crc32c(field)))


def block_of(*records: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return records one behind the other, and where they begin and how long they are."""
    lengths = np.array([len(one) for one in records], np.int64)
    return np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths) - lengths, lengths
