"""Opens TFRecord files: which source fits them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock._contracts.storage import Storage
from penstock._contracts.storage_options import RemoteFiles
from penstock._storage import open_storage
from penstock.errors import PlanError
from penstock.formats.compression import check_compression, looks_like
from penstock.formats.tfrecord import MAX_RECORD_BYTES
from penstock.kernels.framing import HEADER_BYTES, scan_frames
from penstock.sources.tfrecord import TFRecordSource, text_indices
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
    index: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    resync: bool = False,
) -> TFRecordSource | TFRecordStream:
    """Open TFRecord files; arguments and errors as `penstock.read_tfrecord`."""
    check_compression(compression, f"{_CALLER}, argument 'compression'", "auto")
    if type(max_record_bytes) is not int or max_record_bytes < 0:
        raise PlanError(f"max_record_bytes={max_record_bytes!r} is no count of bytes", where=_CALLER, fix="give an int >= 0")
    storage = open_storage(pattern, _CALLER)
    if index == "idx":
        storage = _without_indices(storage, pattern)
    if compression == "auto":
        compression = found_compression(storage)
    checks: dict[str, Any] = {"check_crc": check_crc, "max_record_bytes": max_record_bytes, "allow_empty": allow_empty}
    if compression is None:
        return TFRecordSource(storage, resync=resync, indices=None if index is None else text_indices(storage, index), **checks)
    for name, given in (("index", index is not None), ("resync", resync)):
        if given:
            raise PlanError(
                f"{name} does not go with {compression} files, which can only be read from their beginning",
                where=f"{_CALLER}, argument {name!r}",
                fix=f"leave out {name}=, or write the files without compression",
            )
    return TFRecordStream(storage, compression, **checks)


def _without_indices(storage: Storage, pattern: Any) -> Storage:
    """Leave out text indices that the pattern found beside their files."""
    names = [storage.name(file) for file in range(len(storage))]
    others = set(names)
    kept = [name for name in names if not (name.endswith(".idx") and name.removesuffix(".idx") in others)]
    if len(kept) == len(names):
        return storage
    return open_storage(RemoteFiles(kept, pattern.options) if isinstance(pattern, RemoteFiles) else kept, _CALLER)


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
