"""A running dataset: what is compiled before it runs, what runs it, and the feed that the training loop iterates."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.feed.feed import Feed

__all__ = ["Feed"]


def __getattr__(name: str) -> Any:
    """Import the feed where it is asked for: an engine process has none."""
    if name != "Feed":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.feed.feed import Feed

    return Feed
