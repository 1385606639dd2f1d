"""Fuzz TFRecord framing and compressed streams: the first byte says what the others are."""

from __future__ import annotations

import io

import numpy as np
import running

from penstock.errors import RecordError
from penstock.formats.compression import Decompressed
from penstock.formats.tfrecord import read_blocks, read_records, scan_headers

_LIMIT = 1 << 16


def one_input(data: bytes) -> None:
    """Read bytes as a plain, a GZIP or a ZLIB file."""
    kind, rest = data[:1], data[1:]
    if kind == b"g":
        _read(rest, "GZIP")
    elif kind == b"z":
        _read(rest, "ZLIB")
    else:
        _plain(rest)


def _read(data: bytes, compression: str | None) -> list[bytes]:
    """Return what is read before the end or the first error."""
    records: list[bytes] = []
    try:
        records.extend(read_records(io.BytesIO(data), compression=compression, max_record_bytes=_LIMIT))
    except RecordError:
        if compression is not None:
            stream = Decompressed(io.BytesIO(data), compression, "f")
            try:
                while stream.read(4096) and stream.num_out < 1 << 24:
                    pass
            except RecordError:
                pass
    return records


def _plain(data: bytes) -> None:
    """Read a plain file in all ways; they must agree."""
    records = _read(data, None)
    found: list[bytes] = []
    try:
        for block in read_blocks(io.BytesIO(data), name="f", max_record_bytes=_LIMIT):
            found.extend(block.records())
    except RecordError:
        pass
    assert found == records
    pieces = [np.frombuffer(data[begin : begin + 7], np.uint8) for begin in range(0, len(data), 7)]
    try:
        spans = scan_headers(pieces, len(data), "f", resync=True)
    except RecordError as error:
        if "GZIP" not in error.what:
            raise
        return
    ends = (spans["offsets"] + spans["lengths"]).tolist()
    assert spans["offsets"].tolist() == [0, *ends][: len(ends)]
    assert (ends or [0])[-1] == len(data)


if __name__ == "__main__":
    running.run(one_input)
