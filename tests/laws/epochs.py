"""Ways to run a feed, and the rest of an epoch behind a loaded state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import penstock as ps

__all__ = ["OPTIONS", "rest"]

OPTIONS: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "num_workers": 1},
    {"executor": "threads", "num_workers": 3},
    {"executor": "threads", "num_workers": 2, "memory_bytes": 1},
]


def rest(feed: ps.Feed, epoch: int = 0) -> Iterator[Any]:
    """Return what is left of an epoch; nothing where the state of the feed is the start of the next one."""
    return iter(()) if feed.epoch > epoch else iter(feed)
