"""Sources of one whole number for each element: what all of them share, and the numbers that a source knows by itself."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.element import LEAF, Structure
from penstock._system.lazy import dataclass
from penstock.kernels.library import Ints
from penstock.sources.paths import refuse_beyond

_AT_ONCE = 1 << 20


class NumberSource(ABC):
    """A source of int64 scalars."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """Count the numbers."""

    @abstractmethod
    def label(self) -> str:
        """Say in one line what this is."""

    @abstractmethod
    def values(self, indices: Ints) -> NDArray[Any]:
        """Return the numbers of elements, integers [n]; each index is in 0..len-1."""

    def structure(self) -> Structure:
        """Return the structure that `element.unflatten` needs."""
        return LEAF

    def leaves(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of a number."""
        return [((), np.dtype(np.int64))]

    def gather_columns(self, indices: Ints, out: list[NDArray[Any]] | None) -> list[NDArray[Any]]:
        """Read numbers: into `out` (one int64 array of shape (n,)) or into a new array.

        Raises:
            LengthMismatch: an index is not in 0..len-1.
            SourceError, OSError: a file is lost, was cut, or cannot be read.
        """
        refuse_beyond(indices, self, "numbers")
        values = self.values(indices)
        if out is None:
            return [values.astype(np.int64, copy=False)]
        out[0][...] = values
        return out

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one NumPy scalar per index.

        Raises:
            as `gather_columns`.
        """
        rows.extend(self.gather_columns(np.asarray(indices, np.int64), None)[0])


@dataclass(frozen=True, slots=True)
class KnownNumber(NumberSource):
    """A number that a source knows of each of its elements without reading them, such as their lengths in its index.

    Attributes:
        name: of the number.
        source: of the elements, an `IndexedSource`.
        look_up: returns the numbers of elements, integers [n], for int64 [n]; a method of the source, as both are pickled.
    """

    name: str
    source: Any
    look_up: Callable[[Ints], NDArray[Any]]

    def __len__(self) -> int:
        return len(self.source)

    def values(self, indices: Ints) -> NDArray[Any]:
        """Return the numbers of elements."""
        return self.look_up(indices)

    def describe(self, index: int) -> str:
        """Name the number and its element."""
        return f"{self.name} of {self.source.describe(index)}"

    def fingerprint(self) -> dict[str, Any]:
        """Return the name, a check sum of all numbers, and the fingerprint of the source, which may look at parts of the data alone."""
        crc = 0
        for begin in range(0, len(self), _AT_ONCE):
            indices = np.arange(begin, min(begin + _AT_ONCE, len(self)))
            crc = zlib.crc32(self.look_up(indices).astype("<i8").tobytes(), crc)
        return {"kind": "number", "name": self.name, "crc32": crc, "of": self.source.fingerprint()}

    def label(self) -> str:
        """Return the name, and the source."""
        return f"{self.name} of {self.source.label()}"
