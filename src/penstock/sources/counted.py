"""Streams that have been counted: runs of their elements, from any place on."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from penstock._contracts.failing import add_note
from penstock.errors import SourceError

__all__ = ["Counted", "Parts", "Run", "counts_of"]


class Run(NamedTuple):
    """Some neighbours of a part."""

    first: int
    elements: Sequence[Any]


class Parts(Protocol):
    """What is read from its beginning, in one part or several, and gives the same whenever it is read. From any thread."""

    @property
    def num_parts(self) -> int:
        """Return how many parts there are."""

    def describe_in_part(self, part: int, number: int) -> str:
        """Name an element of a part."""

    def runs(self, part: int) -> Iterator[Run]:
        """Give the elements of one part, from its beginning."""

    def held(self) -> tuple[Any, ...]:
        """Return what decides the elements and is no file."""

    def fingerprint(self) -> dict[str, Any]:
        """Return what is known of the data without reading it."""

    def label(self) -> str:
        """Say in one line what this is."""


def counts_of(parts: Parts) -> list[int]:
    """Return the number of elements of each part; reads them all, several parts at once.

    Raises:
        BaseException: what reading them raises, of the first part that has something wrong.
    """
    from concurrent.futures import ThreadPoolExecutor

    ended = threading.Event()

    def count(part: int) -> int:
        found = 0
        for run in parts.runs(part):
            found += len(run.elements)
            if ended.is_set():
                break
        return found

    if parts.num_parts == 1:
        return [count(0)]
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="penstock-count") as pool:
        try:
            return list(pool.map(count, range(parts.num_parts)))
        finally:  # behind an error, the others need not go on
            ended.set()
            pool.shutdown(cancel_futures=True)


class Counted:
    """Serve elements by position. Each thread keeps its place: what follows is cheap; what lies before it begins at the part's beginning.

    Args:
        parts: what is read.
        counts: elements of each part.
    """

    def __init__(self, parts: Parts, counts: Sequence[int]) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(counts)]
        self._own = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_own"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _own=threading.local())

    def __len__(self) -> int:
        return self._starts[-1]

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append the elements of some positions.

        Raises:
            SourceError: a part has fewer elements than it had, or more.
            BaseException: what reading it raises, with a note that names the element, which may stand before that position.
        """
        rows.extend(self._element(*self._place(index)) for index in indices)

    def describe(self, index: int) -> str:
        """Name the element in its part."""
        return self._parts.describe_in_part(*self._place(index))

    def fingerprint(self) -> dict[str, Any]:
        """Return that of the parts, and the count."""
        return {**self._parts.fingerprint(), "count": len(self)}

    def label(self) -> str:
        """Return that of the parts, and the count."""
        return f"{self._parts.label()}, {len(self)} elements"

    def held(self) -> tuple[Any, ...]:
        """Return what decides the elements and is no file."""
        return self._parts.held()

    def input_files(self) -> Iterator[str]:
        """Give the full path of each file of this machine."""
        files = getattr(self._parts, "input_files", None)
        return iter(()) if files is None else files()

    def _place(self, index: int) -> tuple[int, int]:
        part = bisect_right(self._starts, index) - 1
        return part, index - self._starts[part]

    def _element(self, part: int, number: int) -> Any:
        cursor: _Cursor | None = self._own.__dict__.pop("cursor", None)
        if cursor is None or cursor.part != part or number < cursor.first:
            cursor = _Cursor(part, self._parts.runs(part))
        if not self._reaches(cursor, number):
            count = self._starts[part + 1] - self._starts[part]
            raise self._other(part, number, f"is not there, of {count} that were counted or promised")
        if self._starts[part] + number + 1 == self._starts[part + 1] and self._reaches(cursor, number + 1):
            raise self._other(part, number + 1, f"is there, behind the {number + 1} that were counted or promised")
        self._own.cursor = cursor  # not behind an error: reading ended there
        return cursor.element(number)

    def _reaches(self, cursor: _Cursor, number: int) -> bool:
        try:
            return cursor.reaches(number)
        except Exception as error:
            add_note(error, f"penstock: raised by reading {self._parts.describe_in_part(cursor.part, cursor.end)}")
            raise

    def _other(self, part: int, number: int, what: str) -> SourceError:
        where = self._parts.describe_in_part(part, number)
        return SourceError(
            f"{where} {what}",
            where=where,
            fix="do not write to files that are being read; a generator with fast_forward=True gives the same in every pass, and as many "
            "as length= says",
        )


class _Cursor:
    """A place in a part."""

    def __init__(self, part: int, runs: Iterator[Run]) -> None:
        self.part = part
        self._runs = runs
        self._run = Run(0, ())

    @property
    def first(self) -> int:
        """Return the first element that can be had without beginning again."""
        return self._run.first

    @property
    def end(self) -> int:
        """Return the first element that has not been read: where reading raised, that which raised."""
        return self._run.first + len(self._run.elements)

    def reaches(self, number: int) -> bool:
        """Read on until an element is there; False if the part ends before."""
        while number >= self.end:
            run = next(self._runs, None)
            if run is None:
                return False
            self._run = run
        return True

    def element(self, number: int) -> Any:
        """Return an element that is there."""
        return self._run.elements[number - self._run.first]
