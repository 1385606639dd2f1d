"""Opens TFRecord files: which source fits them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock._contracts.storage import Storage
from penstock._storage import open_storage
from penstock.errors import PlanError
from penstock.formats.compression import check_compression, looks_like
from penstock.formats.tfrecord import MAX_RECORD_BYTES
from penstock.kernels.framing import HEADER_BYTES, scan_frames
from penstock.sources.tfrecord import TFRecordSource
from penstock.sources.tfrecord_stream import TFRecordStream

__all__ = ["found_compression", "open_tfrecord"]

_CALLER = "read_tfrecord"


def open_tfrecord(
    pattern: Any,
    *,
    compression: str | None = None,
    check_crc: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    allow_empty: bool = False,
    index: None = None,
    resync: bool = False,
) -> TFRecordSource | TFRecordStream:
    """Open TFRecord files; arguments and errors as `penstock.read_tfrecord`."""
    check_compression(compression, f"{_CALLER}, argument 'compression'", "auto")
    if type(max_record_bytes) is not int or max_record_bytes < 0:
        raise PlanError(f"max_record_bytes={max_record_bytes!r} is no count of bytes", where=_CALLER, fix="give an int >= 0")
    if index is not None:
        raise PlanError(
            f"index={index!r:.60}: text indices of other tools are not read",
            where=f"{_CALLER}, argument 'index'",
            fix="leave out index=: `penstock index PATTERN`, or the first read, builds an index; give a pattern that fits no .idx files",
        )
    storage = open_storage(pattern, _CALLER)
    if compression == "auto":
        compression = found_compression(storage)
    checks: dict[str, Any] = {"check_crc": check_crc, "max_record_bytes": max_record_bytes, "allow_empty": allow_empty}
    if compression is None:
        return TFRecordSource(storage, resync=resync, **checks)
    if resync:
        raise PlanError(
            f"resync does not go with {compression} files, which can only be read from their beginning",
            where=f"{_CALLER}, argument 'resync'",
            fix="leave out resync=, or write the files without compression",
        )
    return TFRecordStream(storage, compression, **checks)


def found_compression(storage: Storage) -> str | None:
    """Return the compression of all files, by their first bytes; files of 0 bytes have none in particular.

    Raises:
        PlanError: they differ.
        SourceError, OSError: a file cannot be read.
    """
    found: dict[str | None, str] = {}
    for file in range(len(storage)):
        head = storage.read(file, 0, min(HEADER_BYTES, storage.size(file)))
        if head:
            found.setdefault(compression_of(head), storage.name(file))
    if len(found) > 1:
        kinds = "; ".join(f"{name!r} looks like {'no compression' if kind is None else kind}" for kind, name in found.items())
        raise PlanError(
            f"the files differ in their compression: {kinds}",
            where=f'{_CALLER}, compression="auto"',
            fix="read them as several datasets and chain these",
        )
    return next(iter(found), None)


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file by its first bytes: a length with its right check sum is none, whatever else it looks like."""
    place = np.empty(1, np.int64)
    scan = scan_frames(head, place, place.copy(), whole=False)
    return None if scan.num_frames else looks_like(head)
