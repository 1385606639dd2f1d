"""Exceptions of the user's, which may be odd: to look at one, or to add to one, never puts another in its place.

A class of the user's may be frozen, may overwrite `add_note`, and its `__str__`, `__setattr__` or `__notes__` may raise what they like.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from penstock.errors import StorageError


class ReadBrokenOff(StorageError):
    """A read ended because its thread is to stop: nobody waits for it, and no policy says what becomes of it."""


_T = TypeVar("_T")

_WOULD_END = (StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, KeyboardInterrupt)
_SLOTS: Any = BaseException.__dict__


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error. One that takes none, as a frozen dataclass, stays without: it is what the user asked to see."""
    try:
        error.add_note(note)
    except Exception:
        with suppress(Exception):
            BaseException.add_note(error, note)


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return the notes of an error; none where they cannot be read."""
    with suppress(Exception):
        return tuple(map(str, error.__notes__))
    return ()


def text_of(error: BaseException) -> str:
    """Return the text of an error, also of one whose own `__str__` fails."""
    try:
        return str(error)
    except Exception as odd:
        return f"<its text is not there: __str__ raised {type(odd).__name__}>"


def words_of(error: BaseException) -> str:
    """Return type and text of an error."""
    return f"{type(error).__name__}: {text_of(error)}"


def argument_of(error: BaseException) -> str:
    """Return what an error was made with, in parentheses; "" where that is nothing, or cannot be shown."""
    try:
        return f"({error.args[0]!r})" if error.args else ""
    except Exception:
        return ""


def cause_of(error: BaseException) -> BaseException | None:
    """Return the cause of an error, whatever its class makes of the name."""
    cause: BaseException | None = _SLOTS["__cause__"].__get__(error)
    return cause


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error, whatever its class makes of the name."""
    traceback: TracebackType | None = _SLOTS["__traceback__"].__get__(error)
    return traceback


def traceback_text_of(error: BaseException) -> str:
    """Return the traceback of an error as Python prints it, causes and notes included where they can be read."""
    from traceback import format_exception, format_tb

    try:
        return "".join(format_exception(error))
    except Exception:
        return "".join(["Traceback (most recent call last):\n", *format_tb(traceback_of(error)), words_of(error), "\n"])


def would_end(error: BaseException) -> bool:
    """Tell whether a loop, the interpreter or an async program would take an error for a normal end or for its own cancellation."""
    asyncio = sys.modules.get("asyncio.exceptions")  # if it is not imported, its error cannot have been raised
    return isinstance(error, _WOULD_END) or (asyncio is not None and isinstance(error, asyncio.CancelledError))


def attempt(function: Callable[..., _T], *arguments: Any) -> _T | None:
    """Return what a function returns, or None when it raises: for a figure that is nice to have, of an object of the user."""
    try:
        return function(*arguments)
    except Exception:
        return None


def failure_of(function: Callable[..., Any], *arguments: Any) -> Exception | None:
    """Return what a function of another library raises; None where it returns."""
    try:
        function(*arguments)
    except Exception as error:
        return error
    return None
