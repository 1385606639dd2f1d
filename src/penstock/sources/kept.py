"""Elements that were read once into a file, where any of them can be had again."""

from __future__ import annotations

import hashlib
import os
import pickle
from array import array
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from penstock.errors import SourceError, SpecError

__all__ = ["Keeper", "KeptSource"]


class Keeper:
    """Writes elements: pickles, one behind the other, and behind them where each begins and the last ends, as int64. From one thread.

    Args:
        file: open for writing, at its beginning.
        words: what the elements are, in a line.
    """

    def __init__(self, file: BinaryIO, words: str) -> None:
        self._file, self._words = file, words
        self._hash = hashlib.sha256()
        self._offsets = array("q", [0])

    @property
    def num_bytes(self) -> int:
        """Return how much was kept."""
        return self._offsets[-1]

    def add(self, element: Any) -> None:
        """Keep an element as it is now.

        Raises:
            SpecError: it has no pickle.
            OSError: it cannot be written.
        """
        try:
            data = pickle.dumps(element, protocol=5)
        except Exception as error:
            number = len(self._offsets) - 1
            raise SpecError(
                f"the element cannot be kept in a file while it is packed: {type(error).__name__}: {error}",
                where=f"element {number} of {self._words}",
                fix="give elements of numbers, arrays, bytes and texts",
            ) from error
        self._hash.update(data)
        self._file.write(data)
        self._offsets.append(self._offsets[-1] + len(data))

    def finish(self, fingerprint: dict[str, Any]) -> KeptSource:
        """Write what is left, and return the source.

        Args:
            fingerprint: what the elements depend on, JSON-able.

        Raises:
            OSError: it cannot be written.
        """
        self._file.write(self._offsets.tobytes())
        self._file.flush()
        count = len(self._offsets) - 1
        record = {"kind": "kept", "of": fingerprint, "count": count}
        return KeptSource(self._file.name, count, self.num_bytes, self._hash.hexdigest(), self._words, record)


class KeptSource:
    """The elements of a file that a `Keeper` wrote. Picklable; each process opens the file for itself.

    Args:
        path: of the file.
        count: elements.
        size: bytes of all pickles.
        digest: SHA-256 of all pickles.
        words: what the elements are.
        record: the fingerprint.
    """

    def __init__(self, path: str, count: int, size: int, digest: str, words: str, record: dict[str, Any]) -> None:
        self._path, self._count, self._size, self._digest = path, count, size, digest
        self._words, self._record = words, record
        self._offsets: NDArray[np.int64] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_offsets": None}  # 8 bytes each, and in the file already

    def __len__(self) -> int:
        return self._count

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append the elements of some positions.

        Raises:
            SourceError: the file was cut.
            OSError: it is gone, or cannot be read.
        """
        if self._offsets is None:
            self._offsets = np.fromfile(self._path, np.int64, self._count + 1, offset=self._size)
        with open(self._path, "rb") as file:
            for index in indices:
                begin, end = self._offsets[index : index + 2].tolist()
                file.seek(begin)
                data = file.read(end - begin)
                if len(data) < end - begin:
                    raise SourceError(
                        f"{self._path!r} was cut: it holds elements while they are packed", where=self.describe(index), fix="pack again"
                    )
                rows.append(pickle.loads(data))

    def describe(self, index: int) -> str:
        """Name the element by its number."""
        return f"element {index} of {self._words}"

    def fingerprint(self) -> dict[str, Any]:
        """Return what the elements depend on, and their count."""
        return self._record

    def label(self) -> str:
        """Say what was read."""
        return f"{self._words}, {self._count} elements, kept in {os.path.basename(self._path)!r}"

    def held(self) -> tuple[Any, ...]:
        """Return what tells the elements from others."""
        return (self._digest,)
