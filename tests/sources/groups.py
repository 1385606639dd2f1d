"""A source that lies in groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chunked", "Grouped"]


class Grouped:
    """Numbers from 0, in groups of the given sizes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._starts = [0, *accumulate(sizes)]

    def __len__(self) -> int:
        return self._starts[-1]

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        rows.extend(indices)

    def describe(self, index: int) -> str:
        return f"number {index}"

    def fingerprint(self) -> dict[str, Any]:
        return {"kind": "numbers", "count": len(self)}

    def label(self) -> str:
        return f"numbers({len(self)})"

    def group_starts(self) -> NDArray[np.int64]:
        return np.array(self._starts, np.int64)


class Chunked(Grouped):
    """One that keeps `kept` decoded groups."""

    def __init__(self, sizes: Sequence[int], kept: int) -> None:
        super().__init__(sizes)
        self.kept = kept

    def groups_kept(self) -> int:
        return self.kept
