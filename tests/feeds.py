"""What a feed says in the middle of its run, and what another one gives behind that."""

from __future__ import annotations

from typing import Any

import penstock as ps


def state_behind(ds: ps.Dataset, count: int = 1, **way: Any) -> dict[str, Any]:
    """Return the state of a feed that has given so many elements."""
    with ds.feed(**way) as feed:
        for _ in range(count):
            next(feed)
        return feed.state_dict()


def resumed(ds: ps.Dataset, state: Any, **way: Any) -> list[Any]:
    """Return what a feed gives behind a state, up to the end of the epoch."""
    with ds.feed(**way) as feed:
        feed.load_state_dict(state)
        return list(feed)
