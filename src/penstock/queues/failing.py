"""Errors that cross from one thread to another: what is said of them, and those that would pass for an end."""

from __future__ import annotations

import warnings
import weakref
from typing import TypeAlias

from penstock._contracts.failing import add_note, cause_of, words_of

__all__ = ["Unraised", "attach_others", "tell_when_dropped"]

Unraised: TypeAlias = "weakref.finalize[[str], object]"


def attach_others(first: BaseException, others: list[BaseException]) -> BaseException:
    """Return the first error, with a note for each of the others."""
    for other in others:
        if other is not first and other is not cause_of(first):
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
