"""A stream that Python code produces, one element after the other."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

from penstock.errors import PlanError, SourceError

__all__ = ["GeneratorSource", "rest_of"]

_END = object()


class GeneratorSource:
    """Serve what a callable's iterable yields; every pass calls it again.

    Args:
        fn: a callable without arguments that returns a new iterable (a generator function, most of the time); or an iterable that
            can be iterated again; or an iterator, which serves one pass.
        fast_forward: whether a resume may read and drop elements to get back to its place.
        length: the number of elements of every pass, checked by the engine; None promises nothing.

    Raises:
        PlanError: `fn` is none of these, or `length` is not a count.
    """

    _CALL = "from_generator"
    _KIND = "generator"
    _ANEW = "give a function that makes a new iterator on every call, such as `def rows(): yield ...`, and pass `rows`, not `rows()`"

    def __init__(self, fn: Callable[[], Iterable[Any]] | Iterable[Any], fast_forward: bool = False, length: int | None = None) -> None:
        name = getattr(fn, "__qualname__", None)
        self._name = name if isinstance(name, str) else type(fn).__qualname__
        if not callable(fn) and not hasattr(fn, "__iter__"):
            raise PlanError(
                f"{self._name!r} is neither callable nor iterable",
                where="from_generator",
                fix="give a function without arguments that yields elements",
            )
        if length is not None and (type(length) is not int or length < 0):
            raise PlanError(f"length={length!r} is not a count", where=f"{self._CALL}({self._name})", fix="give an int >= 0 or None")
        self._fn = fn
        self._fast_forward = bool(fast_forward)
        self._length = length
        self._last: Callable[[], Any] | None = None
        self._num_passes = 0
        self._gave_elements = False

    def open(self, pass_number: int = 0) -> Iterator[Any]:
        """Start a new pass; the iterator may be closed at any time, which closes the user's generator.

        Raises:
            SourceError: the stream cannot be read a second time, or the callable did not return an iterable.
        """
        self._num_passes += 1
        iterable = self._iterable()
        iterator = self._as_iterator(iterable)
        if iterator is iterable:
            if self._last is not None and self._last() is iterator:
                raise self._one_shot(f"this pass got the {type(iterator).__name__} of the one before", self._num_passes)
            self._last = _reference(iterator)
        return self._one_pass(iterator, self._num_passes)

    def _iterable(self) -> Any:
        return self._fn() if callable(self._fn) else self._fn

    def _one_pass(self, iterator: Iterator[Any], number: int) -> Generator[Any, None, None]:
        """Yield a pass; a pass without elements after one that had some is a used-up iterator behind a new wrapper."""
        with closing(rest_of(iterator)) as rest:
            first = next(rest, _END)
            if first is _END:
                if self._gave_elements:
                    raise self._one_shot("this pass gave no elements where an earlier one did", number)
                return
            self._gave_elements = True
            yield first
            yield from rest

    def _as_iterator(self, iterable: Any) -> Iterator[Any]:
        if not hasattr(iterable, "__iter__"):
            hint = "an async generator cannot be read here; " if hasattr(iterable, "__aiter__") else ""
            raise SourceError(
                f"{self._name} returned a {type(iterable).__name__}, not an iterable",
                where=f"from_generator({self._name})",
                fix=f"{hint}let it yield elements, or return a list or an iterator",
            )
        return iter(iterable)

    def _one_shot(self, what: str, number: int) -> SourceError:
        return SourceError(
            f"{self._name} can be read only once: {what}",
            where=f"{self._CALL}({self._name}), pass {number}",
            fix=self._ANEW,
        )

    def declared_length(self) -> int | None:
        """Return `length` as given."""
        return self._length

    def can_fast_forward(self) -> bool:
        """Return `fast_forward` as given."""
        return self._fast_forward

    def describe(self, index: int) -> str:
        """Name the element."""
        return f"element {index} of {self._KIND} {self._name}"

    def fingerprint(self) -> dict[str, Any]:
        """Return the name and the declared length; the stream is not read."""
        return {"kind": self._KIND, "name": self._name, "length": self._length}

    def label(self) -> str:
        """Return the call with the name and, where declared, the number of elements."""
        return f"{self._CALL}({self._name}{'' if self._length is None else f', {self._length} elements'})"


def rest_of(iterator: Iterator[Any]) -> Generator[Any, None, None]:
    """Give what an iterator still has; closing this closes it, if it can be closed.

    As `yield from`, without its `iter`: an iterator may begin anew when it is asked for one.
    """
    try:
        while (element := next(iterator, _END)) is not _END:
            yield element
    except GeneratorExit:
        close = getattr(iterator, "close", None)
        if callable(close):
            close()
        raise


def _reference(iterator: Any) -> Callable[[], Any]:
    """Refer to an iterator without keeping an abandoned one (and its open files) alive, where it allows that."""
    try:
        return weakref.ref(iterator)
    except TypeError:
        return lambda: iterator
