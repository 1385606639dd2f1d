"""What only looks at a run: when it fails it is switched off, with one warning, and training goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from penstock._contracts.event import Event, Listener
from penstock._contracts.failing import words_of
from penstock.queues.standing import level_of_caller

__all__ = ["Guarded", "guarded"]


def guarded(what: str, function: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """Call a function; return (whether it did not raise, its result). An error becomes a warning that begins with `what`."""
    try:
        return True, function(*arguments)
    except Exception as error:
        warnings.warn(f"{what}: {words_of(error)}; training goes on", RuntimeWarning, stacklevel=level_of_caller())
        return False, None


class Guarded:
    """Calls a listener until it raises; then says so in one warning, and calls it no more."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Listener) -> None:
        self._listener: Listener | None = listener

    def __call__(self, event: Event) -> None:
        """Pass an event on."""
        listener = self._listener
        if listener is not None and not guarded(f"the listener {listener!r} is switched off", listener, event)[0]:
            self._listener = None
