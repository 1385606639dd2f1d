"""Faults on purpose: what goes wrong at a known place, on every executor alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock._contracts.source import IndexedSource
from penstock.testing.elements import exact, shown

__all__ = ["FailingSource", "Fault", "InjectedError"]


class InjectedError(Exception):
    """The error of an injected fault."""


class Fault:
    """A map function that raises InjectedError at one element and gives every other one back.

    Attributes:
        armed: whether it raises; set it to False and the fault is mended.
    """

    def __init__(self, element: Any) -> None:
        """Fail at elements that are the same as `element`."""
        self.armed = True
        self._bad = exact(element)
        self._words = shown(element)

    def __call__(self, element: Any) -> Any:
        """Return the element, or raise."""
        if self.armed and exact(element) == self._bad:
            raise InjectedError(f"injected at {self._words}")
        return element


class FailingSource:
    """The elements of another source, some of which cannot be read. Thread-safe.

    Args:
        source: an indexed source, or a sequence.
        at: the index, or the indices, that fail.
        error: makes the exception that is raised: a class, or a function without arguments.
        times: how often each of them fails before it can be read; None for always.
    """

    def __init__(
        self, source: Any, at: int | Collection[int], error: Callable[[], Exception] = InjectedError, *, times: int | None = None
    ) -> None:
        from penstock.sources import IndexableSource

        self._source: IndexedSource = source if isinstance(source, IndexedSource) else IndexableSource(source)
        self._error = error
        self._lock = threading.Lock()
        self._left: dict[int, float] = dict.fromkeys([at] if isinstance(at, int) else at, float("inf") if times is None else times)

    def __len__(self) -> int:
        return len(self._source)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index, up to the first that fails."""
        for index in indices:
            with self._lock:
                left = self._left.get(index, 0)
                self._left[index] = left - 1
            if left > 0:
                raise self._error()
            self._source.gather([index], rows)

    def describe(self, index: int) -> str:
        """Name the element as the other source does."""
        return self._source.describe(index)

    def fingerprint(self) -> dict[str, Any]:
        """Return that of the other source: a state goes from one to the other."""
        return self._source.fingerprint()

    def label(self) -> str:
        """Return that of the other source."""
        return self._source.label()
