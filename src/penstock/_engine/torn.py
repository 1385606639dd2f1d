"""Changes that happen whole or stop the run: what an exception from outside has cut in the middle is seen by everybody."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

__all__ = ["Tearable", "whole"]

P = ParamSpec("P")
R = TypeVar("R")


class Tearable(Protocol):
    """Something whose changes may be cut: `torn` during a change, and for ever after one that did not end."""

    torn: bool
    ended: bool


S = TypeVar("S", bound=Tearable)


def whole(change: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let a method that changes the run, called under its mutex, end the run for everybody when it does not come to its own end.

    An exception may come from outside between any two instructions: Ctrl-C in the main thread, MemoryError, one that a debugger or a
    library raises in a worker. Without this, a worker that comes before the error is booked would go on with half a change, and might
    reach the end of the data with elements missing.
    """

    @wraps(change)
    def changed(self: S, /, *arguments: P.args, **options: P.kwargs) -> Any:
        before = self.torn
        if before:
            self.ended = True
        self.torn = True
        out = change(self, *arguments, **options)
        self.torn = before
        return out

    return changed
