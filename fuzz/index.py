"""Bytes that claim to be a sidecar index: as they come, and with check sums made right, so that what lies behind them is reached."""

from __future__ import annotations

import struct

import numpy as np
import running

from penstock._storage.expanding import expand
from penstock.errors import PlanError, RecordError
from penstock.formats.index import decode, encode, is_index
from penstock.kernels.framing import crc32c
from penstock.sources.records import join


def one_input(data: bytes) -> None:
    """Decode; what is accepted lies inside its file and is written as it was read. Also a list entry, as a pattern."""
    for given in (data, _trusted(data)):
        is_index(given)
        try:
            index = decode(given, "fuzz")
        except RecordError:
            continue
        offsets, lengths = (index.columns[name].astype(object) for name in ("offsets", "lengths"))
        assert all(offset >= 0 and length >= 0 and offset + length <= index.size for offset, length in zip(offsets, lengths, strict=True))
        again = decode(encode(index), "again")
        assert all(
            np.array_equal(again.columns[name], values, equal_nan=values.dtype.kind == "f") for name, values in index.columns.items()
        )
        join([index, again], ["one", "two"]).describe(0) if len(index) else None
    try:
        names = expand(data[:40].decode("utf-8", "surrogateescape"), "fuzz", most=1000)
    except PlanError:
        return
    assert len(names) <= 1000


def _trusted(data: bytes) -> bytes:
    """Write magic, version, total and check sums that are right over whatever stands there."""
    if len(data) < 64:
        return data
    body = data[64:]
    header = (
        b"PSINDEX\n" + struct.pack("<I", 1) + data[12:24] + struct.pack("<Q", len(data)) + data[32:56] + struct.pack("<I", crc32c(body))
    )
    return header + struct.pack("<I", crc32c(header)) + body


if __name__ == "__main__":
    running.run(one_input)
