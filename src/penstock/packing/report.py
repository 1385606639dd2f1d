"""What was found in a file of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.packing.showing import spec_words

__all__ = ["Inspection", "pieces_of", "summary"]

_PIECE_BYTES = 4 << 20


@dataclass(slots=True, kw_only=True)
class Inspection:
    """What was found in one file.

    Attributes:
        path: of the file.
        kind: what it is.
        size: in bytes.
        count: records; of a damaged file those before the damage.
        noun: what a record is called.
        lengths: int64 [count], in bytes; None where records have none of their own.
        fields: a line each.
        samples: the first elements.
        problems: a sentence for each thing that is wrong.
        remarks: what else is worth a sentence, such as what was checked.
    """

    path: str
    kind: str
    size: int
    count: int = 0
    noun: str = "records"
    lengths: NDArray[np.int64] | None = None
    fields: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add_problem(self, error: Exception) -> None:
        """Note an error as a problem."""
        if isinstance(error, PenstockError):
            self.problems.append(f"{error.what} ({error.where})")
        else:
            self.problems.append(f"{type(error).__name__}: {error}")

    def describe_samples(self) -> None:
        """Take the fields from the samples."""
        found: dict[str, list[str]] = {}
        for sample in self.samples:
            for name, value in sample.items():
                words = spec_words(value)
                if words not in found.setdefault(name, []):
                    found[name].append(words)
        self.fields = [f"{name!r}: {' or '.join(words)}" for name, words in found.items()]


def pieces_of(path: str) -> Iterator[NDArray[np.uint8]]:
    """Give the bytes of a file in order."""
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_PIECE_BYTES):
            yield np.frombuffer(data, np.uint8)


def summary(lengths: Sequence[int] | NDArray[np.int64]) -> tuple[int, int, int]:
    """Return the least, the median and the largest of some sizes."""
    values = np.asarray(lengths)
    return int(values.min()), int(np.median(values)), int(values.max())
