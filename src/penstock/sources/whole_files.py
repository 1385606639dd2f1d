"""What the sources have in common whose elements are whole files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._contracts.failing import add_note
from penstock._contracts.transform import Scratch
from penstock.errors import SourceError
from penstock.sources.paths import PathTable

__all__ = ["WholeFiles"]


class WholeFiles(ABC):
    """Elements {"path": str, "data": bytes}, with "label" where there are labels. A subclass says where they come from, in `describe`."""

    def __init__(self, table: PathTable, labels: NDArray[np.int64] | None) -> None:
        """Serve the files of `table`, with `labels` (int64 [n]) or without."""
        self._table = table
        self._labels = labels

    @abstractmethod
    def describe(self, index: int) -> str:
        """Name an element's file and where it was named."""

    def __len__(self) -> int:
        return len(self._table)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        before = len(rows)
        try:
            self._table.read_into(indices, rows, self._labels)
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(indices[len(rows) - before])}")
            raise

    @property
    def transient_field(self) -> str:
        """Return the name of the bytes' field."""
        return "data"

    def read_transient(self, index: int, scratch: Scratch, ahead: NDArray[np.int64]) -> dict[str, Any]:
        """Return one element, its bytes in working memory; where reads wait for a disk, have the system begin with those `ahead`.

        Raises:
            OSError: as the system says it, with a note that names the element.
            SourceError: it is no regular file.
        """
        try:
            return self._table.read_transient(index, self._labels, scratch, ahead)
        except (OSError, SourceError) as error:
            add_note(error, f"reading {self.describe(index)}")
            raise

    def input_files(self) -> Iterator[str]:
        """Give the full path of each element's file."""
        return self._table.all_full()
