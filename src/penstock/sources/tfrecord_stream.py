"""Compressed TFRecord files: one record after the other, as nothing but decompressing tells where a record begins."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Generator, Iterator
from typing import Any

from penstock._contracts.storage import Storage
from penstock.errors import RecordError, StateDamaged, StateUnavailable
from penstock.formats.compression import Decompressed
from penstock.formats.tfrecord import MAX_RECORD_BYTES, Block, read_blocks
from penstock.sources.paths import common_folder, shown
from penstock.sources.tfrecord import refuse_empty

__all__ = ["StoredFile", "TFRecordStream"]

_CALLER = "read_tfrecord"
_NO_FURTHER = "behind a bad record a compressed file is not read, whatever the policy: leave the file out to go on with the others"


class StoredFile:
    """One file of a storage, read from its beginning. Not thread-safe; nothing has to be closed."""

    def __init__(self, storage: Storage, file: int) -> None:
        self._storage, self._file, self._offset = storage, file, 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises:
            SourceError, OSError: as the storage says it.
        """
        length = min(size, self._storage.size(self._file) - self._offset)
        data = self._storage.read(self._file, self._offset, length) if length else b""
        self._offset += length
        return data


class TFRecordStream:
    """Serve {"record": bytes} of compressed TFRecord files, in the order of their paths. See `StatefulStream`.

    Its state is (file, records of it that were given): a resume decompresses at most one file again. Feeds may read it at the same time.

    Args:
        storage: the files.
        compression: "GZIP" or "ZLIB", that of all files.
        check_crc: False: only the check sums of the lengths.
        max_record_bytes: a longer record is an error.
        allow_empty: take a file without records for an empty shard.

    Raises:
        RecordError: a file has 0 bytes.
    """

    def __init__(
        self,
        storage: Storage,
        compression: str,
        *,
        check_crc: bool = True,
        max_record_bytes: int = MAX_RECORD_BYTES,
        allow_empty: bool = False,
    ) -> None:
        refuse_empty(storage, allow_empty)
        self._storage, self._compression, self._check_crc = storage, compression, check_crc
        self._max_record_bytes, self._allow_empty = max_record_bytes, allow_empty
        self._own = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_own"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _own=threading.local())

    def open(self, pass_number: int) -> Iterator[dict[str, bytes]]:
        """Start a pass; all are alike."""
        self._own.place = 0, 0
        return self._pass(0, 0)

    def state(self) -> list[int]:
        """Return [file, records given of it] behind what this thread did last: got an element of any pass, or started one.

        Raises:
            StateUnavailable: it did neither.
        """
        place = getattr(self._own, "place", None)
        if place is None:
            raise StateUnavailable("this thread has not read", where=self.label(), fix="ask in the thread that reads")
        return list(place)

    def open_at(self, pass_number: int, state: Any) -> Iterator[dict[str, bytes]]:
        """Start a pass behind a place.

        Raises:
            StateDamaged: it is no place in these files; that a file has fewer records shows when it is read.
        """
        file, number = state if isinstance(state, list) and len(state) == 2 else (None, None)
        if not (type(file) is int and type(number) is int and 0 <= file < len(self._storage) and number >= 0):
            raise StateDamaged(
                f"{state!r} is no place in {len(self._storage)} files", where=self.label(), fix="resume with a state of this dataset"
            )
        self._own.place = file, number
        return self._pass(file, number)

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine."""
        storage = self._storage
        return (os.path.abspath(storage.name(file)) for file in range(len(storage)) if "mtime_ns" in storage.identity(file))

    def declared_length(self) -> None:
        """Return None: nobody has counted them."""

    def can_fast_forward(self) -> bool:
        """Return True: it gives the same in every pass."""
        return True

    def describe(self, index: int) -> str:
        """Name the element by its number, as only reading tells which file it comes from."""
        return f"record {index} of all, of {self._files()}"

    def fingerprint(self) -> dict[str, Any]:
        """Return count and compression of the files, and a check sum of names below the common folder, sizes and etags."""
        storage = self._storage
        names = [os.fsencode(storage.name(file)) for file in range(len(storage))]
        skip, crc = common_folder(min(names), max(names)), 0
        for file, name in enumerate(names):
            etag = storage.identity(file).get("etag", "")
            crc = zlib.crc32(name[skip:] + f"\0{storage.size(file)} {etag}\n".encode(), crc)
        return {"kind": f"stream/tfrecord/{self._compression}", "num_files": len(names), "files_crc32": crc}

    def label(self) -> str:
        """Return the call with files and compression."""
        return f"{_CALLER}({self._files()}, {self._compression})"

    def _files(self) -> str:
        more = "" if len(self._storage) == 1 else f" and {len(self._storage) - 1} more"
        return f"{shown(self._storage.name(0))}{more}"

    def _pass(self, file: int, skip: int) -> Generator[dict[str, bytes], None, None]:
        own = self._own  # bound to the object; its attributes to the thread that is in `next`
        for current in range(file, len(self._storage)):
            number = 0
            for block in self._blocks(current):
                number = block.first + len(block.starts)
                if number <= skip:
                    continue
                for number, record in enumerate(block.records(), block.first + 1):
                    if number > skip:
                        own.place = current, number
                        yield {"record": record}
            if number < skip:
                raise StateDamaged(
                    f"{[current, skip]!r} is no place in {shown(self._storage.name(current))}, which has {number} records",
                    where=self.label(),
                    fix="resume with a state of this dataset; was the file written again?",
                )
            skip = 0

    def _blocks(self, file: int) -> Iterator[Block]:
        name = self._storage.name(file)
        if self._storage.size(file) == 0:
            return
        stream = Decompressed(StoredFile(self._storage, file), self._compression, name)
        empty = True
        for block in read_blocks(
            stream, name=name, check_crc=self._check_crc, max_record_bytes=self._max_record_bytes, on_bad=_raise_for_good
        ):
            empty = False
            yield block
        if empty and not self._allow_empty:
            raise RecordError(
                f"{name!r} has no records", where=f"{_CALLER}, {name!r}", fix="give allow_empty=True if shards without records are meant"
            )


def _raise_for_good(number: int, offset: int, error: RecordError) -> None:
    """Raise the error of a bad record. What its advice says of going on behind it is for files whose records have positions."""
    raise RecordError(error.what, where=error.where, fix=f"{error.fix.partition(';')[0]}; {_NO_FURTHER}")
