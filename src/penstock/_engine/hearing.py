"""Errors where nobody would hear them: in a thread's body, in a callback of an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["hear"]


def hear(on_error: Callable[[BaseException], Any], function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function; give what it raises to `on_error`, which sees to it that the consumer gets it."""
    try:
        function(*arguments)
    except BaseException as error:
        on_error(error)
