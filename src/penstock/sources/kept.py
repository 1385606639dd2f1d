"""Elements that were read once into a file, where any of them can be had again."""

from __future__ import annotations

import hashlib
import os
import pickle
from array import array
from collections.abc import Sequence
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.source import KeptLost
from penstock.errors import SpecError
from penstock.formats.sizes import size_words

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
        """Return how much was kept, with the offsets, which are in memory as well until the end."""
        return self._offsets[-1] + self._offsets.itemsize * len(self._offsets)

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
                f"the element has no pickle, by which it is kept in a file until it is packed: {type(error).__name__}: {error}",
                where=f"element {number} of {self._words}",
                fix="make it one of numbers, arrays, bytes and texts where it is generated, or by a map below take, batch or shuffle; maps "
                "above run when it has been kept",
            ) from error
        self._hash.update(data)
        self._write(data)
        self._offsets.append(self._offsets[-1] + len(data))

    def finish(self, beside: tuple[str, ...] = ()) -> KeptSource:
        """Write what is left, and return the source.

        Args:
            beside: what tells the elements from others, beside themselves.

        Raises:
            OSError: it cannot be written.
        """
        self._write(self._offsets.tobytes(), flush=True)
        count, size = len(self._offsets) - 1, self._offsets[-1]
        return KeptSource(self._file.name, count, size, (self._hash.hexdigest(), *beside), self._words)

    def _write(self, data: bytes, *, flush: bool = False) -> None:
        try:
            self._file.write(data)
            if flush:
                self._file.flush()
        except OSError as error:
            error.add_note(
                f"penstock: {size_words(self.num_bytes)} of {self._words} had been kept in {self._file.name!r} until they would be packed; "
                "the file is removed"
            )
            raise


class KeptSource:
    """The elements of a file that a `Keeper` wrote. Picklable; each process opens the file for itself.

    Args:
        path: of the file.
        count: elements.
        size: bytes of all pickles.
        told_by: what tells the elements from others.
        words: what the elements are.
    """

    def __init__(self, path: str, count: int, size: int, told_by: tuple[str, ...], words: str) -> None:
        self._path, self._count, self._size, self._told_by, self._words = path, count, size, told_by, words
        self._offsets: NDArray[np.int64] | None = None

    @classmethod
    def none(cls, words: str) -> Self:
        """Return a source without elements, and without a file."""
        return cls(os.devnull, 0, 0, (), words)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_offsets": None}  # 8 bytes each, and in the file already

    def __len__(self) -> int:
        return self._count

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append the elements of some positions.

        Raises:
            KeptLost: the file is gone, or is not what was written.
        """
        try:
            if self._offsets is None:
                self._offsets = np.fromfile(self._path, np.int64, self._count + 1, offset=self._size)
            with open(self._path, "rb") as file:
                for index in indices:
                    begin, end = self._offsets[index : index + 2].tolist()
                    file.seek(begin)
                    rows.append(pickle.loads(file.read(end - begin)))
        except Exception as error:  # of unpickling: anything
            raise KeptLost(
                f"an element that was kept until it would be packed cannot be had again: {type(error).__name__}: {error}",
                where=f"{self.describe(indices[len(rows)] if len(rows) < len(indices) else indices[0])}, in {self._path!r}",
                fix="pack again, and leave that file alone; if its class has a pickle that cannot be read, give elements of numbers, "
                "arrays, bytes and texts",
            ) from error

    def describe(self, index: int) -> str:
        """Name the element by its number."""
        return f"element {index} of {self._words}"

    def fingerprint(self) -> dict[str, Any]:
        """Return the count; `held` tells the elements."""
        return {"kind": "kept", "count": self._count}

    def label(self) -> str:
        """Say what was read."""
        return f"{self._words}, {self._count} elements, kept in {os.path.basename(self._path)!r}"

    def held(self) -> tuple[Any, ...]:
        """Return what tells the elements from others."""
        return self._told_by
