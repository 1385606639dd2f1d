"""Bytes that claim to be a sidecar index: as they come, and with check sums made right, so that what lies behind them is reached."""

from __future__ import annotations

import struct

import numpy as np
import running

from penstock._storage.urls import expand
from penstock.errors import PlanError, RecordError
from penstock.formats.index import Index, catalogue_parts, decode, is_index, joined, parts, read_catalogue
from penstock.kernels.framing import crc32c
from penstock.sources.records import RecordTable


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
        again = decode(b"".join(parts(index)), "again")
        assert all(
            np.array_equal(again.columns[name], values, equal_nan=values.dtype.kind == "f") for name, values in index.columns.items()
        )
        _catalogue(given, index, again)
    try:
        names = expand(data[:40].decode("utf-8", "surrogateescape"), "fuzz")
    except PlanError:
        return
    assert len(names) <= 1_000_000


def _catalogue(given: bytes, index: Index, again: Index) -> None:
    """Take it for a catalogue; and put it into one, which is read as it was written."""
    options = index.options.get("options")
    try:
        read_catalogue(given, "fuzz", str(index.options.get("kind")), options if isinstance(options, dict) else {})
    except RecordError:
        pass
    indices, times = joined([index, again], ["one", "two"]), np.array([1, -1])
    if len(index):
        RecordTable(indices=indices, names=["one", "two"]).describe(0)
    written = b"".join(catalogue_parts(indices, times, index.kind, index.options))
    found, versions = read_catalogue(written, "catalogue", index.kind, index.options)
    assert versions.tolist() == times.tolist()
    assert np.array_equal(found.starts, indices.starts)
    assert np.array_equal(found.sizes, indices.sizes)
    assert all(np.array_equal(found.columns[name], values, equal_nan=values.dtype.kind == "f") for name, values in indices.columns.items())


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
