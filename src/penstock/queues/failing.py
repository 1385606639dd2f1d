"""Errors that cross from one thread to another: their words, their notes, and those that would pass for an end."""

from __future__ import annotations

import sys
import warnings
import weakref
from contextlib import suppress
from typing import TypeAlias

__all__ = ["Unraised", "add_note", "attach_others", "tell_when_dropped", "words_of", "would_end"]

Unraised: TypeAlias = "weakref.finalize[[str], object]"

_WOULD_END = (StopIteration, StopAsyncIteration, GeneratorExit, SystemExit, KeyboardInterrupt)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to a user's error. One that takes none, as a frozen dataclass, stays without: it is what the user asked to see."""
    with suppress(AttributeError, TypeError):
        error.add_note(note)


def words_of(error: BaseException) -> str:
    """Return type and text of an error, also of one whose own `__str__` fails, and so would hide the error that is raised."""
    from traceback import TracebackException

    return f"{type(error).__name__}: {TracebackException(type(error), error, None)}"


def would_end(error: BaseException) -> bool:
    """Tell whether a loop, the interpreter or an async program would take an error for a normal end or for its own cancellation."""
    asyncio = sys.modules.get("asyncio.exceptions")  # not imported: then nobody can have raised its error
    return isinstance(error, _WOULD_END) or (asyncio is not None and isinstance(error, asyncio.CancelledError))


def attach_others(first: BaseException, others: list[BaseException]) -> BaseException:
    """Return the first error, with a note for each of the others."""
    for other in others:
        if other is not first and other is not first.__cause__:
            add_note(first, f"penstock: also failed: {words_of(other)}")
    return first


def tell_when_dropped(owner: object, name: str, error: BaseException, fix: str) -> Unraised:
    """Have a warning tell of an error that its owner kept and nobody raised: when the owner is dropped, or the program exits.

    Whoever raises it calls `detach` of what this returns.
    """
    words = f"{name} was dropped with an error that nobody has raised: {words_of(error)}; {fix}"  # not the error: it may hold the owner
    return weakref.finalize(owner, _warn, words)


def _warn(words: str) -> None:
    warnings.warn(words, RuntimeWarning, stacklevel=3)
