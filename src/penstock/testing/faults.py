"""Faults on purpose: what goes wrong at a known place, on every executor alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from penstock._contracts.source import IndexedSource
from penstock._plan.check import count_argument
from penstock.errors import PlanError
from penstock.testing.runs import exact, shown


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


def places_argument(value: Any, name: str, operator: str) -> tuple[int, ...]:
    """Return indices that are given as one or several."""
    several = value if isinstance(value, Collection) else [value]
    return tuple(count_argument(place, name, operator) for place in several)


def check_places(places: Collection[int], name: str, operator: str, count: int) -> None:
    """Refuse indices that a source of `count` elements does not have: nothing would be tried there.

    Raises:
        PlanError: one is beyond the end.
    """
    beyond = [place for place in places if place >= count]
    if beyond:
        raise PlanError(
            f"{name}= has {beyond[0]}, which is no index of {count} elements",
            where=f"{operator}({name}=...)",
            fix=f"give indices below {count}, or a longer source",
        )


class RowsOnly:
    """The elements of another source, read by `gather` alone.

    Args:
        source: an indexed source, or a sequence.
    """

    def __init__(self, source: Any) -> None:
        from penstock.sources import indexed_source

        self._source: IndexedSource = indexed_source(source)

    def __len__(self) -> int:
        return len(self._source)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index."""
        self._source.gather(indices, rows)

    def describe(self, index: int) -> str:
        """Name the element as the other source does."""
        return self._source.describe(index)

    def fingerprint(self) -> dict[str, Any]:
        """Return that of the other source: a state goes from one to the other."""
        return self._source.fingerprint()

    def label(self) -> str:
        """Return that of the other source."""
        return self._source.label()


class FailingSource(RowsOnly):
    """The elements of another source, some of which cannot be read. Thread-safe.

    Args:
        source: an indexed source, or a sequence.
        at: the index, or the indices, that fail.
        error: makes the exception that is raised: a class, or a function without arguments.
        times: how often each of them fails before it can be read; None for always.

    Raises:
        PlanError: `at` names no element of the source, or another argument is not what it should be.
    """

    def __init__(
        self, source: Any, at: int | Collection[int], error: Callable[[], Exception] = InjectedError, *, times: int | None = None
    ) -> None:
        super().__init__(source)
        if not callable(error) or (isinstance(error, type) and not issubclass(error, BaseException)):
            raise PlanError(
                f"error={error!r} makes no exception", where="FailingSource()", fix="give a class of errors, or a function that returns one"
            )
        self._error = error
        self._lock = threading.Lock()
        places = places_argument(at, "at", "FailingSource")
        check_places(places, "at", "FailingSource", len(self))
        if not places:
            raise PlanError(f"at={at!r} names no element", where="FailingSource()", fix="give one index or several")
        often = float("inf") if times is None else count_argument(times, "times", "FailingSource", least=1)
        self._left: dict[int, float] = dict.fromkeys(places, often)

    def gather(self, indices: Sequence[int], rows: list[Any]) -> None:
        """Append one element per index, up to the first that fails."""
        for index in indices:
            with self._lock:
                left = self._left.get(index, 0)
                self._left[index] = left - 1
            if left > 0:
                raise self._error()
            super().gather([index], rows)
