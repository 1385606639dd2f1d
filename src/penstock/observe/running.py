"""The feeds that run in this process, for observers that ask for the training step; and what profiles new ones, if anything does."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["note_running", "profilers", "running_feeds"]


def note_running(feed: Any) -> None:
    """Remember a feed that has begun; it is forgotten when it is closed or gone."""
    _begun().add(feed)


def running_feeds() -> list[Any]:
    """Return the feeds that have begun and are not closed."""
    return [feed for feed in list(_begun()) if not feed.is_closed()]


@functools.cache
def _begun() -> weakref.WeakSet[Any]:
    return weakref.WeakSet()


@functools.cache
def profilers() -> list[Callable[[Any, Any], Any]]:
    """Return what is called with the plan and the figures of each new feed, and gives its profile: one function under `penstock doctor`."""
    return []
