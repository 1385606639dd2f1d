"""What sources ask of the files that records lie in."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.transform import Scratch

__all__ = ["Storage"]


@runtime_checkable
class Storage(Protocol):
    """A fixed list of files, local or remote, read by byte ranges. From any thread, several at a time.

    Nothing has to be closed: what is open (descriptors, connections) is bounded and goes with the object.
    """

    def __len__(self) -> int:
        """Count the files."""

    def name(self, file: int) -> str:
        """Return path or URL of a file, as the user gave it or as its pattern found it, without secrets."""

    def size(self, file: int) -> int:
        """Return the bytes of a file, as they were when the storage was opened."""

    def identity(self, file: int) -> dict[str, Any]:
        """Return what tells this version of a file from another without reading it all: JSON-able.

        Local: {"size", "mtime_ns"}; remote: {"size", "etag"} and what else the store says.
        """

    def read(self, file: int, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes.

        Raises:
            SourceError: the file has fewer bytes now (never a short result), or is another one than when the storage was opened.
            OSError: as the system says it, with the path.
        """

    def read_spans(
        self, files: NDArray[np.int64], offsets: NDArray[np.int64], lengths: NDArray[np.int64], scratch: Scratch | None
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Read many spans with as few calls as possible: neighbours together.

        Args:
            files: int64 [n].
            offsets: int64 [n], in bytes.
            lengths: int64 [n], in bytes; each span lies inside its file (the caller has checked that).
            scratch: working memory for the result, which is then valid until the next call with it; None for a new array.

        Returns:
            (uint8 [m], int64 [n]): bytes, and where each span begins in them. Spans may share bytes and stand in any order.

        Raises:
            SourceError, OSError: as `read`.
        """
