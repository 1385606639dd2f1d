"""Regular files of this machine, read with `pread`."""

from __future__ import annotations

import os
import stat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.transform import Scratch
from penstock.errors import SourceError

__all__ = ["LocalStorage"]

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)


class LocalStorage:
    """See `Storage`."""

    def __init__(self, paths: list[str], caller: str) -> None:
        self._names = paths
        self._paths = [os.path.abspath(path) for path in paths]
        self._caller = caller
        self._status = []
        for path in paths:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                raise SourceError(f"{path!r} is not a regular file", where=caller, fix="take it out of the list or pattern")
            self._status.append(status)

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, file: int) -> str:
        """Return the path."""
        return self._names[file]

    def size(self, file: int) -> int:
        """Return the bytes."""
        return self._status[file].st_size

    def identity(self, file: int) -> dict[str, Any]:
        """Return size and modification time."""
        status = self._status[file]
        return {"size": status.st_size, "mtime_ns": status.st_mtime_ns}

    def read(self, file: int, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes.

        Raises:
            SourceError: the file has fewer.
            OSError: as the system says it.
        """
        descriptor = os.open(self._paths[file], _FLAGS)
        try:
            data = os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)
        if len(data) != length:
            raise SourceError(
                f"{self._names[file]!r} ends inside a read of {length} bytes at {offset}: {len(data)} are there",
                where=f"{self._caller}, {self._names[file]!r}",
                fix="do not change files while they are read; build the dataset again",
            )
        return data

    def read_spans(
        self, files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], scratch: Scratch | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Read many spans.

        Raises:
            SourceError: a file has fewer bytes.
            OSError: as the system says it.
        """
        total = int(lengths.sum())
        out = np.empty(total, np.uint8) if scratch is None else scratch.take("spans", (total,), np.uint8)
        starts = np.cumsum(lengths) - lengths
        for file, offset, length, start in zip(files.tolist(), offsets.tolist(), lengths.tolist(), starts.tolist(), strict=True):
            out[start : start + length] = np.frombuffer(self.read(file, offset, length), np.uint8)
        return out, starts
